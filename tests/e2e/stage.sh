# Stage of the trial: certificates, the hooks, the cluster, Gatepost, and who is registered with whom.

declare -A process=()

finish() {
  local name
  kube/cluster.sh stop "$work/cluster" || true
  for name in "${!process[@]}"; do kill "${process[$name]}" 2>/dev/null || true; done
  wait
  if [[ "${KEEP:-}" == 1 ]]; then echo "kept: $work"; else rm -rf "$work"; fi
}

# start NAME COMMAND...: in the background, its stdout in NAME.out and its stderr in NAME.log.
start() {
  local name="$1"
  shift
  # The output of an earlier one of that name must not be taken for this one's words.
  : >"$work/$name.out"
  "$@" >"$work/$name.out" 2>"$work/$name.log" </dev/null &
  process[$name]=$!
}

# stop NAME: asks it to end, and wants a good exit code.
stop() {
  local name="$1" code=0
  kill "${process[$name]}" 2>/dev/null || broken "$name had ended by itself"
  wait "${process[$name]}" || code=$?
  unset "process[$name]"
  return "$code"
}

# killed NAME: ended as by a crash, without a word.
killed() {
  kill -KILL "${process[$1]}"
  wait "${process[$1]}" 2>/dev/null || true
  unset "process[$1]"
}

# told NAME PATTERN: waits until NAME's stdout has such a line; prints what the pattern's group holds.
told() {
  local name="$1" pattern="$2" tries
  for ((tries = 0; tries < 300; tries++)); do
    if grep -qE "$pattern" "$work/$name.out"; then
      sed -nE "s|^.*$pattern.*$|\1|p" "$work/$name.out" | head -n 1
      return
    fi
    kill -0 "${process[$name]}" 2>/dev/null || broken "$name ended before it was up"
    sleep 0.1
  done
  broken "$name did not come up"
}

