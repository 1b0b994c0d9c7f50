# Objects that a stock kube-apiserver stores before they are initialized, marked by a label: config maps and a custom
# resource, worked on by a built-in initializer, a process and a client, with Gatepost killed at every step; and the same
# behind `gatepost read-proxy`.

pinned='registry.example/app@sha256:0000000000000000000000000000000000000000000000000000000000000001'
pending='init.gatepost.dev/pending'
state='init\.gatepost\.dev/state'

# begin_labelled [REPLICA LISTENS ADMIN]: Gatepost with its configuration in the cluster and the rights of deploy/kubernetes,
# where it was before. The two variables have its addresses.
begin_labelled() {
  local at="${1:-labelled}"
  local -n listens="${2:-front}" serves="${3:-admin}"
  kubectl --namespace gatepost create token gatepost --duration 60m >"$work/labelled.token" 2>"$work/said" || broken "no token for Gatepost"
  sed "s|user: {token: .*}|user: {tokenFile: $work/labelled.token}|" "$work/cluster/kubeconfig" >"$work/labelled.kubeconfig"
  start "$at" "$gatepost" serve --source kubernetes --kubeconfig "$work/labelled.kubeconfig" --no-drain-finalizer \
    --replica "$at" --listen "${listens:-127.0.0.1:0}" --admin 127.0.0.1:0 --tls-cert "$work/gatepost.crt" --tls-key "$work/gatepost.key"
  serves="$(told "$at" 'listening admin (.*)')"
  listens="$(told "$at" 'listening tcp (.*)')"
}

# widget NAME [LABELS] [IMAGE] [kubectl flags]: makes a Widget, as bob.
widget() { makes_widget in_e2e "$@"; }

# makes_widget CLIENT NAME [LABELS] [IMAGE] [kubectl flags]: the same by another way to the apiserver.
makes_widget() {
  local client="$1" name="$2" labels="${3:-}" image="${4:-registry.example/app:1}"
  shift $(($# < 4 ? $# : 4))
  "$client" create --as bob --filename - "$@" <<JSON
{"apiVersion": "e2e.gatepost.dev/v1", "kind": "Widget",
 "metadata": {"name": "$name", "labels": {"made": "here"${labels:+, $labels}}},
 "spec": {"containers": [{"image": "$image"}]}}
JSON
}

# makes_configmap CLIENT NAME [LABELS] [IMAGE] [kubectl flags]: a config map in the same way. It has no image.
makes_configmap() {
  local client="$1" name="$2" labels="${3:-}"
  shift $(($# < 4 ? $# : 4))
  "$client" create --as bob --filename - "$@" <<JSON
{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "$name", "labels": {"made": "here"${labels:+, $labels}}}}
JSON
}

# marked KIND NAME: is it hidden?
marked() { in_e2e get "$1" "$2" --show-labels | grep -q "$pending="; }

# state_of KIND NAME: what its annotation says.
state_of() { in_e2e get "$1" "$2" -o jsonpath="{.metadata.annotations.$state}"; }

# looks_of KIND: what kubectl prints of an object; finished_by_bob KIND: what that is when everybody has done his part.
looks_of() {
  case "$1" in
  widget) echo '{.metadata.labels.team} {.metadata.labels.by} {.spec.containers[0].image}' ;;
  *) echo '{.metadata.labels.team} {.metadata.labels.by}' ;;
  esac
}

finished_by_bob() {
  case "$1" in
  widget) echo "e2e bob $pinned" ;;
  *) echo 'e2e bob' ;;
  esac
}

# prepared_object KIND NAME: it is finished, and everybody has done his part.
prepared_object() {
  local has
  has="$(in_e2e get "$1" "$2" -o jsonpath="$(looks_of "$1")")"
  [[ "$has" == "$(finished_by_bob "$1")" ]] && not marked "$1" "$2" && state_of "$1" "$2" | grep -q '"state":"Completed"'
}

