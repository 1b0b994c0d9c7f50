# A Go server on k8s.io/apiserver that stores objects before they are initialized, by the plugin and the storage of
# go/admission: go/stored-apiserver over a real etcd, its users and their rights from kube-apiserver.

# fl KUBECTL...: kubectl before the server, in a namespace.
fl() {
  "$BIN/kubectl" --kubeconfig /dev/null --server "https://127.0.0.1:$flunder_port" --certificate-authority "$work/ca.crt" \
    --token "$(cat "$work/cluster/token")" --cache-dir "$work/flunder-cache" --namespace e2e "$@"
}

# a_flunder NAME [LABELS] [kubectl flags]: makes one.
a_flunder() {
  local name="$1" labels="${2:-}"
  shift $(($# < 2 ? $# : 2))
  fl create --validate=false --filename - "$@" <<JSON
{"apiVersion": "wardle.example.com/v1beta1", "kind": "Flunder", "metadata": {"name": "$name", "labels": {"made": "here"${labels:+, $labels}}},
 "spec": {"flunderReference": "x", "referenceType": "Flunder"}}
JSON
}

# flunders_request USER PATH [curl flags]: the curl command of a plain request, for all flunders or what the path says.
flunders_request() {
  request=(curl -sN -A e2e -w '\n%{http_code}\n' --cacert "$work/ca.crt" -H "Authorization: Bearer $(cat "$work/cluster/token")"
    -H "Impersonate-User: $1" "${@:3}" "https://127.0.0.1:$flunder_port/apis/wardle.example.com/v1beta1/namespaces/e2e/flunders$2")
}

# flunders_raw USER PATH [curl flags]: the body and the code of a plain request.
flunders_raw() {
  local request
  flunders_request "$@"
  "${request[@]}"
}

# flunders_watched NAME USER QUERY: appends what a watch sees to a file, beginning anew whenever it ends.
flunders_watched() {
  local request
  : >"$work/$1"
  flunders_request "$2" "?watch=1$3"
  (
    trap 'kill $! 2>/dev/null; exit' TERM
    while :; do
      "${request[@]}" >>"$work/$1" 2>/dev/null &
      wait $! || sleep 0.1
    done
  ) &
  process[$1]=$!
}

begin_flunder_server() {
  local tries wait
  for ((tries = 0; tries < 20; tries++)); do
    : "${flunder_port:=$((10000 + RANDOM % 22000))}"
    start stored-apiserver "$BIN/stored-apiserver-gatepost" --bind-address 127.0.0.1 --secure-port "$flunder_port" \
      --tls-cert-file "$work/flunders.crt" --tls-private-key-file "$work/flunders.key" --etcd-servers "$(cat "$work/cluster/etcd.url")" \
      --kubeconfig "$work/cluster/kubeconfig" --authentication-kubeconfig "$work/cluster/kubeconfig" \
      --authorization-kubeconfig "$work/cluster/kubeconfig" --admission-control-config-file "$work/stored-admission.yaml" "$@"
    for ((wait = 0; wait < 600; wait++)); do
      ! curl -fs --cacert "$work/ca.crt" "https://127.0.0.1:$flunder_port/readyz" >/dev/null 2>&1 || return 0
      kill -0 "${process[stored-apiserver]}" 2>/dev/null || break
      sleep 0.05
    done
    grep -q 'address already in use' "$work/stored-apiserver.log" || break
    flunder_port=""
  done
  broken "stored-apiserver does not get ready"
}

# begin_flunder_initializer NAME
begin_flunder_initializer() {
  STEPS="$work/steps" start "$1" "$work/initializer-program" -server "https://127.0.0.1:$flunder_port" -ca "$work/ca.crt" \
    -token "$(cat "$work/cluster/token")" -resource /apis/wardle.example.com/v1beta1/flunders \
    -annotation init.gatepost.dev/initializers -name "$1.e2e.gatepost.dev" -label "$1"
  told "$1" '(acting as .*)' >/dev/null
}

flunder_waits() { flunders_raw ann "/$1" | grep -qx 202; }
flunder_is_gone() { flunders_raw root "/$1?includeUninitialized=true" | grep -qx 404; }
flunder_is_there() { flunders_raw ann "/$1" | grep -qx 200; }
flunder_is_settled() { flunder_is_gone "$1" || flunder_is_there "$1"; }
no_flunder_waits() { ! flunders_raw root "?includeUninitialized=true" | grep -q '"init.gatepost.dev/initializers":"'; }
# What somebody without rights sees of a flunder by LIST, whatever is asked for: nothing.
flunder_is_hidden() { ! flunders_raw eve "?includeUninitialized=true" | grep -q "\"name\":\"$1\"" && ! fl get flunders -o name | grep -q "/$1\$"; }

# Whatever an ordinary watch, and a LIST at each kill, have seen was complete.
flunders_seen_are_finished() {
  ! grep -e '"init.gatepost.dev/initializers":"' -e '"refuse"' "$work/flunders-seen" &&
    ! grep '"type":' "$work/flunders-seen" | grep -v '"creator":"[^"]*","made":"here","one":"1","two":"1"'
}

stored_by_plugin() {
  echo "======== stored by the plugin: a Go server stores flunders before they are initialized"
  local name="plugin stores" finished
  PLUGIN=stored kube/get.sh "$BIN" >"$work/plugin-build.log" 2>&1 || broken "building the server that stores flunders"
  go build -o "$work/initializer-program" ./initializer || broken "the initializer does not build"
  server_certificate "$work/flunders" "$work/ca" /CN=flunders IP:127.0.0.1
  kubectl apply --filename - >"$work/said" 2>&1 <<'YAML' || broken "rights for flunders"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: flunders}
rules: [{apiGroups: [wardle.example.com], resources: [flunders], verbs: ["*"]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: flunders}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: flunders}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: "system:authenticated"}]
YAML
  start finished "$gatepost" hook --listen 127.0.0.1:0 --deny-if /metadata/labels/finished=no
  finished="$(told finished 'listening (grpc://.*)')"
  rm -rf "$work/folder" "$work/steps"
  mkdir "$work/folder" "$work/steps"
  sed "s|@HOOK@|$finished|" config/stored-plugin.yaml | put stored-plugin.yaml
  plugin_configuration Fail "$work/stored-admission.yaml"
  flunder_port=""
  begin_gatepost_of_plugin keeper
  begin_flunder_server
  begin_flunder_initializer one
  begin_flunder_initializer two
  flunders_watched flunders-seen ann ""
  flunders_watched flunders-all root "&includeUninitialized=true"

  flunder_life
  flunder_held
  flunder_kills
  flunders_unplugged
  check "$name: an ordinary watch never saw an object that was not finished" flunders_seen_are_finished
  check "$name: and it saw the finished ones" grep -q '"name":"success"' "$work/flunders-seen"
  check "$name: no object is left unfinished" look no_flunder_waits
  fl delete flunders --all --wait=false >"$work/said" 2>&1 || broken "deleting flunders"
  check "$name: gatepost ends well when asked to" stop keeper
  # It waits for those who watch.
  for finished in one two finished flunders-seen flunders-all; do stop "$finished" || true; done
  check "$name: so does the server" stop stored-apiserver
}

