# Unfinished ConfigMaps and objects of a custom resource behind `gatepost read-proxy`, with kubectl as client: they are not
# listed, not shown, and whoever creates one waits. A hook of this trial marks them, and kubectl, past the proxy, plays the
# initializers.

proxied=read-proxy

# front_proxy: the proxy's certificate for the apiserver, and one for a user.
front_proxy() {
  authority "$work/front-ca" "/CN=trial front proxy"
  client_certificate "$work/read-proxy" "$work/front-ca" /CN=gatepost-read-proxy
  client_certificate "$work/carol" "$work/cluster/ca" /O=dev/CN=carol
}

# proxy_account: the account of the chapter, with this trial's resources, and a kubeconfig of it.
proxy_account() {
  kubectl create namespace gatepost --save-config >"$work/said" 2>&1 || true
  documented read-proxy 'kind: ClusterRole' | sed 's|widgets.example.com|widgets.e2e.gatepost.dev|; s|\[example.com\]|[e2e.gatepost.dev]|' |
    kubectl apply --filename - >"$work/said" 2>&1 || broken "the proxy's account"
  as_account read-proxy
}

# through KUBECTL ARGUMENTS: as carol, by her certificate, through the proxy.
through() {
  "$BIN/kubectl" --kubeconfig /dev/null --server "https://$proxy" --certificate-authority "$work/ca.crt" --namespace e2e \
    --client-certificate "$work/carol.crt" --client-key "$work/carol.key" --cache-dir "$work/kubectl-proxied" "$@"
}

# proxied_curl ARGUMENTS PATH: as admin, by a token, through the proxy.
proxied_curl() {
  curl -sS --cacert "$work/ca.crt" -H "Authorization: Bearer $(cat "$work/cluster/token")" "${@:1:$#-1}" "https://$proxy${*: -1}"
}

# held KIND NAME STATE: an object that the hook marks as unfinished, with that state.
held() {
  local version=v1 patch answer
  [[ "$1" == ConfigMap ]] || version=e2e.gatepost.dev/v1
  patch="[{\"op\": \"add\", \"path\": \"/metadata/labels/init.gatepost.dev~1pending\", \"value\": \"1f2e\"}, {\"op\": \"add\", \"path\": \"/metadata/annotations/init.gatepost.dev~1state\", \"value\": $(quoted "$3")}]"
  answer="{\"patchType\": \"JSONPatch\", \"patch\": \"$(printf %s "$patch" | base64 -w0)\", \"warnings\": [\"init pending 1f2e\"]}"
  cat <<JSON
{"apiVersion": "$version", "kind": "$1",
 "metadata": {"name": "$2", "labels": {"held": "yes"}, "annotations": {"e2e.gatepost.dev/init": $(quoted "$answer")}}}
JSON
}

# creating KIND NAME [kubectl flags]: creates such an object through the proxy.
creating() {
  held "$1" "$2" '{"state": "Pending", "pending": ["x.example.com"]}' >"$work/$2.json"
  through create --filename "$work/$2.json" "${@:3}"
}

# completes KIND NAME: past the proxy, as an initializer that adds an annotation and is the last.
completes() {
  in_e2e annotate "$1" "$2" filled=in 'init.gatepost.dev/state={"state": "Completed", "pending": []}' --overwrite &&
    in_e2e label "$1" "$2" init.gatepost.dev/pending-
}

# fails KIND NAME: past the proxy.
fails() {
  in_e2e annotate "$1" "$2" --overwrite \
    'init.gatepost.dev/state={"state": "Failed", "pending": ["x.example.com"], "result": {"status": "Failure", "code": 403, "reason": "Forbidden", "message": "x.example.com says no"}}' &&
    in_e2e delete "$1" "$2"
}

there() { in_e2e get "$1" "$2" >/dev/null 2>&1; }

