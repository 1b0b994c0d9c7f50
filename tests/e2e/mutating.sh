# Hooks that change objects: the same writes with the hooks registered directly and behind Gatepost, and whatever kubectl
# says and finds afterwards has to be the same.

# patch OPERATIONS: what a hook answers that wants them.
patch() { printf '{"patchType": "JSONPatch", "patch": "%s"}' "$(printf %s "$1" | base64 -w0)"; }

# quoted TEXT: as a JSON string.
quoted() { printf '"%s"' "$(sed 's/["\\]/\\&/g' <<<"$1")"; }

# mutant KIND NAME [HOOK=JSON]...: an object that tells each hook what to do, with $labels beside its own.
mutant() {
  local kind="$1" name="$2" version=v1 spec script annotations=
  shift 2
  case "$kind" in
    Pod) spec='{"containers": [{"name": "main", "image": "registry.example/app:1"}]}' ;;
    Deployment)
      version=apps/v1
      spec='{"selector": {"matchLabels": {"app": "m"}}, "template": {"metadata": {"labels": {"app": "m"}}, "spec": {"containers": [{"name": "main", "image": "registry.example/app:1"}]}}}'
      ;;
    Widget) version=e2e.gatepost.dev/v1 spec='{"size": 1}' ;;
  esac
  for script in "$@"; do
    annotations+="${annotations:+, }\"e2e.gatepost.dev/${script%%=*}\": $(quoted "${script#*=}")"
  done
  cat <<JSON
{"apiVersion": "$version", "kind": "$kind", "spec": $spec,
 "metadata": {"name": "$name", "labels": {"mutate": "yes"${labels:+, $labels}}, "annotations": {$annotations}}}
JSON
}

# mutation NAME KIND [HOOK=JSON]...: makes the object, and notes what came of it; what refuses is noted by its code alone,
# as the words around it are Gatepost's.
mutation() {
  local name="$1" kind="$2" file="$work/mutated/$mutated/$1"
  shift 2
  if mutant "$kind" "$name" "$@" | in_e2e create --filename - >"$work/said" 2>&1; then
    sed '/ created$/d' "$work/said" >"$file"
    in_e2e get "$kind/$name" -o jsonpath='{.metadata.labels}{"\n"}{.metadata.annotations}{"\n"}{.spec}{"\n"}' >>"$file" 2>&1 || true
    in_e2e delete "$kind/$name" --ignore-not-found --wait=false --grace-period=0 --force >"$work/deleted" 2>&1 ||
      broken "deleting $name"
  else
    sed -nE 's/^(Error from server \([A-Za-z]+\)).*/\1/p; s/^(Error from server): (Internal error|error when creating).*/\1/p' "$work/said" >"$file"
    [[ -s "$file" ]] || cp "$work/said" "$file"
  fi
}

# in_protobuf NAME: the Pod that nobody has changed yet, as a client in protobuf sends it; and what came of it.
in_protobuf() {
  local file="$work/mutated/$mutated/$1" code
  code="$(api_server -o "$work/said" -w '%{http_code}' -H 'Content-Type: application/vnd.kubernetes.protobuf' \
    --data-binary "@$work/$1.pb" "$(pods)")"
  echo "$code" >"$file"
  in_e2e get "pod/$1" -o jsonpath='{.metadata.labels}{"\n"}{.spec}{"\n"}' >>"$file" 2>&1 || true
  in_e2e delete "pod/$1" --ignore-not-found --wait=false --grace-period=0 --force >"$work/deleted" 2>&1 || broken "deleting $1"
}

# written_in_protobuf NAME [HOOK=JSON]...: such a Pod, as kube-apiserver writes it. No hook may be registered.
written_in_protobuf() {
  mutant Pod "$@" >"$work/$1.json"
  api_server -H 'Content-Type: application/json' -H 'Accept: application/vnd.kubernetes.protobuf' \
    --data-binary "@$work/$1.json" -o "$work/$1.pb" "$(pods)?dryRun=All" || broken "a Pod in protobuf"
  [[ "$(head -c 3 "$work/$1.pb")" == k8s ]] || broken "kube-apiserver wrote no protobuf"
}