prepared_widget() { prepared_object widget "$1"; }

object_is_gone() { in_e2e get "$1" "$2" --ignore-not-found -o name >"$work/there" && [[ ! -s "$work/there" ]]; }

widget_is_gone() { object_is_gone widget "$1"; }

widget_is_settled() { widget_is_gone "$1" || prepared_widget "$1"; }

acts_labelled() {
  TOKEN=sesame start "$1" "$work/initializer" -to "$front" -ca "$work/ca.crt" -name "$1.e2e.gatepost.dev" "registry.example/app:1=$pinned"
}

# leads REPLICA: does it work on the objects?
leads() { grep -q 'this replica initializes stored objects' "$work/$1.log"; }

# seen TEXT: has the watch of all objects, hidden ones too, seen it?
seen() { grep -qF -- "$1" "$work/seeing.out"; }

labelled() {
  echo "======== label: a stock apiserver stores objects before they are initialized"
  local name=label token at
  unset front
  (cd ../../examples/initializers/go && go build -o "$work/initializer" .) >"$work/go.log" 2>&1 || broken "the initializer does not build"
  token="$(printf sesame | sha256sum | cut -d ' ' -f 1)"
  mkdir -p "$work/labelled"
  sed "s/@TOKEN@/$token/" config/label.yaml >"$work/labelled/label.yaml"
  kubectl create namespace gatepost --save-config >"$work/said" 2>&1 || true
  kubectl apply --filename ../../deploy/kubernetes/source.yaml --filename ../../deploy/kubernetes/beside.yaml \
    --filename ../../deploy/kubernetes/stored-by-label.yaml >"$work/said" 2>&1 || broken "the rights of Gatepost"
  kubectl create clusterrole gatepost-widgets --verb=get,list,watch,patch,delete,initialize --resource=widgets.e2e.gatepost.dev \
    >"$work/said" 2>&1 || broken "the rights of Gatepost"
  for at in gatepost-widgets gatepost-authorizer; do
    kubectl create clusterrolebinding "label-$at" --clusterrole="$at" --serviceaccount=gatepost:gatepost >"$work/said" 2>&1 || broken "the rights of Gatepost"
  done
  kubectl --namespace e2e create role label-bob --verb=create,get,update,patch,delete --resource=configmaps,secrets,widgets.e2e.gatepost.dev,widgets.e2e.gatepost.dev/status \
    >"$work/said" 2>&1 || broken "a role for bob"
  kubectl --namespace e2e create role label-olga --verb=get,update,patch,initialize --resource=widgets.e2e.gatepost.dev >"$work/said" 2>&1 || broken "a role for olga"
  for at in bob olga; do
    kubectl --namespace e2e create rolebinding "label-$at" --role="label-$at" --user="$at" >"$work/said" 2>&1 || broken "a role for $at"
  done
  define >"$work/said" 2>&1 || broken "the definitions"
  kubectl wait --for=condition=Established crd/admissioncontrolconfigurations.gatepost.dev >"$work/said" 2>&1 || broken "the definitions"
  kubectl apply --filename "$work/labelled/label.yaml" >"$work/said" 2>&1 || broken "the configuration"
  begin_labelled
  eventually "$name: the configuration is in force" configz '"stored":"Label"'
  for at in mutating validating; do
    "$gatepost" register --kind "$at" --form api --url "https://$front" --ca-file "$work/ca.crt" --config "$work/labelled" \
      >"$work/label-$at.yaml" || broken "gatepost register --kind $at"
  done
  cat "$work/label-mutating.yaml" <(echo ---) "$work/label-validating.yaml" >"$work/label-both.yaml"
  check "$name: the registrations are right by check --against" "$gatepost" check --against "$work/label-both.yaml" "$work/labelled"
  "$gatepost" register --initializers --config "$work/labelled" >"$work/label-policy.yaml" || broken "gatepost register --initializers"
  check "$name: the apiserver takes the policy" kubectl apply --filename "$work/label-policy.yaml"
  kubectl apply --filename "$work/label-mutating.yaml" --filename "$work/label-validating.yaml" >"$work/said" 2>&1 || broken "registering Gatepost"
  acts_labelled digest
  acts_labelled slow
  check "$name: this replica leads" look leads labelled

  eventually "$name: new objects are marked, and kubectl says so" says_pending
  # Nobody else is here to write the status of a quota.
  in_e2e create quota widgets --hard=count/widgets.e2e.gatepost.dev=100 >"$work/said" 2>&1 || broken "a quota"
  in_e2e patch resourcequota widgets --subresource=status --type merge --patch \
    '{"status": {"hard": {"count/widgets.e2e.gatepost.dev": "100"}, "used": {"count/widgets.e2e.gatepost.dev": "0"}}}' \
    >"$work/said" 2>&1 || broken "a quota"

  # Each object that such a watch sees has to be finished: a proxy makes such a watch of a client's.
  start watching "$BIN/kubectl" --kubeconfig "$work/cluster/kubeconfig" --namespace e2e get widgets --selector "made=here,passed!=yes,!$pending" --watch \
    -o jsonpath='{.metadata.name} {.metadata.labels.team} {.spec.containers[*].image}{"\n"}'
  start seeing "$BIN/kubectl" --kubeconfig "$work/cluster/kubeconfig" --namespace e2e get widgets --watch -o json

  check "$name: a Widget is finished by all three" look prepared_widget probe
  check "$name: it is made again from its own manifest" remade_probe
  check "$name: and finished again" look prepared_widget probe
  in_e2e create configmap three --dry-run=client -o json >"$work/three.json"
  sed -i 's/"metadata": {/"metadata": {"labels": {"made": "here", "also": "down"},/' "$work/three.json"
  prints "$name: a config map waits" 'init pending ' in_e2e create --as bob --filename "$work/three.json"
  check "$name: and goes on without the one that is down and fails open" look finished_map
  check "$name: a dry run is not marked" dry_unmarked

  prints "$name: a Widget that is refused is stored first" 'init pending ' widget rejected '' registry.example/other:1
  check "$name: and deleted" look widget_is_gone rejected
  check "$name: its last state says why, and who" look seen 'no digest is known of image'
  check "$name: the state is Failed" seen '\"state\":\"Failed\"'
  kill -STOP "${process[slow]}"
  prints "$name: one waits for a process that hangs" 'init pending ' widget late '"also": "slow"'
  check "$name: it is deleted when the time is over" look widget_is_gone late
  check "$name: with the code that clients know" look seen 'did not act in time'
  kill -CONT "${process[slow]}"

  behind_proxy
  tampered
  crashed
  taken_over

  for at in watching seeing digest slow; do
    kill -KILL "${process[$at]}" 2>/dev/null || true
    wait "${process[$at]}" 2>/dev/null || true
    unset "process[$at]"
  done
  check "$name: a watch without the label has seen the Widgets" grep -q '^probe e2e' "$work/watching.out"
  check "$name: and never one that was not finished" watched_finished
  kubectl delete --filename "$work/label-mutating.yaml" --filename "$work/label-validating.yaml" --filename "$work/label-policy.yaml" >"$work/said" 2>&1 || broken "unregistering Gatepost"
  check "$name: gatepost ends well when asked to" stop labelled
  kubectl delete admissioncontrolconfiguration label >"$work/said" 2>&1 || broken "deleting the configuration"
  in_e2e delete resourcequota widgets >"$work/said" 2>&1 || broken "deleting the quota"
  in_e2e delete widgets,configmaps --selector made=here >"$work/said" 2>&1 || broken "deleting the objects"
}

