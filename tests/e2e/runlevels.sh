# That gatepost runlevels labels a cluster, and that the label can be guarded.

# level NAMESPACE LEVEL: its label says this; "" is no label.
level() { [[ "$(kubectl get namespace "$1" --output 'jsonpath={.metadata.labels.gatepost\.dev/runlevel}')" == "$2" ]]; }

levels() {
  level kube-system 0 && level kube-public 0 && level kube-node-lease 0 && level e2e-dns 1 && level e2e-images 2 &&
    level e2e-limits 3 && level e2e ""
}

# labelling WHAT [FLAGS]: gatepost runlevels for the trial's hooks.
labelling() {
  "$gatepost" runlevels "$@" --config config/runlevels.yaml --kubeconfig "${as:-$work/cluster/kubeconfig}" --add-on e2e-dns
}

relevel() { kubectl label namespace "$1" --overwrite "gatepost.dev/runlevel=$2" "${@:3}"; }

relevel_anew() { relevel e2e-images "$((++levels_tried))" --as=writer; }
levels_tried=10

# acting_as USER: a kubeconfig of the administrator who acts as that user.
acting_as() { sed "s/user: {token: /user: {as: $1, token: /" "$work/cluster/kubeconfig" >"$work/kubeconfig-$1"; }

runlevels() {
  local name places=(e2e-dns e2e-images e2e-limits) as=""
  for name in "${places[@]}"; do kubectl create namespace "$name" >>"$work/setup.log" 2>&1 || broken "making namespaces"; done
  check "runlevels: a dry run says what would be done" labelling --apply --dry-run
  check "runlevels: and writes nothing" level kube-system ""
  prints "runlevels: they are written" 'labelled    e2e-limits 3' labelling --apply
  check "runlevels: each namespace has its own" levels
  prints "runlevels: once more changes nothing" 'unchanged   kube-system 0' labelling --apply
  check "runlevels: what another has written is changed" relevel e2e-limits 7
  prints "runlevels: and kept" 'unchanged   e2e-limits 7' labelling --apply
  prints "runlevels: unless forced" 'relabelled  e2e-limits 3 (was 7)' labelling --apply --force
  kubectl label namespaces --all gatepost.dev/runlevel- >>"$work/setup.log" 2>&1 || broken "removing labels"
  labelling --print >"$work/runlevels.yaml" || broken "printing runlevels"
  check "runlevels: what is printed can be applied" \
    kubectl apply --server-side --field-manager=gatepost-runlevels --filename "$work/runlevels.yaml"
  check "runlevels: and says the same" levels
  prints "runlevels: so that nothing is left to write" 'unchanged   e2e-limits 3' labelling --apply
  guarded
  kubectl label namespaces --all gatepost.dev/runlevel- >>"$work/setup.log" 2>&1 || broken "removing labels"
  for name in "${places[@]}"; do forget_namespace "$name" >>"$work/setup.log" 2>&1 || broken "removing namespaces"; done
}

# That of all who may write namespaces only those change the label who may set runlevels.
guarded() {
  local guard=../../examples/runlevels/guard.yaml
  acting_as nobody
  acting_as labeller
  acting_as writer
  as="$work/kubeconfig-nobody" refuses "runlevels: who may not read namespaces is told so" \
    'cannot list resource "namespaces"' labelling --apply
  kubectl apply -f "$guard" >>"$work/setup.log" 2>&1 || broken "guarding the label"
  kubectl create clusterrole e2e-namespaces --verb=list,get,create,patch,update --resource=namespaces \
    >>"$work/setup.log" 2>&1 || broken "making a role"
  kubectl create clusterrolebinding e2e-writer --clusterrole=e2e-namespaces --user=writer >>"$work/setup.log" 2>&1 || broken "binding"
  kubectl create clusterrolebinding e2e-labeller --clusterrole=gatepost-runlevels --user=labeller >>"$work/setup.log" 2>&1 || broken "binding"
  # The policy is in force once somebody is refused. Until then each try changes something, as it must to be looked at.
  eventually "runlevels: guarded, the label cannot be changed" forbidden relevel_anew
  refuses "runlevels: nor removed" 'may be changed only by' relevel_none --as=writer
  refuses "runlevels: nor given to a new namespace" 'may be changed only by' new_with_level --as=writer
  check "runlevels: other labels can" kubectl label namespace e2e-images --overwrite other=label --as=writer
  as="$work/kubeconfig-writer" refuses "runlevels: nor by gatepost for such a user" \
    'answers 403 to PATCH /api/v1/namespaces/' labelling --apply --force --add-on e2e
  as="$work/kubeconfig-labeller" prints "runlevels: who may set runlevels can, with no other right" \
    'labelled    e2e 1' labelling --apply --add-on e2e
  kubectl delete -f "$guard" >>"$work/setup.log" 2>&1 || broken "removing the guard"
  kubectl delete clusterrolebinding e2e-writer e2e-labeller >>"$work/setup.log" 2>&1 || broken "removing rights"
  kubectl delete clusterrole e2e-namespaces >>"$work/setup.log" 2>&1 || broken "removing rights"
}

forbidden() { ! "$@" 2>"$work/forbidden" && grep -q 'may be changed only by' "$work/forbidden"; }

relevel_none() { kubectl label namespace e2e-images gatepost.dev/runlevel- "$@"; }

new_with_level() {
  echo '{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "e2e-new", "labels": {"gatepost.dev/runlevel": "0"}}}' |
    kubectl create --filename - "$@"
}