api_server() { curl -sS --cacert "$work/cluster/ca.crt" -H "Authorization: Bearer $(cat "$work/cluster/token")" "$@"; }

pods() { echo "$(cat "$work/cluster/url")/api/v1/namespaces/e2e/pods"; }

# note_calls NAME HOOK...: notes how often each was asked since the last time.
note_calls() {
  local file="$work/mutated/$mutated/$1" hook
  shift
  drained
  for hook; do echo "$hook was asked $(grep -c "\"hook\":\"$hook\"" "$work/asked") times" >>"$file"; done
}

# drained: whatever the hooks were asked so far, in a file.
drained() {
  local address
  for address in "$hooks" "$http1"; do curl -fsS --cacert "$work/ca.crt" "https://$address/seen"; done >"$work/asked"
}

# mutations: every case, noted in the folder of this way of asking.
mutations() {
  local label_a='[{"op": "add", "path": "/metadata/labels/a", "value": "1"}]' sidecar digest later fight removed='"remove": "me"'
  local remove='[{"op": "remove", "path": "/metadata/labels/remove"}]'
  sidecar='[{"op": "add", "path": "/spec/containers/-", "value": {"name": "sidecar", "image": "registry.example/proxy:2"}}, {"op": "add", "path": "/spec/containers/0/env", "value": [{"name": "PROXY", "value": "yes"}]}]'
  digest='[{"op": "test", "path": "/spec/template/spec/containers/0/image", "value": "registry.example/app:1"}, {"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "registry.example/app@sha256:0000000000000000000000000000000000000000000000000000000000000000"}]'
  # The first hook writes down what the third, asked about its result, is to do.
  later="[{\"op\": \"add\", \"path\": \"/metadata/annotations/e2e.gatepost.dev~1m3\", \"value\": $(quoted "$(patch "$label_a")")}]"
  fight() { patch "[{\"op\": \"replace\", \"path\": \"/metadata/labels/fight\", \"value\": \"$1\"}]"; }
  mkdir -p "$work/mutated/$mutated"
  mutation nothing Pod
  mutation sidecar Pod "m2=$(patch "$sidecar")"
  mutation digest Deployment "m4=$(patch "$digest")"
  mutation widget Widget "m3=$(patch '[{"op": "add", "path": "/spec/color", "value": "blue"}]')" \
    "m4=$(patch '[{"op": "replace", "path": "/spec/shape", "value": "round"}, {"op": "copy", "from": "/spec/color", "path": "/spec/second"}]')"
  mutation result-seen Pod "m1=$(patch "$later")"
  mutation all-change Pod "m1=$(patch "$label_a")" "m2=$(patch "$sidecar")" \
    "m3=$(patch '[{"op": "add", "path": "/metadata/labels/c", "value": "3"}]')" "m4=$(patch '[{"op": "move", "from": "/metadata/labels/a", "path": "/metadata/labels/b"}]')"
  mutation undone Pod "m1=$(fight true)" "m2=$(fight false)"
  mutation back Pod "m1=$(patch "$label_a")" "m2=$(patch '[{"op": "remove", "path": "/metadata/labels/a"}]')"
  mutation warned Pod 'm1={"warnings": ["from the first"]}' "m2={\"warnings\": [\"from the second\"], $(patch "$label_a" | sed 's/^{//')"
  mutation denied Pod "m1=$(patch "$label_a")" 'm4={"allowed": false, "status": {"code": 409, "reason": "Conflict", "message": "not yet"}}'
  # Cases of dispatch.json, by its names for them.
  labels="$removed" mutation remove-label Pod "m2=$(patch "$remove")"
  mutation patch-syntax-error Pod "m4=$(patch '[{"op": "add", "CORRUPTED_KEY":}]')"
  mutation patch-truncated Pod "m4=$(patch '[{')"
  mutation patch-truncated-fail-open Pod "m3=$(patch '[{')"
  mutation garbage-on-wire Pod 'm5={"do": "bad-http"}'
  # The label by which all of them select.
  labels="$removed" mutation second-hook-sees-mutated-labels-cr Widget \
    "m1=$(patch '[{"op": "remove", "path": "/metadata/labels/mutate"}]')" \
    'm2={"allowed": false, "status": {"message": "unexpected call"}}' \
    'm5={"allowed": false, "status": {"message": "unexpected call"}}'
  # The fourth has a match condition about the object: as it arrived, and as the first has made it.
  labels='"exempt": "1"' mutation condition-excludes Pod "m4=$(patch "$label_a")"
  mutation condition-sees-change Pod \
    "m1=$(patch '[{"op": "add", "path": "/metadata/labels/exempt", "value": "1"}]')" "m4=$(patch "$label_a")"
  drained
  labels="$removed" mutation reinvoke-if-needed Pod "m1=$(patch "$label_a")" "m5=$(patch "$remove")"
  note_calls reinvoke-if-needed m1 m5
  mutation reinvoke-never Pod "m4=$(patch "$label_a")"
  note_calls reinvoke-never m4
  mutation reinvoke-default Pod "m2=$(patch "$label_a")"
  note_calls reinvoke-default m2
  mutation garbage-ignored Pod 'm3={"patchType": "JSONPatch", "patch": "e30="}'
  mutation garbage-refused Pod 'm4={"patchType": "JSONPatch", "patch": "e30="}'
  mutation other-type Pod "m4=$(patch "$label_a" | sed 's/JSONPatch/MergePatch/')"
  mutation does-not-apply Pod 'm3={"patchType": "JSONPatch", "patch": "'"$(printf '[{"op": "remove", "path": "/spec/nowhere/x"}]' | base64 -w0)"'"}'
  mutation hangs-ignored Pod 'm3={"do": "hang"}' "m4=$(patch "$label_a")"
  mutation hangs-refused Pod "m2=$(patch "$label_a")" 'm4={"do": "hang"}'
  mutation breaks-off-ignored Pod 'm3={"do": "close"}' "m4=$(patch "$label_a")"
  mutation breaks-off-refused Pod 'm4={"do": "close"}'
  mutation no-answer-ignored Pod 'm3={"do": "garbage"}'
  mutation no-answer-refused Pod 'm1={"do": "garbage"}'
  mutation empty-patch Pod "m2=$(patch '[]')"
  # kube-apiserver makes an object of the other name.
  mutation renames Pod "m2=$(patch '[{"op": "replace", "path": "/metadata/name", "value": "other"}]')"
  in_e2e delete pod/other --ignore-not-found --wait=false --grace-period=0 --force >"$work/deleted" 2>&1 || true
  mutation not-a-pod Pod "m2=$(patch '[{"op": "replace", "path": "/kind", "value": "Service"}]')"
  in_protobuf protobuf
  in_protobuf protobuf-denied
  # A container that one adds has defaults for the next only where kube-apiserver decodes it in between.
  mutation defaults-between Pod "m2=$(patch "$sidecar")" \
    "m4=$(patch '[{"op": "copy", "from": "/spec/containers/1/imagePullPolicy", "path": "/metadata/labels/pulled"}]')"
  reinvoked
  # A dry run reaches hooks without side effects, is changed, and stored nowhere.
  mutant Pod dry "m2=$(patch "$label_a")" | in_e2e create --dry-run=server -o 'jsonpath={.metadata.labels}' --filename - \
    >"$work/mutated/$mutated/dry" 2>&1 || true
  in_e2e get pod dry >>"$work/mutated/$mutated/dry" 2>&1 || true
  # The third has effects, but not on a dry run.
  mutant Pod dry-effects "m3=$(patch "$label_a")" | in_e2e create --dry-run=server -o 'jsonpath={.metadata.labels}' \
    --filename - >"$work/mutated/$mutated/dry-effects" 2>&1 || true
}

