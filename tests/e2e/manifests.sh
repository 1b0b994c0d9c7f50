# That the files of deploy/kubernetes are accepted and enough, and nothing more; and that the README's lines run as printed.

# may WHO VERB RESOURCE: by the rights that were granted.
may() { kubectl auth can-i "$2" "$3" --as "$1" --all-namespaces; }

# rights WHO: what Gatepost needs, and none of what it does not.
rights() {
  local who="$1" asked
  for asked in "get namespaces" "list namespaces" "watch namespaces" "list validatingwebhookconfigurations"; do
    # shellcheck disable=SC2086 # a verb and a resource
    check "rights: $who may $asked" may "$who" $asked
  done
  for asked in "update namespaces" "get secrets" "list pods" "create pods" "patch validatingwebhookconfigurations"; do
    # shellcheck disable=SC2086
    check "rights: $who may not $asked" not may "$who" $asked
  done
}

# as_pod: the arguments of the manifest, on this trial's ports.
as_pod() {
  kubectl create --dry-run=client -f "$deploy/static-pod.yaml" -o 'jsonpath={range .spec.containers[0].args[*]}{@}{"\n"}{end}' |
    here | sed "s|/var/log/gatepost|$work/etc|"
}

# printed TEXT: the README's command after a prompt that has this text, on one line, in this trial's folders.
printed() { sed -e :a -e '/\\$/N; s/ *\\\n */ /; ta' ../../README.md | grep -F -- "$1" | sed -n 's/^\$ //p' | sed -e "s|/run/gatepost|$work/readme|g" -e "s|/var/log/gatepost|$work/readme|g"; }

# readme TEXT: serves as printed there, in the folder where that is meant; ends when asked to.
readme() {
  local where="$1" text="$2"
  { echo "cd '$where'"; printed "$text" | sed 's/^/exec /; s/$/ --listen 127.0.0.1:0 --admin 127.0.0.1:0/'; } >"$work/readme.commands"
  HOME="$work/home" PATH="$work/path:$PATH" start readme bash -eu "$work/readme.commands"
  told readme '(ready generation.*)' >/dev/null
  check "README: \`gatepost serve\` runs as printed ($text)" stop readme
}

manifests() {
  local file args
  echo "======== manifests: deploy/kubernetes and the README's lines"
  # The alerts are for Prometheus' operator, which is not here.
  for file in "$deploy"/{adopt,beside,registration,services,source,source-drain,source-webhooks,static-pod}.yaml; do
    allows "manifests: ${file##*/} is accepted" kubectl apply --dry-run=server --validate=strict -f "$file"
  done
  rights gatepost
  rights system:serviceaccount:gatepost:gatepost

  kubectl --namespace gatepost create token gatepost --duration 10m >"$work/etc/token" 2>"$work/said" || broken "no token for Gatepost"
  sed "s|user: {token: .*}|user: {tokenFile: $work/etc/token}|" "$work/cluster/kubeconfig" >"$work/etc/kubeconfig"
  check "manifests: the service account may import" "$gatepost" import --kubeconfig "$work/etc/kubeconfig" "$work/again"
  check "manifests: and gets the same files" diff -r "$work/etc/hooks" "$work/again"
  mapfile -t args < <(as_pod)
  start pod "$gatepost" "${args[@]}" --listen 127.0.0.1:0 --admin 127.0.0.1:0
  told pod '(ready generation.*)' >/dev/null
  admin="$(told pod 'listening admin (.*)')"
  eventually "manifests: with the static Pod's arguments and that account, every namespace is known" knows_all
  check "manifests: it ends well when asked to" stop pod

  mkdir -p "$work/readme" "$work/home/.kube"
  cp "$work/cluster/kubeconfig" "$work/home/.kube/config"
  cp "$work/gatepost.crt" "$work/readme/tls.crt"
  cp "$work/gatepost.key" "$work/readme/tls.key"
  cp -r ../../examples "$work/readme/examples"
  awk '/^```/ { if (inside && index(block, "externalAdmissionHooks")) { printf "%s", block; exit } inside = !inside; block = ""; next }
    inside { block = block $0 "\n" }' ../../README.md >"$work/readme/gatepost.yaml"
  readme "$work/readme" 'gatepost serve --config gatepost.yaml'
  readme "$work/readme" 'gatepost serve --config examples/config/webhooks'
}