# The webhook is asked a moment after it is registered: until then objects are not marked.
says_pending() {
  in_e2e delete widget probe >/dev/null 2>&1 || true
  widget probe 2>&1 | grep -q 'Warning: init pending [0-9a-f]'
}

# Out of what `kubectl get` shows of a finished object, as from a backup.
remade_probe() {
  in_e2e get widget probe -o json | grep -v '"resourceVersion":' >"$work/probe.json"
  grep -q '"state\\":\\"Completed' "$work/probe.json" && in_e2e delete widget probe >/dev/null && in_e2e create --as bob --filename "$work/probe.json"
}

dry_unmarked() { widget dry '' '' --dry-run=server -o json >"$work/dry.json" && not grep -q init.gatepost.dev "$work/dry.json"; }

finished_map() { not marked configmap three && state_of configmap three | grep -q '"state":"Completed"' && in_e2e get configmap three -o jsonpath='{.metadata.labels.team}' | grep -qx e2e; }

watched_finished() { ! grep -vE "^[a-z0-9-]+ e2e $pinned\$" "$work/watching.out"; }

# proxied_kubectl ARGUMENTS: through the proxy, as admin.
proxied_kubectl() {
  "$BIN/kubectl" --kubeconfig /dev/null --server "https://$proxy" --certificate-authority "$work/ca.crt" --namespace e2e \
    --token "$(cat "$work/cluster/token")" --cache-dir "$work/kubectl-proxied" "$@"
}

