# Objects that an apiserver stores before they are initialized: examples/apiserver over a real etcd, with kubectl. Both
# drawings of the proposal, and every step of them at which the apiserver, Gatepost or an initializer is killed.

# k KUBECTL...: kubectl before the example apiserver.
k() { "$BIN/kubectl" --kubeconfig /dev/null --server "http://$stored" --cache-dir "$work/kube-cache" "$@"; }

in_shop() { k --namespace shop "$@"; }

# a_pod NAME [LABELS] [kubectl flags]: makes a Pod.
a_pod() {
  local name="$1" labels="${2:-}"
  shift $(($# < 2 ? $# : 2))
  in_shop create --validate=false --filename - "$@" <<JSON
{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "$name", "labels": {"made": "here"${labels:+, $labels}}},
 "spec": {"containers": [{"name": "main", "image": "app:1", "resources": {"requests": {"cpu": "100m"}}}]}}
JSON
}

# a_namespace NAME: makes a Namespace. As JSON: `kubectl create namespace` sends protobuf, which the example does not read.
a_namespace() {
  k create --validate=false --filename - <<<"{\"apiVersion\": \"v1\", \"kind\": \"Namespace\", \"metadata\": {\"name\": \"$1\"}}"
}

# raw PATH [curl flags]: the code and the body of a plain request.
raw() {
  local path="$1"
  shift
  curl -s -w '\n%{http_code}\n' "$@" "http://$stored$path"
}

# begin_sidecar [NAME]: another replica where a name is given. The variable of that name has its address.
begin_sidecar() {
  local at="${1:-sidecar}"
  local -n address="$at"
  start "$at" "$gatepost" serve --config "$work/stored" --plaintext --listen "${address:-127.0.0.1:0}" --admin 127.0.0.1:0
  told "$at" '(ready generation.*)' >/dev/null
  address="$(told "$at" 'listening tcp (.*)')"
}

begin_apiserver() {
  STEPS="$work/steps" start apiserver "$example" --listen "${stored:-127.0.0.1:0}" --etcd "$etcd" --gatepost "http://$sidecar" \
    ${second:+--gatepost "http://$second"}
  stored="$(told apiserver 'listening (.*)')"
}

begin_initializer() {
  STEPS="$work/steps" start "$1" "$work/initializer-program" -server "http://$stored" -name "$1.e2e.gatepost.dev" -label "$1"
  told "$1" '(acting as .*)' >/dev/null
}

begin_stored_etcd() {
  local tries port
  for ((tries = 0; tries < 50; tries++)); do
    port=$((10000 + RANDOM % 22000))
    etcd="127.0.0.1:$port"
    start stored-etcd "$BIN/etcd" --data-dir "$work/stored-etcd" --unsafe-no-fsync --log-level error \
      --listen-client-urls "http://$etcd" --advertise-client-urls "http://$etcd" \
      --listen-peer-urls http://127.0.0.1:0
    for ((wait = 0; wait < 100; wait++)); do
      ! curl -fs "http://$etcd/health" >/dev/null || return 0
      kill -0 "${process[stored-etcd]}" 2>/dev/null || break
      sleep 0.1
    done
  done
  broken "etcd does not start"
}

# look COMMAND...: until it succeeds, two minutes at most.
look() {
  local tries
  for ((tries = 0; tries < 1200; tries++)); do
    ! "$@" >/dev/null 2>&1 || return 0
    sleep 0.1
  done
  return 1
}

is_waiting() { raw "/api/v1/namespaces/shop/pods/$1" | grep -qx 202; }

is_gone() { raw "/api/v1/namespaces/shop/pods/$1?includeUninitialized=true" -H 'Impersonate-User: root' | grep -qx 404; }

is_initialized() { raw "/api/v1/namespaces/shop/pods/$1" | grep -qx 200; }

is_settled() { is_gone "$1" || is_initialized "$1"; }

has_reached() { [[ -e "$work/steps/$1.reached" ]]; }

# all_finished: whatever an ordinary watch has seen of Pods was complete.
all_finished() {
  ! grep -v -e '"one":"1"' "$work/ordinary" && ! grep -v -e '"two":"1"' "$work/ordinary" && ! grep initializers "$work/ordinary" &&
    ! grep -v -e '"creator":"' "$work/ordinary"
}

# watched NAME PATH [curl flags]: appends what a watch sees to a file, beginning anew whenever it ends.
watched() {
  local name="$1" path="$2"
  shift 2
  : >"$work/$name"
  (while :; do
    curl -sN "$@" "http://$stored$path" >>"$work/$name" 2>/dev/null || true
    sleep 0.1
  done) &
  process[$name]=$!
}

stored() {
  echo "======== stored: objects are stored before they are initialized"
  local name=stored
  go build -o "$work/initializer-program" ./initializer || broken "the initializer does not build"
  (cd ../.. && cargo build --quiet --locked --example apiserver) || broken "examples/apiserver does not build"
  # A copy, as somebody else may build it anew meanwhile.
  example="$work/example-apiserver"
  cp "$(cd ../.. && realpath "${CARGO_TARGET_DIR:-target}")/debug/examples/apiserver" "$example"
  mkdir -p "$work/stored" "$work/steps"
  cp config/stored.yaml "$work/stored/"
  stored="" sidecar="" second=""
  begin_stored_etcd
  begin_sidecar
  begin_apiserver
  begin_initializer one
  begin_initializer two
  watched ordinary "/api/v1/pods?watch=1&labelSelector=made%3Dhere"
  watched all "/api/v1/pods?watch=1&labelSelector=made%3Dhere&includeUninitialized=true" -H 'Impersonate-User: root'
  drawings
  waiting
  timers
  kubectl_works
  quota_is_charged
  crashes
  two_replicas
  check "$name: an ordinary watch never saw an object that was not finished" all_finished
  check "$name: and it saw the finished ones" grep -q '"name":"success"' "$work/ordinary"
  check "$name: gatepost ends well when asked to" stop sidecar
  check "$name: so does the other replica" stop second
  killed one
  killed two
}

drawings() {
  allows "$name: namespaces can be made" a_namespace shop
  allows "$name: success: the creator gets its answer when both have acted" a_pod success
  prints "$name: success: each has done its part, the built-in one in between, for the creator" '"1" "ann" "1"' \
    eval 'a_pod by-ann "" --as ann >/dev/null && in_shop get pod by-ann -o jsonpath="\"{.metadata.labels.one}\" \"{.metadata.labels.creator}\" \"{.metadata.labels.two}\""'
  check "$name: success: the list was worked off in order" eval \
    'grep "\"name\":\"success\"" "$work/all" | head -n 1 | grep -q "one.e2e.*built-in.e2e.*two.e2e"'
  refuses "$name: failure: the creator gets the initializer's Status" 'Error from server (Forbidden)' a_pod failure '"refuse": "two"'
  refuses "$name: failure: in its words" 'refused by two' a_pod failure '"refuse": "two"'
  check "$name: failure: the object is gone" look is_gone failure
  check "$name: failure: who watches all has seen the result, and the deletion" look eval \
    'grep "\"name\":\"failure\"" "$work/all" | grep "refused by two" | grep -q "\"MODIFIED\"" && grep "\"name\":\"failure\"" "$work/all" | grep -q "\"DELETED\""'
  check "$name: failure: nobody else has seen anything" eval '! grep -q "\"name\":\"failure\"" "$work/ordinary"'
}

waiting() {
  kill -STOP "${process[two]}"
  a_pod held >"$work/held" 2>&1 &
  local creator=$!
  check "$name: held: the object is stored" look is_waiting held
  refuses "$name: held: GET says that it is on its way" 'Error from server (Initializing)' in_shop get pod held
  prints "$name: held: with the resource version" '"resourceVersion":"' raw /api/v1/namespaces/shop/pods/held
  check "$name: held: LIST does not show it" eval '! in_shop get pods -o name | grep -q held'
  prints "$name: held: who may asks for all" '"name":"held"' raw "/api/v1/namespaces/shop/pods?includeUninitialized=true" -H 'Impersonate-User: root'
  check "$name: held: who may not does not get it" eval '! raw "/api/v1/namespaces/shop/pods?includeUninitialized=true" -H "Impersonate-User: eve" | grep -q "\"name\":\"held\""'
  refuses "$name: held: the name is taken" 'AlreadyExists' a_pod held
  prints "$name: held: who may not initialize changes nothing" '"reason":"Forbidden"' raw /api/v1/namespaces/shop/pods/held \
    -X PATCH -H 'Content-Type: application/merge-patch+json' -H 'Impersonate-User: eve' -d '{"metadata": {"labels": {"x": "y"}}}'
  check "$name: held: the creator waits" kill -0 "$creator"
  allows "$name: held: anybody may delete it" in_shop delete pod held --wait=false
  check "$name: held: and its creator is told" eval '! wait '"$creator"
  kill -CONT "${process[two]}"
}

timers() {
  allows "$name: timer: one that fails open is left out after its time" a_pod open '"also": "open"'
  refuses "$name: timer: one that must act is not" '504' eval 'a_pod closed "\"also\": \"closed\"" -v=6'
  check "$name: timer: and the object is gone" look is_gone closed
}

kubectl_works() {
  settings() {
    in_shop apply --validate=false -f - <<<"{\"apiVersion\": \"v1\", \"kind\": \"ConfigMap\", \"metadata\": {\"name\": \"settings\"}, \"data\": {\"a\": \"$1\"}}"
  }
  generated() {
    in_shop create --validate=false -f - <<<'{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "some-"}}'
  }
  prints "$name: kubectl apply makes an object" created settings 1
  prints "$name: kubectl apply changes it" configured settings 2
  prints "$name: kubectl apply leaves it" unchanged settings 2
  prints "$name: kubectl get has it" '"2"' in_shop get configmap settings -o 'jsonpath="{.data.a}"'
  allows "$name: kubectl create with generateName" generated
  prints "$name: optimistic locking" 'modified' eval 'raw /api/v1/namespaces/shop/configmaps/settings -X PUT -d "{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"settings\",\"resourceVersion\":\"1\"}}"'
  check "$name: kubectl get --watch" eval 'timeout 5 "$BIN/kubectl" --kubeconfig /dev/null --server "http://$stored" -n shop get configmaps --watch -o name >"$work/watching"; grep -q settings "$work/watching"'
  prints "$name: kubectl delete waits until it is gone" deleted in_shop delete configmap settings --timeout=30s
}

quota_is_charged() {
  limits() {
    k -n "$1" create --validate=false -f - <<<"{\"apiVersion\": \"v1\", \"kind\": \"ResourceQuota\", \"metadata\": {\"name\": \"limits\"}, \"spec\": {\"hard\": {$2}}}"
  }
  in_namespace() { a_pod "$2" '' --dry-run=client -o json | sed "s/\"namespace\": \"shop\"/\"namespace\": \"$1\"/" | k create --validate=false -f -; }
  { a_namespace few && a_namespace little; } >"$work/said" 2>&1 || broken "namespaces"
  { limits few '"count/pods": 1' && limits little '"requests.cpu": "150m"'; } >"$work/said" 2>&1 || broken "quotas"
  kill -STOP "${process[two]}"
  in_namespace few first >"$work/first" 2>&1 &
  local creator=$!
  look eval 'raw /api/v1/namespaces/few/pods/first | grep -qx 202' || broken "the first Pod"
  refuses "$name: quota: the number counts before an object is initialized" 'exceeded quota: count/pods' in_namespace few second
  kill -CONT "${process[two]}"
  check "$name: quota: the first one is made" wait "$creator"
  allows "$name: quota: all else counts at completion" in_namespace little first
  refuses "$name: quota: and refuses there" 'exceeded quota: requests.cpu' in_namespace little second
  allows "$name: quota: deleting gives back" eval 'k -n little delete pod first --timeout=30s && in_namespace little second'
}

# crashes: each of the three is killed at each step.
crashes() {
  local victim step count=0
  for victim in apiserver sidecar one; do
    for step in create-begun create-reviewed create-stored create-released initializer-begun initializer-done update-reviewed \
      update-stored; do
      crash "$victim" "$step" "" $((count += 1))
    done
    for step in initializer-begun initializer-done update-reviewed update-stored delete-begun create-released; do
      crash "$victim" "$step" '"refuse": "one"' $((count += 1))
    done
  done
  # The last one, whose update makes the object visible, or fails it when others have acted.
  for step in two-begun two-done; do
    crash two "$step" "" $((count += 1))
    crash two "$step" '"refuse": "two"' $((count += 1))
  done
  crash two delete-begun '"refuse": "two"' $((count += 1))
}

# two_replicas: the apiserver has two of Gatepost, and each in its turn is killed while it is in use.
two_replicas() {
  local victim creator
  begin_sidecar second
  killed apiserver
  begin_apiserver
  for victim in sidecar second; do
    kill -STOP "${process[two]}"
    a_pod "without-$victim" '' --request-timeout=100s >"$work/without" 2>&1 &
    creator=$!
    check "$name: two replicas: a Pod is held" look is_waiting "without-$victim"
    killed "$victim"
    kill -CONT "${process[two]}"
    check "$name: two replicas: without $victim the creator gets its answer from the other" wait "$creator"
    check "$name: two replicas: and the Pod is there" is_initialized "without-$victim"
    allows "$name: two replicas: another one is made by the other alone" a_pod "after-$victim"
    begin_sidecar "$victim"
  done
}

# crash VICTIM STEP LABELS NUMBER
crash() {
  local victim="$1" step="$2" labels="$3" pod="crash-$4" what="$1 killed at $2${3:+ of a failure}" creator
  rm -f "$work/steps"/*
  touch "$work/steps/$step"
  a_pod "$pod" "$labels" --request-timeout=100s >"$work/$pod" 2>&1 &
  creator=$!
  if ! look has_reached "$step"; then
    said "$name: $what: the step is reached" 1
    return
  fi
  killed "$victim"
  rm -f "$work/steps"/*
  case "$victim" in
  apiserver) begin_apiserver ;;
  sidecar) begin_sidecar ;;
  one | two) begin_initializer "$victim" ;;
  esac
  check "$name: $what: the object is initialized, or gone" look is_settled "$pod"
  check "$name: $what: its creator is answered" eval "look eval '! kill -0 $creator'"
  wait "$creator" || true
  if [[ -n "$labels" ]]; then
    check "$name: $what: it is not there" look is_gone "$pod"
  elif grep -q created "$work/$pod"; then
    check "$name: $what: and what was answered as made is there" is_initialized "$pod"
  fi
}
