# Initializers: new Pods are prepared while their CREATE is held, by built-in initializers and by the processes of
# examples/initializers/go. No client ever sees one that is not finished.

digest='registry.example/app@sha256:0000000000000000000000000000000000000000000000000000000000000001'

# prepared NAME [LABELS] [IMAGE] [ANNOTATIONS] [kubectl flags]: makes a Pod.
prepared() {
  local name="$1" labels="${2:-}" image="${3:-registry.example/app:1}" annotations="${4:-}"
  shift $(($# < 4 ? $# : 4))
  in_e2e create --filename - "$@" <<JSON
{"apiVersion": "v1", "kind": "Pod",
 "metadata": {"name": "$name", "labels": {"initialized": "yes"${labels:+, $labels}}, "annotations": {$annotations}},
 "spec": {"containers": [{"name": "main", "image": "$image"}]}}
JSON
}

# looks NAME: containers with their images and variables.
looks() {
  in_e2e get pod "$1" -o jsonpath='{range .spec.containers[*]}{.name} {.image} {.env[*].name}={.env[*].value};{end}'
}

# acts NAME: a process of examples/initializers/go claims the name.
acts() {
  TOKEN=sesame start "$1" "$work/initializer" -to "$front" -ca "$work/ca.crt" -name "$1.e2e.gatepost.dev" "registry.example/app:1=$digest"
}

# begin_initializing: Gatepost, where it was before.
begin_initializing() {
  start gatepost "$gatepost" serve --config "$work/folder" --namespaces-from "$work/cluster/kubeconfig" \
    --listen "${front:-127.0.0.1:0}" --admin 127.0.0.1:0 --tls-cert "$work/gatepost.crt" --tls-key "$work/gatepost.key"
  told gatepost '(ready generation.*)' >/dev/null
  front="$(told gatepost 'listening tcp (.*)')"
  admin="$(told gatepost 'listening admin (.*)')"
}

holds() { [[ "$(metric "gatepost_initializer_holds{initializer=\"$1.e2e.gatepost.dev\"}")" == 1 ]]; }

instances() { metric "gatepost_initializer_instances{initializer=\"$1.e2e.gatepost.dev\"}"; }

is_attached() { [[ "$(instances "$1")" == 1 ]]; }

is_prepared() { prepared probe '' '' '' --dry-run=server -o jsonpath='{.spec.containers[*].name}' 2>/dev/null | grep -q proxy; }

is_not_prepared() { prepared probe '' '' '' --dry-run=server -o jsonpath='{.spec.containers[*].name}' 2>/dev/null | grep -qx main; }

initializers() {
  echo "======== initializers: new Pods are prepared while they are held"
  local name=initializers token creator
  (cd ../../examples/initializers/go && go build -o "$work/initializer" .) >"$work/go.log" 2>&1 || broken "the initializer does not build"
  token="$(printf sesame | sha256sum | cut -d ' ' -f 1)"
  rm -rf "$work/folder"
  mkdir "$work/folder"
  sed "s/@TOKEN@/$token/" config/initializers.yaml >"$work/folder/initializers.yaml"
  unset front
  begin_initializing
  "$gatepost" register --kind mutating --form api --url "https://$front" --ca-file "$work/ca.crt" --config "$work/folder" \
    >"$work/gatepost.yaml" || broken "gatepost register --kind mutating"
  check "$name: the registration is right by check --against" "$gatepost" check --against "$work/gatepost.yaml" "$work/folder"
  kubectl apply -f "$work/gatepost.yaml" >"$work/said" 2>&1 || broken "registering Gatepost"
  acts digest
  eventually "$name: a process attaches with its token" is_attached digest
  eventually "$name: new Pods are prepared" is_prepared

  # Each of these Pods that it sees has to be finished.
  start watching "$BIN/kubectl" --kubeconfig "$work/cluster/kubeconfig" --namespace e2e get pods --selector initialized=yes --watch \
    -o jsonpath='{.metadata.name} {.spec.containers[*].name} {.spec.containers[*].image} {.spec.containers[0].env[*].name}{"\n"}'

  allows "$name: a Pod is made" prepared three
  prints "$name: it has a container, a variable and a digest, each from one initializer" \
    "main $digest NAMESPACE=e2e;proxy registry.example/proxy@sha256:0000000000000000000000000000000000000000000000000000000000000002 NAMESPACE=e2e;" looks three
  prints "$name: a dry run is prepared as well" "$digest" prepared dry '' '' '' --dry-run=server -o jsonpath='{.spec.containers[0].image}'
  prints "$name: and leaves nothing" 'pods "dry" not found' not in_e2e get pod dry

  prints "$name: one that is down and fails open is passed over, and kubectl says so" \
    'Warning: initializer "down.e2e.gatepost.dev"' prepared open '"also": "down"'
  prints "$name: the others have acted" "$digest" looks open

  refuses "$name: a name that is there is taken" 'already exists' prepared three
  charged
  refuses "$name: one refuses a Pod, in its own words" 'no digest is known of image "registry.example/other:1"' \
    prepared rejected '' registry.example/other:1
  refuses "$name: by its own code and reason" 'Error from server (Forbidden)' prepared rejected '' registry.example/other:1
  prints "$name: the Pod is not there" 'pods "rejected" not found' not in_e2e get pod rejected

  acts slow
  eventually "$name: another process attaches" is_attached slow
  allows "$name: a Pod waits for both" prepared both '"also": "slow"'
  kill -STOP "${process[slow]}"
  refuses "$name: one that hangs times out closed, and says that nothing was created" 'the object was not created' \
    prepared late '"also": "slow"'
  refuses "$name: with the code that clients know" 'Timeout' prepared late '"also": "slow"'
  prints "$name: the Pod is not there" 'pods "late" not found' not in_e2e get pod late
  kill -CONT "${process[slow]}"
  eventually "$name: it attaches again" is_attached slow
  allows "$name: and Pods that wait for it are made" prepared again '"also": "slow"'

  kill -STOP "${process[digest]}"
  prepared lost >"$work/lost" 2>&1 &
  creator=$!
  check "$name: a Pod is held by Gatepost, which is killed" look holds digest
  killed gatepost
  check "$name: its creator gets an error" not wait "$creator"
  prints "$name: which says that nobody has decided" 'failed calling webhook' cat "$work/lost"
  prints "$name: and the Pod is not there" 'pods "lost" not found' not in_e2e get pod lost
  kill -CONT "${process[digest]}"
  begin_initializing
  eventually "$name: the process attaches to the new one" is_attached digest
  allows "$name: and the Pod is made at the next try" prepared lost
  eventually "$name: so does the other process" is_attached slow

  # The admin of the cluster may `initialize`, as its apiserver says; bob may create Pods.
  kubectl --namespace e2e create role bob --verb=create,get --resource=pods >"$work/said" 2>&1 || broken "a role for bob"
  kubectl --namespace e2e create rolebinding bob --role=bob --user=bob >"$work/said" 2>&1 || broken "a role for bob"
  eventually "$name: bob may create Pods" prepared by-bob '' '' '' --as bob
  local none='"gatepost.dev/initializers": ""'
  refuses "$name: who may not initialize passes none by" 'permission to "initialize"' prepared passes '' '' "$none" --as bob
  # Not one that the watch looks for.
  allows "$name: who may passes them by" passing "$none"
  prints "$name: and the Pod is as it was written" 'main registry.example/app:1 =;' looks passed
  kubectl --namespace e2e create role initializes --verb=initialize --resource=pods >"$work/said" 2>&1 || broken "a role"
  kubectl --namespace e2e create rolebinding initializes --role=initializes --user=bob >"$work/said" 2>&1 || broken "a role"
  in_e2e delete pod passed --wait=false --grace-period=0 --force >"$work/said" 2>&1 || broken "deleting passed"
  eventually "$name: so may bob, once a role says it" passing "$none" --as bob

  stop slow || true
  stop digest || true
  eventually "$name: the processes are gone" is_attached_nowhere
  check "$name: gatepost status says so" says_unattended
  refuses "$name: without one that must act nothing is created" 'initializer "digest.e2e.gatepost.dev"' prepared alone

  kill "${process[watching]}" 2>/dev/null || true
  wait "${process[watching]}" || true
  unset "process[watching]"
  check "$name: a watch has seen the Pods" grep -q '^three ' "$work/watching.out"
  check "$name: and never one that was not finished" finished
  kubectl delete -f "$work/gatepost.yaml" >"$work/said" 2>&1 || broken "unregistering Gatepost"
  eventually "$name: unregistered, Pods are as they are written" is_not_prepared
  in_e2e delete pods --all --wait=false --grace-period=0 --force >"$work/said" 2>&1 || broken "deleting the Pods"
  check "$name: gatepost ends well when asked to" stop gatepost
}

# passing ANNOTATION [kubectl flags]: makes a Pod that no initializer has prepared.
passing() {
  local annotation="$1"
  shift
  in_e2e create --filename - "$@" <<JSON
{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "passed", "annotations": {$annotation}},
 "spec": {"containers": [{"name": "main", "image": "registry.example/app:1"}]}}
JSON
}

is_attached_nowhere() { [[ "$(instances digest)" == 0 && "$(instances slow)" == 0 ]]; }

says_unattended() {
  "$gatepost" status --admin "$admin" >"$work/status" 2>&1
  grep -q 'INITIALIZER digest.e2e.gatepost.dev: .*no instance .* new objects are refused' "$work/status"
}

# finished: every line of the watch has the container, the digest and the variable.
finished() {
  ! grep -vE "^[a-z-]+ main proxy $digest registry.example/proxy@[a-z0-9:]+ NAMESPACE\$" "$work/watching.out"
}

# charged: the apiserver charges a Pod once, when all initializers have acted. Its quota controller is not here, so the status
# of the quota is written by hand.
charged() {
  in_e2e create quota cpu --hard=requests.cpu=250m >"$work/said" 2>&1 || broken "a quota"
  in_e2e patch resourcequota cpu --subresource=status --type merge \
    --patch '{"status": {"hard": {"requests.cpu": "250m"}, "used": {"requests.cpu": "0"}}}' >"$work/said" 2>&1 || broken "a quota"
  eventually "$name: a quota is in force" asks_for_cpu
  allows "$name: quota: a Pod is charged for what initializers have added" prepared charged '"also": "cpu"'
  prints "$name: quota: once" '200m' in_e2e get resourcequota cpu -o jsonpath='{.status.used.requests\.cpu}'
  refuses "$name: quota: and refused for it" 'exceeded quota' prepared over '"also": "cpu"'
  in_e2e delete resourcequota cpu >"$work/said" 2>&1 || broken "deleting the quota"
  eventually "$name: the quota is gone" prepared unlimited '' '' '' --dry-run=server
}

asks_for_cpu() {
  ! prepared limited '' '' '' --dry-run=server >"$work/limited" 2>&1 && grep -q 'must specify requests.cpu' "$work/limited"
}
