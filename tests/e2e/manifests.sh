# That the files of deploy/kubernetes are accepted and enough, and nothing more; and that README.md's commands run as printed.

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

# quickstart: README's registration with a kube-apiserver, from the certificate to the way back.
quickstart() (
  local readme
  readme="$(realpath ../../README.md)"
  cd "$work/readme"
  HOME="$work/home" PATH="$work/path:$PATH" console "$readme" "Beside a stock kube-apiserver"
)

manifests() {
  local file args
  echo "======== manifests: deploy/kubernetes and README.md"
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
  begin_console
  blocks ../../README.md Serve yaml | at_console >"$work/readme/gatepost.yaml"
  check "README: its commands beside a kube-apiserver deny a Pod, allow another and are undone, as printed" quickstart
  check "README: nothing is registered then" not kubectl get validatingwebhookconfiguration gatepost
  allows "README: and Pods are made" kubectl run afterwards --image=nginx:latest
  kubectl delete pod afterwards --now >"$work/said" 2>&1 || broken "deleting a Pod"
}