# The same engine, with the proxy before the apiserver: clients see an object once it is finished, and only then.
behind_proxy() {
  local kind
  proxy_account
  start label-proxy "$gatepost" read-proxy --resources configmaps,widgets.e2e.gatepost.dev --listen 127.0.0.1:0 --admin 127.0.0.1:0 \
    --tls-cert "$work/gatepost.crt" --tls-key "$work/gatepost.key" --upstream-kubeconfig "$work/read-proxy.kubeconfig"
  proxy="$(told label-proxy 'listening tcp (.*)')"
  for kind in widget configmap; do
    behind_proxy_of "$kind" "$name: behind the read proxy, a $kind"
  done
  check "$name: the read proxy ends well when asked to" stop label-proxy
}

# behind_proxy_of KIND WHAT
behind_proxy_of() {
  local kind="$1" by="$2" path='/api/v1' looks finished
  [[ "$kind" == configmap ]] || path='/apis/e2e.gatepost.dev/v1'
  looks="$(looks_of "$kind")" finished="$(finished_by_bob "$kind")"
  start label-watch "$BIN/kubectl" --kubeconfig /dev/null --server "https://$proxy" --certificate-authority "$work/ca.crt" --namespace e2e \
    --token "$(cat "$work/cluster/token")" get "${kind}s" --selector 'made=here,passed!=yes' --watch \
    -o jsonpath="{.metadata.name} $looks{\"\\n\"}"

  start label-create "makes_$kind" proxied_kubectl shown '' 'registry.example/app:1' -o jsonpath="$looks"
  check "$by: it is created" stop_waiting label-create
  check "$by: the creator has the finished object" grep -qx "$finished" <(cat "$work/label-create.out" <(echo))
  check "$by: and no word of the wait" not grep -q 'init pending' "$work/label-create.log"
  start label-create "makes_$kind" proxied_kubectl open '"also": "down"' 'registry.example/app:1' -o jsonpath="$looks"
  check "$by: one initializer is down and fails open: it is created" stop_waiting label-create
  check "$by: as the others have made it" grep -qx "$finished" <(cat "$work/label-create.out" <(echo))
  refuses "$by: who may not initialize passes nobody by" 'permission to' passes_all proxied_kubectl "$kind" --as bob
  allows "$by: who may passes all by" passes_all proxied_kubectl "$kind"
  prints "$by: and sees it at once, as it was written" 'by= team=;' proxied_kubectl get "$kind" passed -o jsonpath='by={.metadata.labels.by} team={.metadata.labels.team};'

  kill -STOP "${process[digest]}"
  start label-create "makes_$kind" proxied_kubectl held
  eventually "$by: one is stored, and waits for a process" turn_of held digest "$kind"
  refuses "$by: a get says what it is" 'is not initialized yet' proxied_kubectl get "$kind" held
  check "$by: it is not listed" not_printed held proxied_kubectl get "${kind}s"
  prints "$by: who may initialize sees it when asking" '"held"' proxied_kubectl get --raw "$path/namespaces/e2e/${kind}s?includeUninitialized=true"
  refuses "$by: its name is taken" 'already exists' "makes_$kind" proxied_kubectl held
  check "$by: its creator waits" kill -0 "${process[label-create]}"
  kill -CONT "${process[digest]}"
  check "$by: until the process has acted" stop_waiting label-create
  check "$by: then it is shown, finished" prepared_object "$kind" held
  check "$by: to all" proxied_kubectl get "$kind" held

  if [[ "$kind" == widget ]]; then
    refuses "$by: a refusal is the creator's" 'no digest is known of image' makes_widget proxied_kubectl refused '' registry.example/other:1
    check "$by: and the object is gone" widget_is_gone refused
  fi
  kill -STOP "${process[slow]}"
  refuses "$by: so is a time that is over" 'did not act in time' "makes_$kind" proxied_kubectl tardy '"also": "slow"'
  check "$by: and that object is gone" object_is_gone "$kind" tardy
  kill -CONT "${process[slow]}"
  eventually "$by: a watch has seen what is finished" grep -qx "held $finished" "$work/label-watch.out"
  check "$by: and nothing else" not grep -vE "^[a-z0-9-]+ $finished\$" "$work/label-watch.out"
  kill -KILL "${process[label-watch]}"
  wait "${process[label-watch]}" 2>/dev/null || true
  unset "process[label-watch]"
}