build() {
  go vet ./... >"$work/go.log" 2>&1 || broken "go vet"
  go test ./... >"$work/go.log" 2>&1 || broken "the judge itself fails its tests"
  go build -o "$work/hook" ./hook || broken "the hook program does not build"
  go build -o "$work/replay-program" ./replay || broken "the replay program does not build"
  gatepost="${GATEPOST:-}"
  if [[ -z "$gatepost" && ${#modes[@]} -gt 0 ]]; then
    (cd ../.. && cargo build --quiet --locked --bin gatepost) || broken "gatepost does not build"
    gatepost="$(cd ../.. && realpath "${CARGO_TARGET_DIR:-target}")/debug/gatepost"
  fi
}

# certificate PATH SUBJECT ARGUMENTS...: PATH.crt and PATH.key, by these arguments of openssl.
certificate() {
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 20 -keyout "$1.key" -out "$1.crt" \
    -subj "$2" "${@:3}" >"$work/openssl.log" 2>&1 || broken "a certificate for $2"
}

# authority PATH SUBJECT: PATH.crt and PATH.key of an authority.
authority() { certificate "$1" "$2" -addext basicConstraints=critical,CA:true -addext keyUsage=critical,keyCertSign; }

# server_certificate PATH AUTHORITY SUBJECT NAMES: a server's, signed by AUTHORITY.key, with these subjectAltNames.
server_certificate() {
  certificate "$1" "$3" -CA "$2.crt" -CAkey "$2.key" -addext basicConstraints=critical,CA:false \
    -addext "subjectAltName=$4" -addext extendedKeyUsage=serverAuth
}

# client_certificate PATH AUTHORITY SUBJECT: a user's, signed by AUTHORITY.key.
client_certificate() {
  certificate "$1" "$3" -CA "$2.crt" -CAkey "$2.key" -addext basicConstraints=critical,CA:false \
    -addext extendedKeyUsage=clientAuth
}

# An authority with a certificate for hooks and one for Gatepost, and an authority that vouches for nobody.
certificates() {
  local name
  for name in ca other-ca; do authority "$work/$name" "/CN=trial $name"; done
  for name in hooks gatepost; do server_certificate "$work/$name" "$work/ca" "/CN=$name" IP:127.0.0.1; done
}

begin_hooks() {
  start hooks "$work/hook" -cert "$work/hooks.crt" -key "$work/hooks.key" -record
  hooks="$(told hooks 'listening (.*)')"
  # One with the certificate that README.md makes: it signs itself, and is an authority.
  mkdir -p "$work/plain"
  readme="$(sed -e :a -e '/\\$/N; s/ *\\\n */ /; ta' ../../README.md | sed -n 's/^\$ \(openssl req -x509.*\)/\1/p')"
  (cd "$work/plain" && bash -euc "$readme") >"$work/plain.log" 2>&1 ||
    broken "README.md's openssl command"
  start plain "$work/hook" -cert "$work/plain/tls.crt" -key "$work/plain/tls.key"
  plain="$(told plain 'listening (.*)')"
  # Port 1 is nobody's.
  sed -e "s|@HOOKS@|$hooks|" -e "s|@NOBODY@|127.0.0.1:1|" -e "s|@CA@|$(base64 -w0 "$work/ca.crt")|" \
    -e "s|@OTHER_CA@|$(base64 -w0 "$work/other-ca.crt")|" -e "s|@PLAIN@|$plain|" \
    -e "s|@PLAIN_CA@|$(base64 -w0 "$work/plain/tls.crt")|" config/hooks.yaml >"$work/hooks.yaml"
}

# The cluster, ready for static manifests, of which there are none yet.
begin_cluster() {
  mkdir -p "$work/static"
  cat >"$work/admission.yaml" <<YAML
apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: ValidatingAdmissionWebhook
  configuration:
    apiVersion: apiserver.config.k8s.io/v1
    kind: WebhookAdmissionConfiguration
    staticManifestsDir: "$work/static"
YAML
  start_cluster
  kubectl apply -f config/cluster.yaml -f config/namespaces.yaml >"$work/setup.log" 2>&1 || broken "setting the cluster up"
  kubectl wait --for=condition=Established crd/widgets.e2e.gatepost.dev >>"$work/setup.log" 2>&1 || broken "setting the cluster up"
}

# reachable_address: one of this machine that an EndpointSlice may name, which loopback is not.
reachable_address() {
  hostname -I 2>/dev/null | tr ' ' '\n' | awk '/^[0-9.]+$/ && !found { print; found = 1 } END { exit !found }'
}

# Services are resolved by their EndpointSlices: there is no proxy behind their cluster IPs.
start_cluster() {
  kube/cluster.sh start "$work/cluster" --enable-aggregator-routing=true \
    --admission-control-config-file "$work/admission.yaml" || broken "the cluster does not start"
}

# restart: kube-apiserver starts with Gatepost's static manifest in place, and must not miss a single request.
restart() {
  check "$mode: kube-apiserver stops" kube/cluster.sh stop "$work/cluster"
  start_cluster
  refuses "$mode: started with the manifest, the first request finds the hooks asked" 'canary.e2e.gatepost.dev' \
    asking canary yes 'canary={"allowed": false}'
  allows "$mode: started with the manifest, an allowed request is allowed" asking canary yes
  after_restart
}

kubectl() { "$BIN/kubectl" --kubeconfig "$work/cluster/kubeconfig" --cache-dir "$work/kubectl" "$@"; }

replay() {
  local command="$1"
  shift
  "$work/replay-program" "$command" -cluster "$work/cluster" "$@"
}

described() {
  case "$1" in
    api) echo "an object of the API" ;;
    static) echo "a static manifest" ;;
  esac
}

# begin_gatepost MODE [FLAGS]: its folder holds the documents that kube-apiserver had; the labels of namespaces it has from
# the cluster.
begin_gatepost() {
  rm -rf "$work/folder"
  mkdir "$work/folder"
  cp "$work/hooks.yaml" "$work/folder/"
  start gatepost "$gatepost" serve --config "$work/folder" --namespaces-from "$work/cluster/kubeconfig" \
    --listen 127.0.0.1:0 --admin 127.0.0.1:0 \
    --tls-cert "$work/gatepost.crt" --tls-key "$work/gatepost.key" --audit-log "$work/gatepost-audit.jsonl" \
    "${@:2}"
  told gatepost '(ready generation.*)' >/dev/null
  front="$(told gatepost 'listening tcp (.*)')"
  admin="$(told gatepost 'listening admin (.*)')"
}

end_gatepost() { check "$mode: gatepost ends well when asked to" stop gatepost; }

# registration MODE: the one hook that kube-apiserver knows when Gatepost is before all others. As a static manifest it is
# asked about everything, as an object of the API only about what the hooks in the folder want.
registration() {
  local more=()
  [[ "$1" != api ]] || more=(--config "$work/folder")
  "$gatepost" register --form "$1" --url "https://$front" --ca-file "$work/ca.crt" "${more[@]}"
}

# register MODE: and waits until the canary's hook is asked, which no request may miss from then on.
register() {
  case "$1" in
    direct) kubectl apply -f "$work/hooks.yaml" >"$work/register.log" 2>&1 || broken "registering the hooks" ;;
    api)
      registration api >"$work/gatepost.yaml"
      kubectl apply -f "$work/gatepost.yaml" >"$work/register.log" 2>&1 || broken "registering Gatepost"
      ;;
    static)
      registration static >"$work/gatepost.yaml"
      mv "$work/gatepost.yaml" "$work/static/"
      ;;
  esac
  check "$1: registered, and hooks are asked" replay await no
}

# unregister MODE: and leaves the cluster as it was before.
unregister() {
  case "$1" in
    direct) kubectl delete -f "$work/hooks.yaml" >"$work/register.log" 2>&1 || broken "unregistering the hooks" ;;
    api) kubectl delete -f "$work/gatepost.yaml" >"$work/register.log" 2>&1 || broken "unregistering Gatepost" ;;
    static) rm "$work/static/gatepost.yaml" ;;
  esac
  check "$1: unregistered, and nobody is asked" replay await yes
  replay clean || broken "cleaning up"
}

differences() {
  local mode files=()
  for mode in "${modes[@]}"; do files+=("$mode=$work/$mode.jsonl"); done
  "$work/replay-program" compare -expected expected.tsv -out "$work/differences.md" "$work/direct.jsonl" "${files[@]}"
}