# Something behind changes the object, and kube-apiserver asks those with IfNeeded once more.
reinvoked() {
  kubectl apply -f "$work/behind.yaml" >"$work/said" 2>&1 || broken "registering the hook behind"
  eventually "mutating: the hook behind is asked" behind_is_asked
  drained
  mutation reinvoked Pod "m1=$(patch '[{"op": "add", "path": "/metadata/labels/a", "value": "1"}]')" \
    "behind=$(patch '[{"op": "add", "path": "/metadata/labels/behind", "value": "1"}]')"
  note_calls reinvoked m1
  # One with Never, behind it: a call ahead of its turn belongs to the same review.
  echo "m2 was asked in $(grep '"hook":"m2"' "$work/asked" | grep -o '"request":{"uid":"[^"]*"' | sort -u | wc -l) reviews" \
    >"$work/mutated/$mutated/reinvoked-never"
  kubectl delete -f "$work/behind.yaml" >"$work/said" 2>&1 || broken "unregistering the hook behind"
  eventually "mutating: the hook behind is asked no more" behind_is_not_asked
}

behind_is_asked() {
  mutant Pod asks-behind "behind=$(patch '[{"op": "add", "path": "/metadata/labels/behind", "value": "1"}]')" |
    in_e2e create --dry-run=server -o 'jsonpath={.metadata.labels.behind}' --filename - 2>/dev/null | grep -qx 1
}

behind_is_not_asked() { ! behind_is_asked; }

changes_labels() {
  mutant Pod waits "m2=$(patch '[{"op": "add", "path": "/metadata/labels/a", "value": "1"}]')" |
    in_e2e create --dry-run=server -o 'jsonpath={.metadata.labels.a}' --filename - 2>/dev/null | grep -qx 1
}

changes_nothing() { ! changes_labels; }

# asked_by_gatepost: Gatepost before the hooks of the folder, registered as the documentation says.
asked_by_gatepost() {
  "$gatepost" register --kind mutating --form api --url "https://$front" --ca-file "$work/ca.crt" \
    --config "$work/folder-of-mutating" >"$work/gatepost.yaml" || broken "gatepost register --kind mutating"
  check "mutating: $mutated: the registration is right by check --against" \
    "$gatepost" check --against "$work/gatepost.yaml" "$work/folder-of-mutating"
  kubectl apply -f "$work/gatepost.yaml" >"$work/said" 2>&1 || broken "registering Gatepost"
  eventually "mutating: $mutated: asked by Gatepost, they change objects" changes_labels
}

asked_by_nobody() {
  kubectl delete -f "$work/gatepost.yaml" >"$work/said" 2>&1 || broken "unregistering Gatepost"
  eventually "mutating: $mutated: unregistered, they change nothing" changes_nothing
}

mutating() {
  echo "======== hooks that change objects, directly and behind Gatepost"
  local file
  start http1 "$work/hook" -http1 -cert "$work/hooks.crt" -key "$work/hooks.key" -record
  http1="$(told http1 'listening (.*)')"
  for file in mutating behind; do
    sed -e "s|@HOOKS@|$hooks|" -e "s|@HTTP1@|$http1|" -e "s|@CA@|$(base64 -w0 "$work/ca.crt")|" "config/$file.yaml" \
      >"$work/$file.yaml"
  done
  written_in_protobuf protobuf "m2=$(patch '[{"op": "add", "path": "/metadata/labels/a", "value": "1"}]')"
  written_in_protobuf protobuf-denied 'm4={"allowed": false, "status": {"code": 409, "reason": "Conflict"}}'
  mutated=direct
  kubectl apply -f "$work/mutating.yaml" >"$work/said" 2>&1 || broken "registering the hooks"
  eventually "mutating: asked by kube-apiserver, they change objects" changes_labels
  mutations
  kubectl delete -f "$work/mutating.yaml" >"$work/said" 2>&1 || broken "unregistering the hooks"
  eventually "mutating: asked by nobody, they change nothing" changes_nothing

  rm -rf "$work/folder-of-mutating"
  mkdir "$work/folder-of-mutating"
  cp "$work/mutating.yaml" "$work/folder-of-mutating/"
  start gatepost "$gatepost" serve --config "$work/folder-of-mutating" --listen 127.0.0.1:0 --admin 127.0.0.1:0 \
    --tls-cert "$work/gatepost.crt" --tls-key "$work/gatepost.key"
  told gatepost '(ready generation.*)' >/dev/null
  front="$(told gatepost 'listening tcp (.*)')"
  admin="$(told gatepost 'listening admin (.*)')"
  mutated=gatepost
  asked_by_gatepost
  mutations
  asked_by_nobody

  # The same hooks, each registered apart.
  sed -i 's|^  name: e2e-mutating$|&\n  annotations: {gatepost.dev/isolate: "true"}|' "$work/folder-of-mutating/mutating.yaml"
  mutated=isolated
  eventually "mutating: isolated: the configuration is in force" generation_is 2
  asked_by_gatepost
  check "mutating: isolated: each hook has an entry of its own" grep -q /mutate/segment/5/of/5 "$work/gatepost.yaml"
  mutations
  asked_by_nobody
  check "mutating: gatepost ends well when asked to" stop gatepost
  check "mutating: the hooks over HTTP/1.1 end well" stop http1

  for mutated in gatepost isolated; do
    for file in "$work"/mutated/direct/*; do
      # Listed, with why, in differences.md.
      case "$mutated/${file##*/}" in gatepost/defaults-between | gatepost/reinvoked-never | */renames | */not-a-pod) continue ;; esac
      check "mutating: ${file##*/} comes to the same, $mutated" diff "$file" "$work/mutated/$mutated/${file##*/}"
    done
  done
  check "mutating: a sidecar is there" grep -q registry.example/proxy:2 "$work/mutated/gatepost/sidecar"
  check "mutating: a hook sees what one before it made" grep -q '"a":"1"' "$work/mutated/gatepost/result-seen"
  check "mutating: a match condition leaves a hook out" \
    grep -qx '{"exempt":"1","mutate":"yes"}' "$work/mutated/direct/condition-excludes"
  check "mutating: by what a hook before it made, too" \
    grep -qx '{"exempt":"1","mutate":"yes"}' "$work/mutated/direct/condition-sees-change"
  check "mutating: a Pod in protobuf is changed" grep -q '"a":"1"' "$work/mutated/gatepost/protobuf"
  check "mutating: a hook behind has those before it asked again" grep -q 'm1 was asked 2 times' "$work/mutated/direct/reinvoked"
  check "mutating: one with Never is not asked again" grep -q 'm2 was asked in 1 reviews' "$work/mutated/direct/reinvoked-never"
  check "mutating: by Gatepost it is" grep -q 'm2 was asked in 2 reviews' "$work/mutated/gatepost/reinvoked-never"
  check "mutating: a hook that changes the object has one before it asked again" \
    grep -q 'm1 was asked 2 times' "$work/mutated/direct/reinvoke-if-needed"
  check "mutating: a hook without HTTP is a failed call" \
    grep -q InternalError "$work/mutated/direct/garbage-on-wire"
  check "mutating: a hook does not see what lost its label" \
    grep -qx '{"remove":"me"}' "$work/mutated/direct/second-hook-sees-mutated-labels-cr"
  check "mutating: kube-apiserver sets defaults between two hooks" grep -q '"pulled":"' "$work/mutated/direct/defaults-between"
  check "mutating: Gatepost does not" grep -q '"pulled":""' "$work/mutated/gatepost/defaults-between"
  check "mutating: what differs is said in the table" ends_with_mutating differences.md
  mutating_by_service
}

