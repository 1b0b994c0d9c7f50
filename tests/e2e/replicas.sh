# That two Gateposts tell of themselves in the status of the cluster's configuration objects, that status and drain read it
# there, and that an object that is deleted stays until its hooks have drained on both. With the rights of
# deploy/kubernetes/ and no others.

# begin_replica NAME [FLAG...]
begin_replica() {
  local name="$1"
  shift
  start "$name" "$gatepost" serve --source kubernetes --kubeconfig "$work/sourced.kubeconfig" --replica "$name" \
    --plaintext --listen 127.0.0.1:0 --admin 127.0.0.1:0 --workers 1 "$@"
}

# of_object NAME TEMPLATE TEXT: what jsonpath finds in the object.
of_object() { test "$(kubectl get acc "$1" --output "jsonpath={$2}")" = "$3"; }

# in_columns NAME TEXT: what kubectl prints of the object, its columns one blank apart.
in_columns() { [[ "$(kubectl get acc "$1" | tr -s ' ')" == *"$2"* ]]; }

says_log() { grep -qF -- "$2" "$work/$1.log"; }

# written FILE: applies it and prints the revision at which it was stored.
written() { kubectl apply --filename "$1" --output 'jsonpath={.metadata.resourceVersion}'; }

# refused_object: one that the definition lets through and `gatepost check` does not. kubectl alone says what is wrong.
refused_object() {
  local problem='"configmap" is not the name of a resource'
  configured third | sed 's/\[configmaps\]/[configmap]/' >"$work/third.yaml"
  refuses "replicas: check refuses an object" "$problem" "$gatepost" check "$work/third.yaml"
  allows "replicas: which the definition lets through" kubectl apply --filename "$work/third.yaml"
  eventually "replicas: kubectl get acc says that it is not accepted, and in one word why" in_columns third 'third False LeftOut'
  check "replicas: in columns with these names" in_columns third 'NAME ACCEPTED REASON MESSAGE'
  check "replicas: the last one says that nothing of it is in force" in_columns third 'nothing of it is in force: '
  check "replicas: and what is wrong with it" in_columns third "$problem"
  check "replicas: the other object stays accepted" in_columns first 'first True InForce'
  check "replicas: it is deleted" kubectl delete acc third --timeout=20s
}

replicated() {
  local revision in_cluster other
  echo "======== replicas: they tell of themselves in the cluster"
  allows "replicas: the definitions are applied" define
  allows "replicas: the rights to read and to write a status are granted" kubectl apply --filename "$deploy/source.yaml"
  eventually "replicas: the service account is there" kubectl --namespace gatepost get serviceaccount gatepost
  sourced_token
  sed "s|user: {token: .*}|user: {tokenFile: $work/sourced.token}|" "$work/cluster/kubeconfig" >"$work/sourced.kubeconfig"
  in_cluster=(--source kubernetes --kubeconfig "$work/sourced.kubeconfig" --expect 2)
  refuses "replicas: without an object nobody can tell of himself" '--admin URL' "$gatepost" status "${in_cluster[@]}"

  configured first >"$work/first.yaml"
  # An endpoint of its own: one that another hook is asked at never may be switched off.
  start other-hooks "$work/hook" -cert "$work/hooks.crt" -key "$work/hooks.key"
  other="$(told other-hooks 'listening (.*)')"
  configured second | sed "s|$hooks|$other|" >"$work/second.yaml"
  written "$work/first.yaml" >"$work/said" 2>&1 || broken "a configuration in the cluster"
  begin_replica one
  begin_replica two
  eventually "replicas: one is in the status" of_object first '.status.replicas[?(@.name=="one")].name' one
  eventually "replicas: so is the other" of_object first '.status.replicas[?(@.name=="two")].name' two
  eventually "replicas: and have the object in force" of_object first '.status.replicas[*].observedGeneration' '1 1'
  eventually "replicas: it is accepted" of_object first '.status.conditions[?(@.type=="Accepted")].status' True
  prints "replicas: status shows them" '1 Active' "$gatepost" status "${in_cluster[@]}"
  check "replicas: without the right to it, no finalizer is set" of_object first .metadata.finalizers ''
  refused_object
  eventually "replicas: and the log says what is missing" says_log one 'cannot patch resource \"admissioncontrolconfigurations\"'
  check "replicas: and how to do without" says_log one '--no-drain-finalizer'

  allows "replicas: the right is granted" kubectl apply --filename "$deploy/source-drain.yaml"
  eventually "replicas: the finalizer is set" of_object first '.metadata.finalizers[0]' gatepost.dev/drain

  revision="$(written "$work/second.yaml" 2>"$work/said")" || broken "a second configuration"
  prints "replicas: status waits until both have what was written" '2 replicas have revision' "$gatepost" status "${in_cluster[@]}" --wait "$revision" --timeout 20s
  prints "replicas: and shows it" '2 Active' "$gatepost" status "${in_cluster[@]}"
  eventually "replicas: the finalizer is set on it, too" of_object second '.metadata.finalizers[0]' gatepost.dev/drain
  refuses "replicas: drain says that a hook is still configured" 'still configured in second as one sees it' \
    "$gatepost" drain second.e2e.gatepost.dev "${in_cluster[@]}" --timeout 1s

  # One that stands still is alive for half a minute: it holds the object.
  kill -STOP "${process[two]}"
  check "replicas: an object is deleted" kubectl delete acc second --wait=false
  eventually "replicas: one has drained it" of_object second '.status.replicas[?(@.name=="one")].drained' true
  refuses "replicas: the other one has not: drain waits" 'still configured in second as two sees it' \
    "$gatepost" drain second.e2e.gatepost.dev "${in_cluster[@]}" --timeout 1s
  check "replicas: and the object stays" kubectl get acc second
  kill -CONT "${process[two]}"
  prints "replicas: drain ends well" 'is gone on 2 replicas: its endpoint may be switched off' "$gatepost" drain second.e2e.gatepost.dev "${in_cluster[@]}" --timeout 30s
  check "replicas: the object goes" kubectl wait --for=delete acc/second --timeout=20s
  eventually "replicas: and what became of its hook is told in another" "$gatepost" drain second.e2e.gatepost.dev "${in_cluster[@]}" --timeout 1s

  check "replicas: one ends well when asked to" stop two
  check "replicas: and is told of no more" of_object first '.status.replicas[*].name' one
  check "replicas: an object is deleted, and gone when the last one has drained it" kubectl delete acc first --timeout=20s
  check "replicas: the other one ends well" stop one
  check "replicas: and the hooks do" stop other-hooks
  kubectl delete clusterrolebinding gatepost-source gatepost-source-drain >"$work/said" 2>&1 || broken "taking the rights away"
  kubectl delete crd admissioncontrolconfigurations.gatepost.dev breakglasses.gatepost.dev >"$work/said" 2>&1 || broken "taking our kinds away"
}
