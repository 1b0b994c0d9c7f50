# Abilities of Gatepost alone: hooks that speak something else than kube-apiserver does, and a configuration that changes
# while requests run, of which none may come to anything else than it should.

# eventually NAME COMMAND...: within fifteen seconds the command succeeds.
eventually() {
  local name="$1" tries code=1
  shift
  for ((tries = 0; tries < 75; tries++)); do
    if "$@" >"$work/said" 2>&1; then code=0 && break; fi
    sleep 0.2
  done
  said "$name" "$code"
}

# metric NAME: its value, summed over its labels; 0 where it does not exist.
metric() { curl -fsS "http://$admin/metrics" | awk -v name="$1" '$1 == name || index($1, name "{") == 1 { sum += $2 } END { print sum + 0 }'; }

metric_is() { [[ "$(metric "$1")" == "$2" ]]; }

# asking LABEL VALUE [SCRIPT]: a config map that hooks ask about by this label; a dry run.
asking() {
  echo "{\"apiVersion\": \"v1\", \"kind\": \"ConfigMap\", \"metadata\": {\"name\": \"asking\", \"labels\": {\"$1\": \"$2\"}, \"annotations\": {$(annotation "${3:-}")}}}" |
    in_e2e create --dry-run=server --filename -
}

refused_for() {
  local text="$1"
  shift
  ! "$@" >"$work/refused" 2>&1 && grep -qF -- "$text" "$work/refused"
}

# own NAME CLIENT [MORE]: a configuration in Gatepost's own words with one hook, asked about config maps with this label.
own() {
  cat <<YAML
apiVersion: gatepost.dev/v1alpha1
kind: AdmissionControlConfiguration
metadata: {name: $1}
externalAdmissionHooks:
- name: $1.e2e.gatepost.dev
  clientConfig: $2
  rules: [{operations: [CREATE], apiGroups: [""], apiVersions: [v1], resources: [configmaps]}]
  objectSelector: {matchExpressions: [{key: $1, operator: Exists}]}
  timeout: 5s
  sideEffects: None
  ${3:-}
YAML
}

# put FILE: from stdin into Gatepost's folder, whole at once.
put() {
  cat >"$work/put"
  mv "$work/put" "$work/folder/$1"
}

changes() {
  local pressing grpc code=0
  "$work/replay-program" press -cluster "$work/cluster" >"$work/press.out" 2>&1 &
  pressing=$!
  process[press]=$pressing

  start grpc "$gatepost" hook --listen 127.0.0.1:0 --deny-if /metadata/labels/grpc=no --warn 'gRPC was here'
  grpc="$(told grpc 'listening (grpc://.*)')"
  own grpc "{url: \"$grpc\"}" | put grpc.yaml
  eventually "$mode: a gRPC hook is added, and refuses" refused_for 'grpc.e2e.gatepost.dev' asking grpc no
  prints "$mode: a gRPC hook allows, with a warning" 'Warning: gRPC was here' asking grpc yes

  own legacy "{url: \"https://$hooks/legacy/legacy\", caBundle: \"$(base64 -w0 "$work/ca.crt")\"}" 'protocol: legacy' | put legacy.yaml
  eventually "$mode: a hook of the first proposal is added, and refuses" refused_for 'as in old times' \
    asking legacy any 'legacy={"allowed": false, "status": {"code": 403, "message": "as in old times"}}'
  allows "$mode: a hook of the first proposal allows" asking legacy any

  own binary "{url: \"https://$hooks/nowhere\", caBundle: \"$(base64 -w0 "$work/ca.crt")\"}" 'protocol: protobuf' | put binary.yaml
  eventually "$mode: a hook that is at no such path is added, and what it concerns fails" refused_for 'binary.e2e.gatepost.dev' asking binary any
  rm "$work/folder/binary.yaml"
  eventually "$mode: it is removed, and nothing fails" asking binary any

  printf '\x00\xff: [this is {no YAML' | put broken.yaml
  eventually "$mode: a broken file is noticed" metric_is gatepost_config_rejected 1
  refuses "$mode: hooks are asked as before it" 'grpc.e2e.gatepost.dev' asking grpc no
  prints "$mode: and allow as before it" 'Warning: gRPC was here' asking grpc yes
  rm "$work/folder/broken.yaml"
  eventually "$mode: the broken file is gone, and so is the complaint" metric_is gatepost_config_rejected 0

  rm "$work/folder/grpc.yaml"
  eventually "$mode: the gRPC hook is removed, and not asked" asking grpc no
  stop grpc || true

  kill "$pressing"
  wait "$pressing" || code=$?
  unset 'process[press]'
  cp "$work/press.out" "$work/said"
  said "$mode: while all that happened, $(tail -n 1 "$work/press.out")" "$code"
}
