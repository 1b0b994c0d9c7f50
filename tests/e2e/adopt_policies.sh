# Policies that stand in the cluster are taken over where they stand, by two replicas, under a stream of requests that one of
# them denies: none may be allowed, whoever decides. kube-apiserver's own metric says that it no longer does. Then somebody
# names the policy again (as a GitOps tool does), and at last every replica dies.

# parked KIND BINDING: kube-apiserver does not evaluate the policy for this binding.
parked() { [[ "$(kubectl get "$1admissionpolicybindings" "$2" -o 'jsonpath={.spec.policyName}')" == *.parked.gatepost.dev ]]; }

free_again() { ! parked "$@"; }

# policy_post NAME: kube-apiserver's answer to a config map of this name; a dry run.
policy_post() {
  curl -sS --cacert "$work/cluster/ca.crt" -H "Authorization: Bearer $(cat "$work/cluster/token")" \
    -H 'Content-Type: application/json' -d "{\"metadata\": {\"name\": \"$1\"}}" "${@:2}" \
    "$(cat "$work/cluster/url")/api/v1/namespaces/e2e/configmaps?dryRun=All"
}

# policy_requests: one denied request after the other; a line for each has when, and what the answer was.
policy_requests() {
  while [[ -e "$work/policy.streaming" ]]; do
    echo "$EPOCHREALTIME $(policy_post denied -o "$work/policy.body" -w '%{http_code}')" >>"$work/policy.codes"
  done
}

end_policy_requests() {
  rm -f "$work/policy.streaming"
  wait "${process[policy-requests]}" || true
  unset 'process[policy-requests]'
}

# none_allowed: of all those requests.
none_allowed() {
  awk '{ codes[$2]++ } END { for (code in codes) print codes[code] " answers " code; exit codes[201] > 0 || NR < 50 }' "$work/policy.codes"
}

# all_denied: nothing else has been answered so far.
all_denied() {
  awk '{ codes[$2]++ } END { for (code in codes) print codes[code] " answers " code; exit codes[422] != NR || NR < 50 }' "$work/policy.codes"
}

# decided_by_apiserver: the metric of kube-apiserver: how often it has evaluated the policy.
decided_by_apiserver() {
  kubectl get --raw /metrics |
    awk '/^apiserver_validating_admission_policy_check_total\{.*policy="adopt-denies"/ { sum += $NF } END { print sum + 0 }'
}

# quiet: kube-apiserver does not evaluate the policy while requests are denied.
quiet() {
  local before after answers
  before="$(decided_by_apiserver)"
  answers="$(wc -l <"$work/policy.codes")"
  sleep 2
  after="$(decided_by_apiserver)"
  echo "evaluated $before times, and $after times after $(($(wc -l <"$work/policy.codes") - answers)) more requests"
  ((before == after && $(wc -l <"$work/policy.codes") > answers + 10))
}

denied_by_gatepost() { policy_post denied | grep -F 'admission webhook \"gatepost.validate.gatepost.dev\" denied' | grep -F "ValidatingAdmissionPolicy 'adopt-denies' with binding 'adopt-denies-everywhere' denied request: not with this name"; }

denied_by_apiserver() { policy_post denied | grep -F "ValidatingAdmissionPolicy 'adopt-denies' with binding 'adopt-denies-everywhere' denied request: not with this name" | grep -vF 'admission webhook'; }

denied_with_config_map() { policy_post config-map | grep -F "ValidatingAdmissionPolicy 'adopt-config-map' with binding 'adopt-config-map' denied request: not with the name" | grep -vF 'admission webhook'; }

annotated() { policy_post annotated | grep -F '"by": "adopt-annotates"'; }

# names_again: somebody gives the binding its policy, as often as it is parked, until that is left to kube-apiserver.
names_again() {
  local tries
  for ((tries = 0; tries < 200; tries++)); do
    ! either_log 'named the policy again' || return 0
    if parked validating adopt-denies-everywhere; then
      kubectl patch validatingadmissionpolicybinding adopt-denies-everywhere --type merge -p '{"spec": {"policyName": "adopt-denies"}}'
    fi
    sleep 0.1
  done
  return 1
}

# timed NAME COMMAND...: as check, and says how long it took.
timed() {
  local since="${EPOCHREALTIME/./}"
  check "$@"
  echo "        after $(((${EPOCHREALTIME/./} - since) / 1000)) ms"
}