flunder_life() {
  allows "$name: the creator gets its answer when all have acted" a_flunder success "" --as ann
  prints "$name: each has done its part, the built-in one for the creator" '"1" "ann" "1"' \
    fl get flunder success -o 'jsonpath="{.metadata.labels.one}" "{.metadata.labels.creator}" "{.metadata.labels.two}"'
  check "$name: nothing is left of the list" eval '! fl get flunder success -o json | grep "init.gatepost.dev/initializers\": "'
  check "$name: the list was worked off in order" eval \
    'grep "\"name\":\"success\"" "$work/flunders-all" | head -n 1 | grep -q "one.e2e.*built-in.e2e.*two.e2e"'
  refuses "$name: an initializer refuses: the creator gets its Status" 'Error from server (Forbidden)' a_flunder failure '"refuse": "two"'
  refuses "$name: in its words" 'refused by two' a_flunder failure '"refuse": "two"'
  check "$name: the object is gone" look flunder_is_gone failure
  check "$name: who watches all has seen the result, and the deletion" look eval \
    'grep "\"name\":\"failure\"" "$work/flunders-all" | grep "refused by two" | grep -q "\"MODIFIED\"" && grep "\"name\":\"failure\"" "$work/flunders-all" | grep -q "\"DELETED\""'
  check "$name: nobody else has seen anything" eval '! grep -q "\"name\":\"failure\"" "$work/flunders-seen"'
  refuses "$name: a hook that is asked about the finished object refuses" 'finished.e2e.gatepost.dev" denied the request' a_flunder unwanted '"finished": "no"'
  check "$name: so it is gone" look flunder_is_gone unwanted
  allows "$name: an initializer that fails open is left out after its time" a_flunder open '"also": "open"'
  refuses "$name: one that must act is not" 'closed.e2e.gatepost.dev' a_flunder closed '"also": "closed"'
  check "$name: and the object is gone" look flunder_is_gone closed
  prints "$name: who may initialize makes one with an empty list" '"name":"bare"' flunders_raw root "" -X POST -H 'Content-Type: application/json' -d \
    '{"apiVersion": "wardle.example.com/v1beta1", "kind": "Flunder", "metadata": {"name": "bare", "labels": {"creator": "root", "made": "here", "one": "1", "two": "1"}, "annotations": {"init.gatepost.dev/initializers": "{}"}}, "spec": {"flunderReference": "x", "referenceType": "Flunder"}}'
  prints "$name: others may not" '"reason":"Forbidden"' flunders_raw eve "" -X POST -H 'Content-Type: application/json' -d \
    '{"apiVersion": "wardle.example.com/v1beta1", "kind": "Flunder", "metadata": {"name": "sly", "annotations": {"init.gatepost.dev/initializers": "{}"}}, "spec": {"flunderReference": "x", "referenceType": "Flunder"}}'
  prints "$name: nor hide one that is finished" '"reason":"' flunders_raw eve /success -X PATCH -H 'Content-Type: application/merge-patch+json' \
    -d '{"metadata": {"annotations": {"init.gatepost.dev/initializers": "{\"pending\": [{\"name\": \"one.e2e.gatepost.dev\"}]}"}}}'
  prints "$name: nor by a list that is none" '"reason":"Invalid"' flunders_raw eve /success -X PATCH -H 'Content-Type: application/merge-patch+json' \
    -d '{"metadata": {"annotations": {"init.gatepost.dev/initializers": "null"}}}'
  check "$name: which stays as it is" flunder_is_there success
}