# mutations_by_service: some cases, noted in the folder of this way of asking.
mutations_by_service() {
  local label_a='[{"op": "add", "path": "/metadata/labels/a", "value": "1"}]'
  mkdir -p "$work/mutated/$mutated"
  mutation nothing Pod
  mutation both-change Pod "m1=$(patch "$label_a")" \
    "m2=$(patch '[{"op": "move", "from": "/metadata/labels/a", "path": "/metadata/labels/b"}]')"
  mutation denied Pod "m1=$(patch "$label_a")" 'm2={"allowed": false, "status": {"code": 409, "reason": "Conflict"}}'
  mutation breaks-off-refused Pod 'm2={"do": "close"}'
}

# Hooks that only their Service leads to, by its EndpointSlices: asked by kube-apiserver, and behind Gatepost.
mutating_by_service() {
  local reachable file
  echo "======== hooks that change objects and are named by a Service"
  reachable="$(reachable_address)" || {
    echo "################ NOT RUN: mutating, by a Service: this machine has no address but loopback"
    return
  }
  server_certificate "$work/changing" "$work/ca" /CN=changing DNS:changing.e2e.svc
  in_e2e create service clusterip changing --tcp 443:8443 --dry-run=client -o yaml |
    sed 's/name: 443-8443/name: https/' | kubectl apply --server-side --filename - >"$work/said" 2>&1 || broken "a Service for hooks"
  start changing "$work/hook" -listen "$reachable:0" -cert "$work/changing.crt" -key "$work/changing.key"
  endpoint e2e/changing changing "$(told changing 'listening (.*)')" true
  rm -rf "$work/folder-of-mutating"
  mkdir "$work/folder-of-mutating"
  sed "s|@CA@|$(base64 -w0 "$work/ca.crt")|" config/mutating-service.yaml >"$work/folder-of-mutating/service.yaml"

  mutated=service-direct
  kubectl apply -f "$work/folder-of-mutating/service.yaml" >"$work/said" 2>&1 || broken "registering the hooks"
  eventually "mutating: asked by kube-apiserver, hooks of a Service change objects" changes_labels
  mutations_by_service
  kubectl delete -f "$work/folder-of-mutating/service.yaml" >"$work/said" 2>&1 || broken "unregistering the hooks"
  eventually "mutating: asked by nobody, hooks of a Service change nothing" changes_nothing

  # No name server knows the Service.
  start gatepost "$gatepost" serve --config "$work/folder-of-mutating" --listen 127.0.0.1:0 --admin 127.0.0.1:0 \
    --tls-cert "$work/gatepost.crt" --tls-key "$work/gatepost.key" --namespaces-from "$work/cluster/kubeconfig" \
    --resolve-services endpoints
  told gatepost '(ready generation.*)' >/dev/null
  front="$(told gatepost 'listening tcp (.*)')"
  admin="$(told gatepost 'listening admin (.*)')"
  mutated=service
  asked_by_gatepost
  mutations_by_service
  check "mutating: the Service's endpoints are fresh" less_than gatepost_endpoints_age_seconds 60
  asked_by_nobody
  check "mutating: gatepost before hooks of a Service ends well" stop gatepost
  check "mutating: the hooks of a Service end well" stop changing
  for file in "$work"/mutated/service-direct/*; do
    check "mutating: ${file##*/} comes to the same, by a Service" diff "$file" "$work/mutated/service/${file##*/}"
  done
  check "mutating: a hook of a Service sees what one before it made" grep -q '"b":"1"' "$work/mutated/service/both-change"
  in_e2e delete service/changing endpointslice/changing >"$work/said" 2>&1 || broken "removing the Service"
}

# The whole table ends with the part about these hooks.
ends_with_mutating() { diff mutating.md <(tail -n "$(wc -l <mutating.md)" "$1"); }

generation_is() { (($(metric gatepost_config_generation) >= $1)); }