adopting_policies() {
  local front admin kind
  local -A adopt_admin
  echo "======== adopt: policies of the cluster are taken over and given back"
  begin_path
  mkdir -p "$work/pids"
  adopting_rights
  printf '%s\n---\n' '{apiVersion: e2e.gatepost.dev/v1, kind: Widget, metadata: {name: adopt-params, namespace: default}, data: {name: denied}}' \
    '{apiVersion: v1, kind: ConfigMap, metadata: {name: adopt-params, namespace: default}, data: {name: config-map}}' >"$work/adopt-params.yaml"
  check "adopt: policies stand in the cluster" kubectl apply -f "$work/adopt-params.yaml" -f config/adopt-policies.yaml
  eventually "adopt: kube-apiserver denies by one" denied_by_apiserver
  eventually "adopt: and annotates by another" annotated
  begin_adopting adopt-a 127.0.0.1:0
  prints "adopt: the plan has the policies, and what the registration lacks" \
    "left              validating-policy/adopt-denies/adopt-denies-everywhere: Gatepost's registration does not cover it" \
    adopt --plan
  prints "adopt: one that can match everything is left" 'validating-policy/adopt-everything/adopt-everything: Gatepost lets requests past it' adopt --plan
  prints "adopt: one with config maps as params is left" \
    'left              validating-policy/adopt-config-map/adopt-config-map: cannot be served: its paramKind is of v1, which may be a group of kube-apiserver itself' adopt --plan
  mkdir -p "$work/adopt-policies"
  # For another resource: --adopt-registration has to widen it.
  sed '/^# It can match/,$d; s/configmaps/secrets/' config/adopt-policies.yaml >"$work/adopt-policies/policies.yaml"
  for kind in validating mutating; do
    "$gatepost" register --form api --kind "$kind" --url "https://$front" --ca-file "$work/ca.crt" --config "$work/adopt-policies" ||
      broken "a registration for policies"
    echo ---
  done >"$work/adopt-registration.yaml"
  kubectl apply -f "$work/adopt-registration.yaml" >"$work/said" 2>&1 || broken "registering Gatepost"
  begin_adopting adopt-b "$front"
  kubectl create role adopt-params --namespace default --verb get --resource widgets.e2e.gatepost.dev >"$work/said" 2>&1 || broken "a role"
  check "adopt: Gatepost may read the params" kubectl create rolebinding adopt-params --namespace default \
    --role adopt-params --serviceaccount gatepost:gatepost
  touch "$work/policy.streaming"
  policy_requests &
  process[policy-requests]=$!

  timed "adopt: both policies are taken over" adopt validating-policy/adopt-denies mutating-policy/adopt-annotates --timeout 1m
  check "adopt: the binding is parked" parked validating adopt-denies-everywhere
  check "adopt: and that of the mutating policy" parked mutating adopt-annotates-everywhere
  eventually "adopt: Gatepost denies by the policy's name" denied_by_gatepost
  eventually "adopt: kube-apiserver no longer evaluates it" quiet
  sed 's/^/        /' "$work/said"
  check "adopt: an object is annotated once" annotated
  refuses "adopt: one with config maps as params cannot be taken" 'with outdated params until it is restarted' \
    adopt validating-policy/adopt-config-map --timeout 5s
  check "adopt: so it stays as it is" free_again validating adopt-config-map
  check "adopt: and kube-apiserver denies by it" denied_with_config_map
  check "adopt: nobody asks for it any more" release validating-policy/adopt-config-map
  prints "adopt: a metric has both" 'gatepost_adopted_policies 2' curl -fsS "http://$admin/metrics"
  eventually "adopt: and so has gatepost status" shows 'taken         validating-policy/adopt-denies/adopt-denies-everywhere' \
    "$gatepost" status --source kubernetes --kubeconfig "$work/cluster/kubeconfig"
  check "adopt: the audit log has it" grep -q '"adoption":"taken".*"policy":"validating-policy/adopt-denies' "$work/adopt-a.jsonl" "$work/adopt-b.jsonl"

  check "adopt: a policy that is named again and again is left to kube-apiserver" names_again
  eventually "adopt: which denies by it" denied_by_apiserver
  check "adopt: the other one stays parked" parked mutating adopt-annotates-everywhere
  check "adopt: a release ends the fight" release validating-policy/adopt-denies
  check "adopt: so that it is taken again" adopt adopt-denies --timeout 30s

  check "adopt: all that time each request was denied" all_denied
  curl -fsS "http://${adopt_admin[adopt-a]}/metrics" | grep -E '^gatepost_(adopted_policies|adoption)' | sed 's/^/        /'

  check "adopt: one replica ends well" stop adopt-b
  check "adopt: what is parked stays so" parked validating adopt-denies-everywhere
  killed adopt-a
  # Otherwise it counts as alive, and the command waits for it for 20 s.
  kubectl --namespace gatepost delete lease --all >"$work/said" 2>&1 || broken "deleting leases"
  timed "adopt: with every replica dead, release gives back by itself" release --all
  check "adopt: the binding has its policy" free_again validating adopt-denies-everywhere
  kubectl delete -f "$work/adopt-registration.yaml" >"$work/said" 2>&1 || broken "unregistering"
  eventually "adopt: and kube-apiserver denies by it" denied_by_apiserver
  end_policy_requests
  check "adopt: the binding is parked as Gatepost parks it" kubectl patch validatingadmissionpolicybinding adopt-denies-everywhere --type merge \
    -p '{"metadata": {"annotations": {"gatepost.dev/parked-param-ref": "{\"paramRef\":{\"name\":\"adopt-params\",\"namespace\":\"default\",\"parameterNotFoundAction\":\"Deny\"},\"policyName\":\"adopt-denies\"}"}}, "spec": {"policyName": "adopt-denies.parked.gatepost.dev", "paramRef": null}}'
  sed -n '/^kept=/,/^```/p' ../../docs/adopt.md | sed '$d' >"$work/adopt.emergency"
  check "adopt: kubectl alone gives it back, as the chapter says" in_shell "$work/adopt.emergency"
  eventually "adopt: with its params" denied_by_apiserver
  prints "adopt: and without the annotation" 'annotations=;' kubectl get validatingadmissionpolicybinding adopt-denies-everywhere \
    -o 'jsonpath=annotations={.metadata.annotations.gatepost\.dev/parked-param-ref};'
  check "adopt: of all requests that the policy denies none was allowed" none_allowed
  sed 's/^/        /' "$work/said"
  kubectl delete role,rolebinding --namespace default adopt-params >"$work/said" 2>&1 || broken "taking a right away"
  kubectl delete -f config/adopt-policies.yaml -f "$work/adopt-params.yaml" >"$work/said" 2>&1 || broken "removing the policies"
  kubectl delete clusterrolebinding gatepost-adopt gatepost-source >"$work/said" 2>&1 || broken "taking the rights away"
}