flunder_held() {
  local creator
  kill -STOP "${process[two]}"
  a_flunder held >"$work/held" 2>&1 &
  creator=$!
  check "$name: held: the object is stored" look flunder_waits held
  refuses "$name: held: GET says that it is on its way" 'Error from server (Initializing)' fl get flunder held
  prints "$name: held: with the resource version" '"resourceVersion":"' flunders_raw ann /held
  check "$name: held: LIST does not show it, and who may not see it cannot ask for it" flunder_is_hidden held
  check "$name: held: DELETECOLLECTION does not show it either" eval 'flunders_raw eve "?dryRun=All" -X DELETE >"$work/said" &&
    grep -q "\"kind\":\"FlunderList\"" "$work/said" && ! grep -q "\"name\":\"held\"" "$work/said"'
  prints "$name: held: who may asks for all" '"name":"held"' flunders_raw root "?includeUninitialized=true"
  prints "$name: held: or for it" '"name":"held"' flunders_raw root "/held?includeUninitialized=true"
  refuses "$name: held: the name is taken" 'AlreadyExists' a_flunder held
  prints "$name: held: who may not initialize changes nothing" '"reason":"Forbidden"' flunders_raw eve /held \
    -X PATCH -H 'Content-Type: application/merge-patch+json' -d '{"metadata": {"labels": {"x": "y"}}}'
  prints "$name: held: nor finishes it" '"reason":"Forbidden"' flunders_raw eve /held \
    -X PATCH -H 'Content-Type: application/merge-patch+json' -d '{"metadata": {"annotations": null}}'
  check "$name: held: its creator waits" kill -0 "$creator"
  killed keeper
  check "$name: held: without Gatepost nobody sees it" flunder_is_hidden held
  check "$name: held: not even who may" eval '! flunders_raw root "?includeUninitialized=true" | grep "\"name\":\"held\""'
  prints "$name: held: nor changes it" 'failed calling Gatepost' flunders_raw root /held \
    -X PATCH -H 'Content-Type: application/merge-patch+json' -d '{"metadata": {"annotations": null}}'
  begin_gatepost_of_plugin keeper
  kill -CONT "${process[two]}"
  check "$name: held: with another Gatepost it is finished, and its creator gets its answer" wait "$creator"
  check "$name: held: and all see it" flunder_is_there held

  kill -STOP "${process[two]}"
  a_flunder dropped >"$work/held" 2>&1 &
  creator=$!
  check "$name: held: another one is stored" look flunder_waits dropped
  allows "$name: held: anybody may delete it" fl delete flunder dropped --cascade=foreground --wait=false
  check "$name: held: and its creator is told" eval '! wait '"$creator"' && grep "deleted while it was initialized" "$work/held"'
  kill -CONT "${process[two]}"
}