# passes_all CLIENT KIND [kubectl flags]: makes an object that no initializer is to act on.
passes_all() {
  local client="$1" type='"apiVersion": "v1", "kind": "ConfigMap"'
  [[ "$2" == configmap ]] || type='"apiVersion": "e2e.gatepost.dev/v1", "kind": "Widget", "spec": {"containers": [{"image": "registry.example/app:1"}]}'
  shift 2
  "$client" create --filename - "$@" <<JSON
{$type, "metadata": {"name": "passed", "labels": {"made": "here", "passed": "yes"}, "annotations": {"gatepost.dev/initializers": ""}}}
JSON
}

# turn_of NAME WHO [KIND]: it waits for that initializer alone, or first.
turn_of() { state_of "${3:-widget}" "$1" | grep -q "\"pending\":\[\"$2.e2e.gatepost.dev\""; }

# A user cannot set, clear or fake the marks; the owner of the head can go on.
tampered() {
  refuses "$name: who makes an object does not mark it" 'set by Gatepost alone' widget faked "\"$pending\": \"1\""
  refuses "$name: nor one that is not sent to Gatepost: by the policy" 'set by Gatepost alone' in_e2e create --as bob --filename - <<<"{\"apiVersion\": \"v1\", \"kind\": \"Secret\", \"metadata\": {\"name\": \"faked\", \"labels\": {\"$pending\": \"1\"}}}"
  refuses "$name: nor a finished one" 'set by Gatepost alone' in_e2e label --as bob widget probe "$pending=1"
  local charged
  charged="$(widgets_charged)"
  prints "$name: a Widget waits for its owner" 'init pending ' widget waits '"also": "waits"'
  check "$name: quota has counted it already" eval '(($(widgets_charged) == charged + 1))'
  check "$name: whose turn comes" look turn_of waits waits
  refuses "$name: bob does not clear the label" 'permission to' in_e2e label --as bob widget waits "$pending-"
  refuses "$name: nor the annotation" 'permission to' in_e2e annotate --as bob widget waits init.gatepost.dev/state-
  refuses "$name: nor does he change anything else" 'permission to' in_e2e annotate --as bob widget waits a=b
  refuses "$name: nor its status" 'permission to' in_e2e patch --as bob widget waits --subresource status --type merge --patch '{"metadata": {"labels": {"init.gatepost.dev/pending": null}}}'
  check "$name: a manifest without the marks completes nothing, whoever applies it" replaced_by_admin
  check "$name: they are restored" marked widget waits
  refuses "$name: the owner does not complete it without the label" 'is removed in the update that says Completed' completes_waits '"1"'
  check "$name: the owner completes it" completes_waits null
  check "$name: quota counts it once" eval '(($(widgets_charged) == charged + 1))'
  check "$name: it is seen" not marked widget waits
  prints "$name: with what was made of it" waits in_e2e get widgets --selector team=e2e -o name
  check "$name: who wants it gone does not wait" widget leaves '"also": "waits"'
  check "$name: as bob" in_e2e delete --as bob widget leaves
  in_e2e delete widget waits >"$work/said" 2>&1 || broken "deleting waits"
}