proxied_resource() {
  local kind="$1" plural="$2" path="$3"
  echo "-------- $plural"
  # Past the proxy, and so not held.
  held "$kind" stuck '{"state": "Pending", "pending": ["x.example.com"]}' | in_e2e create --filename - >"$work/said" 2>&1 || broken "an unfinished object"
  prints "$proxied: $plural: past the proxy it is there" stuck in_e2e get "$plural"
  check "$proxied: $plural: it is not listed" not_printed stuck through get "$plural"
  check "$proxied: $plural: nor by its name in a selector" not_printed stuck through get "$plural" --field-selector metadata.name=stuck
  check "$proxied: $plural: nor in any form" not_printed stuck through get "$plural" --output json
  refuses "$proxied: $plural: a get of it says what it is" 'is not initialized yet' through get "$plural" stuck
  refuses "$proxied: $plural: in any form" 'is not initialized yet' through get "$plural" stuck --output yaml
  prints "$proxied: $plural: that is a 202" ' 202' proxied_curl -o /dev/null -w ' %{http_code}' "$path/stuck"
  prints "$proxied: $plural: of a table without objects, too" ' 202' proxied_curl -o /dev/null -w ' %{http_code}' \
    -H 'Accept: application/json;as=Table;v=v1;g=meta.k8s.io' "$path/stuck?includeObject=None"
  refuses "$proxied: $plural: its name is taken" 'already exists' creating "$kind" stuck
  prints "$proxied: $plural: who may initialize sees it when asking" '"stuck"' proxied_curl "$path?includeUninitialized=true"
  check "$proxied: $plural: and not without asking" not_printed '"stuck"' proxied_curl "$path"
  prints "$proxied: $plural: who may not initialize does not" '"items":[]' through get --raw "$path?includeUninitialized=true&labelSelector=held%3Dyes"

  start "watch-$plural" "$BIN/kubectl" --kubeconfig /dev/null --server "https://$proxy" --certificate-authority "$work/ca.crt" \
    --client-certificate "$work/carol.crt" --client-key "$work/carol.key" --namespace e2e get "$plural" --watch \
    --selector held=yes -o 'jsonpath={.metadata.name} {.metadata.annotations.filled}{"\n"}'
  start "create-$plural" creating "$kind" held -o 'jsonpath={.metadata.annotations.filled}'
  eventually "$proxied: $plural: what is created is stored" there "$plural" held
  check "$proxied: $plural: its creator waits" kill -0 "${process[create-$plural]}"
  check "$proxied: $plural: initialized" completes "$plural" held
  check "$proxied: $plural: the creator has its answer" stop_waiting "create-$plural"
  prints "$proxied: $plural: and it is the finished object" in cat "$work/create-$plural.out"
  check "$proxied: $plural: it is shown" through get "$plural" held
  eventually "$proxied: $plural: a watch sees it, finished" grep -qx 'held in' "$work/watch-$plural.out"
  check "$proxied: $plural: and never saw it before" only_finished "watch-$plural"
  kill "${process[watch-$plural]}" 2>/dev/null || true
  wait "${process[watch-$plural]}" || true
  unset "process[watch-$plural]"

  start "create-$plural" creating "$kind" refused
  eventually "$proxied: $plural: another is stored" there "$plural" refused
  check "$proxied: $plural: which an initializer refuses" fails "$plural" refused
  check "$proxied: $plural: the creator is refused" not stop_waiting "create-$plural"
  prints "$proxied: $plural: in the initializer's own words" 'Error from server (Forbidden): ' cat "$work/create-$plural.log"
  prints "$proxied: $plural: all of them" 'x.example.com says no' cat "$work/create-$plural.log"

  refuses "$proxied: $plural: time runs out" 'initializer "x.example.com" has not finished' creating "$kind" late --request-timeout=3s
  refuses "$proxied: $plural: with the code that clients know" 'Error from server (Timeout)' creating "$kind" later --request-timeout=3s
  check "$proxied: $plural: it is there, and goes on" completes "$plural" late
  check "$proxied: $plural: then it is shown" through get "$plural" late
  allows "$proxied: $plural: a dry run is not held" dry_running "$kind"
  held "$kind" applied '{"state": "Pending", "pending": ["x.example.com"]}' >"$work/applied.json"
  start "create-$plural" through apply --server-side --filename "$work/applied.json"
  eventually "$proxied: $plural: a server-side apply stores one" there "$plural" applied
  check "$proxied: $plural: and waits" kill -0 "${process[create-$plural]}"
  check "$proxied: $plural: until it is initialized" completes "$plural" applied
  check "$proxied: $plural: and then ends" stop_waiting "create-$plural"
  check "$proxied: $plural: a deletion of all finds hidden ones" through delete --raw "$path?labelSelector=held%3Dyes"
  check "$proxied: $plural: which are gone" not there "$plural" stuck
}