# Each part is killed at each step of its life.
flunder_kills() {
  local victim step count=0
  for victim in keeper one two keeper stored-apiserver; do
    for step in one-begun one-done two-begun two-done; do
      flunder_kill "$victim" "$step" "" $((count += 1))
    done
  done
  for victim in keeper stored-apiserver; do
    for step in one-begun one-done; do
      flunder_kill "$victim" "$step" '"refuse": "one"' $((count += 1))
    done
  done
}

# flunder_kill VICTIM STEP LABELS NUMBER
flunder_kill() {
  local victim="$1" step="$2" labels="$3" flunder="kill-$4" what="$1 killed at $2${3:+ of a failure}" creator
  rm -f "$work/steps"/*
  touch "$work/steps/$step"
  a_flunder "$flunder" "$labels" --request-timeout=100s >"$work/$flunder" 2>&1 &
  creator=$!
  if ! look has_reached "$step"; then
    said "$name: $what: the step is reached" 1
    return
  fi
  killed "$victim"
  [[ "$victim" == stored-apiserver ]] || flunders_raw ann "" >>"$work/flunders-seen"
  rm -f "$work/steps"/*
  case "$victim" in
  keeper) begin_gatepost_of_plugin keeper ;;
  stored-apiserver) begin_flunder_server ;;
  one | two) begin_flunder_initializer "$victim" ;;
  esac
  check "$name: $what: the object is finished, or gone" look flunder_is_settled "$flunder"
  wait "$creator" || true
  if [[ -n "$labels" ]]; then
    check "$name: $what: it is not there" look flunder_is_gone "$flunder"
  elif grep -q created "$work/$flunder"; then
    check "$name: $what: and what was answered as made is there" flunder_is_there "$flunder"
  fi
}

# The plugin switched off: what is hidden stays so, and nobody can hide anything.
flunders_unplugged() {
  local creator
  kill -STOP "${process[two]}"
  a_flunder waiting >"$work/held" 2>&1 &
  creator=$!
  check "$name: switched off: an object is stored before" look flunder_waits waiting
  killed stored-apiserver
  wait "$creator" || true
  begin_flunder_server --disable-admission-plugins=Gatepost
  check "$name: switched off: it stays hidden" flunder_is_hidden waiting
  prints "$name: switched off: and as it is" 'is switched off' flunders_raw root /waiting -X PATCH \
    -H 'Content-Type: application/merge-patch+json' -d '{"metadata": {"annotations": null}}'
  allows "$name: switched off: it can be deleted" fl delete flunder waiting --wait=false
  killed stored-apiserver
  begin_flunder_server
  kill -CONT "${process[two]}"
}