widgets_charged() { in_e2e get resourcequota widgets -o jsonpath='{.status.used.count/widgets\.e2e\.gatepost\.dev}'; }

# As `kubectl replace` of what somebody has in a file.
replaced_by_admin() {
  in_e2e replace --filename - <<JSON
{"apiVersion": "e2e.gatepost.dev/v1", "kind": "Widget",
 "metadata": {"name": "waits", "labels": {"made": "here", "also": "waits", "team": "e2e"}},
 "spec": {"containers": [{"image": "$pinned"}]}}
JSON
}

# completes_waits LABEL: says that the only initializer left has acted.
completes_waits() {
  local done
  done="$(state_of widget waits | sed 's/"state":"Pending","pending":\[[^]]*\]/"state":"Completed","pending":[]/; s/"/\\"/g')"
  in_e2e patch --as olga widget waits --type merge --patch \
    "{\"metadata\": {\"labels\": {\"$pending\": $1}, \"annotations\": {\"init.gatepost.dev/state\": \"$done\"}}}"
}

# Gatepost is killed before, in and after each step of an object. Another one takes the lease over when it is silent.
crashed() {
  local at
  for at in 0 0.1 0.3 0.7; do
    look widget "crash-${at/./-}" '"also": "down"' || broken "making a Widget"
    sleep "$at"
    killed labelled
    begin_labelled
    check "$name: killed $at s after it was made, a Widget is finished or gone" look widget_is_settled "crash-${at/./-}"
  done
  kill -STOP "${process[digest]}"
  look widget crash-held || broken "making a Widget"
  check "$name: one is held by a process" look marked widget crash-held
  killed labelled
  kill -CONT "${process[digest]}"
  begin_labelled
  check "$name: killed meanwhile, it is finished or gone" look widget_is_settled crash-held
}

# taken_over: of two replicas, the one that leads is killed, and then the one that leads and is in use.
taken_over() {
  local other_front other_admin
  check "$name: two replicas: one leads" look leads labelled
  begin_labelled other other_front other_admin
  # Processes attach to each replica.
  TOKEN=sesame start digest-of-other "$work/initializer" -to "$other_front" -ca "$work/ca.crt" -name digest.e2e.gatepost.dev "registry.example/app:1=$pinned"
  check "$name: two replicas: the second does not" not leads other
  killed labelled
  check "$name: two replicas: it does once the first is silent" look leads other
  # Callers have the first one alone.
  begin_labelled
  check "$name: two replicas: a Widget is finished by the leader, whoever is asked" eval 'look widget taken-over && look prepared_widget taken-over'
  kill -STOP "${process[digest-of-other]}"
  look widget over-again || broken "making a Widget"
  check "$name: two replicas: one is held by a process of the leader" look turn_of over-again digest
  killed other
  check "$name: two replicas: the leader killed, the first leads again" look leads labelled
  check "$name: two replicas: and the Widget is finished" look prepared_widget over-again
  kill -KILL "${process[digest-of-other]}"
  wait "${process[digest-of-other]}" 2>/dev/null || true
  unset "process[digest-of-other]"
}