# A dry run, whose warning kubectl shows, ends at once.
dry_running() { creating "$1" dry --dry-run=server --request-timeout=10s 2>/dev/null; }

# stop_waiting NAME: it has to end by itself, and well.
stop_waiting() {
  local code=0
  wait "${process[$1]}" || code=$?
  unset "process[$1]"
  return "$code"
}

not_printed() {
  local text="$1"
  shift
  "$@" >"$work/printed" 2>&1 || return 1
  cat "$work/printed"
  ! grep -qF -- "$text" "$work/printed"
}

# only_finished WATCH: every object that it has seen is finished.
only_finished() { ! grep -v ' in$' "$work/$1.out"; }

read_proxied() {
  echo "======== read proxy: objects that are not initialized are hidden"
  front_proxy
  check "$proxied: kube-apiserver stops" kube/cluster.sh stop "$work/cluster"
  documented read-proxy requestheader-allowed-names | tr -d '\\\n' |
    sed -e "s|/etc/kubernetes/front-proxy-ca.crt|$work/front-ca.crt|" >"$work/requestheader"
  # shellcheck disable=SC2046 # flags
  kube/cluster.sh start "$work/cluster" --admission-control-config-file "$work/admission.yaml" $(cat "$work/requestheader") ||
    broken "the cluster does not start"
  proxy_account
  sed -e "s|@HOOKS@|$hooks|" -e "s|@CA@|$(base64 -w0 "$work/ca.crt")|" config/read-proxy.yaml | kubectl apply --filename - >"$work/said" 2>&1 ||
    broken "registering the hook"
  refuses "$proxied: Nodes cannot be hidden, and it says why" 'a kubelet that cannot see its Node' \
    "$gatepost" read-proxy --resources nodes --tls-cert "$work/gatepost.crt" --tls-key "$work/gatepost.key"
  start read-proxy "$gatepost" read-proxy --resources configmaps,widgets.e2e.gatepost.dev --listen 127.0.0.1:0 --admin 127.0.0.1:0 \
    --tls-cert "$work/gatepost.crt" --tls-key "$work/gatepost.key" --client-ca "$work/cluster/ca.crt" \
    --front-proxy-cert "$work/read-proxy.crt" --front-proxy-key "$work/read-proxy.key" --upstream-kubeconfig "$work/read-proxy.kubeconfig"
  proxy="$(told read-proxy 'listening tcp (.*)')"
  pages="$(told read-proxy 'listening admin (.*)')"
  eventually "$proxied: it is ready once the apiserver has answered" curl -sSf "http://$pages/readyz"

  prints "$proxied: the apiserver knows whose certificate it is" carol through auth whoami
  prints "$proxied: and its groups" dev through auth whoami
  prints "$proxied: and its digest" X509SHA256 through auth whoami
  prints "$proxied: a token is its owner's" admin proxied_curl -H 'Content-Type: application/json' \
    --data '{"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}' /apis/authentication.k8s.io/v1/selfsubjectreviews
  prints "$proxied: nobody is who he says" 'system:anonymous' curl -sS --cacert "$work/ca.crt" -H 'X-Remote-User: admin' \
    -H 'X-Remote-Group: system:masters' "https://$proxy/api/v1/secrets"
  eventually "$proxied: the hook marks objects" marks

  proxied_resource ConfigMap configmaps /api/v1/namespaces/e2e/configmaps
  proxied_resource Widget widgets /apis/e2e.gatepost.dev/v1/namespaces/e2e/widgets

  held ConfigMap stuck '{"state": "Pending", "pending": ["x.example.com"]}' | in_e2e create --filename - >"$work/said" 2>&1 || broken "an unfinished object"
  check "$proxied: protobuf passes" proxied_protobuf
  prints "$proxied: and a hidden object in it is a 202" ' 202' proxied_curl -o /dev/null -w ' %{http_code}' \
    -H 'Accept: application/vnd.kubernetes.protobuf' /api/v1/namespaces/e2e/configmaps/stuck
  check "$proxied: a watch that lists first ends its list" proxied_watch_list
  check "$proxied: a watch by WebSocket hides, too" proxied_websocket
  check "$proxied: compressed lists pass" proxied_gzip
  in_e2e delete configmap stuck --ignore-not-found >"$work/said" 2>&1 || broken "deleting what was left"
  check "$proxied: what was hidden is counted" not_printed 'gatepost_read_proxy_requests_total{outcome="hidden"} 0' curl -sS "http://$pages/metrics"
  check "$proxied: and what was held" not_printed 'gatepost_read_proxy_hold_ends_total{end="completed"} 0' curl -sS "http://$pages/metrics"
  check "$proxied: it ends well when asked to" stop read-proxy
  kubectl delete --filename config/read-proxy.yaml >"$work/said" 2>&1 || broken "unregistering the hook"
  kube/cluster.sh stop "$work/cluster"
  start_cluster
}

marks() { held ConfigMap probe '{}' | in_e2e create --dry-run=server --filename - -o json | grep -q '"init.gatepost.dev/pending"'; }

proxied_protobuf() {
  proxied_curl -H 'Accept: application/vnd.kubernetes.protobuf' -o "$work/list.pb" /api/v1/namespaces/e2e/configmaps
  [[ "$(head -c 3 "$work/list.pb")" == k8s ]] && ! grep -q stuck "$work/list.pb"
}

proxied_watch_list() {
  timeout 5 curl -sSN --cacert "$work/ca.crt" -H "Authorization: Bearer $(cat "$work/cluster/token")" \
    "https://$proxy/api/v1/namespaces/e2e/configmaps?watch=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&timeoutSeconds=2" >"$work/events"
  grep -q 'k8s.io/initial-events-end' "$work/events" && ! grep -q '"stuck"' "$work/events"
}

# by_websocket NAMESPACE: what a watch of its ConfigMaps says within two seconds.
by_websocket() {
  {
    printf 'GET /api/v1/namespaces/%s/configmaps?watch=1&timeoutSeconds=2 HTTP/1.1\r\nHost: proxy\r\n' "$1"
    # Without an origin kube-apiserver refuses it.
    printf 'Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nOrigin: https://proxy\r\n'
    printf 'Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nAuthorization: Bearer %s\r\n\r\n' "$(cat "$work/cluster/token")"
    sleep 3
  } | timeout 10 openssl s_client -quiet -connect "$proxy" -CAfile "$work/ca.crt" 2>/dev/null || true
}

proxied_websocket() {
  by_websocket kube-system >"$work/websocket"
  by_websocket e2e >>"$work/websocket"
  [[ "$(grep -ac '101 Switching Protocols' "$work/websocket")" == 2 ]] &&
    grep -aq 'extension-apiserver-authentication' "$work/websocket" && ! grep -aq stuck "$work/websocket"
}

proxied_gzip() {
  proxied_curl --compressed -D "$work/fields" -o "$work/list.json" /apis/rbac.authorization.k8s.io/v1/clusterroles
  grep -qi '^content-encoding: gzip' "$work/fields" && grep -q 'cluster-admin' "$work/list.json"
}
