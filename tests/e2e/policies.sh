# ValidatingAdmissionPolicies and MutatingAdmissionPolicies: the same requests to kube-apiserver that has the policies as
# objects of its own, and to kube-apiserver that knows only Gatepost, which has them in its configuration. Then params that
# change in the cluster, and a policy that is added to the configuration.

# policy_step STEP [FLAGS]
policy_step() { replay policies -cases ../policies -list "$work/policies.list" "$@"; }

# begin_gatepost_of_policies KINDS CONFIG SOURCE...: with the policies of this source; registered for what those in CONFIG match.
begin_gatepost_of_policies() {
  local kinds="$1" config="$2" kind
  shift 2
  start gatepost "$gatepost" serve "$@" --namespaces-from "$work/cluster/kubeconfig" \
    --listen 127.0.0.1:0 --admin 127.0.0.1:0 --tls-cert "$work/gatepost.crt" --tls-key "$work/gatepost.key"
  told gatepost '(ready generation.*)' >/dev/null
  front="$(told gatepost 'listening tcp (.*)')"
  admin="$(told gatepost 'listening admin (.*)')"
  : >"$work/gatepost.yaml"
  for kind in $kinds; do
    echo --- >>"$work/gatepost.yaml"
    "$gatepost" register --kind "$kind" --form api --url "https://$front" --ca-file "$work/ca.crt" \
      --config "$config" >>"$work/gatepost.yaml" || broken "gatepost register --kind $kind"
  done
  kubectl apply -f "$work/gatepost.yaml" >"$work/said" 2>&1 || broken "registering Gatepost"
}

end_gatepost_of_policies() {
  kubectl delete -f "$work/gatepost.yaml" >"$work/said" 2>&1 || broken "unregistering Gatepost"
  check "policies: gatepost: unregistered, and no policy is in force" policy_step await-none
  check "policies: gatepost ends well when asked to" stop gatepost
}

# in_etcd CALL BODY: the revision of etcd after this call.
in_etcd() {
  curl -fsS "$(cat "$work/cluster/etcd.url")/v3/kv/$1" -d "$2" | sed -nE 's/.*"revision":"([0-9]+)".*/\1/p'
}

policy_key() { printf '/gatepost/config/%s' "$1" | base64 -w0; }

# put_policies NAME: this file of policies/ becomes part of the configuration.
put_policies() { in_etcd put "{\"key\": \"$(policy_key "$1")\", \"value\": \"$(base64 -w0 "policies/$1")\"}"; }

remove_policies() { in_etcd deleterange "{\"key\": \"$(policy_key "$1")\"}"; }

# policy_request LABEL VALUE: a config map; a dry run.
policy_request() {
  echo "{\"apiVersion\": \"v1\", \"kind\": \"ConfigMap\", \"metadata\": {\"name\": \"request\", \"labels\": {\"$1\": \"$2\"}}}" |
    in_e2e create --dry-run=server --filename -
}

# policies_change: nothing here waits longer than until the change is in force. The registration is for all of policies/.
policies_change() {
  local revision
  revision="$(put_policies params.yaml)"
  [[ -n "$revision" ]] || broken "writing policies into etcd"
  begin_gatepost_of_policies validating policies --source etcd --etcd-endpoint "$(cat "$work/cluster/etcd.url")"
  check "policies: params that change in the cluster are seen within 2 s" replay params -limit 2s
  sed 's/^/        /' "$work/said"

  allows "policies: before a policy is added, the request is allowed" policy_request added denied
  check "policies: apply writes the policy into etcd, and ends when it is in force" "$gatepost" apply -f policies/added.yaml \
    --source etcd --etcd-endpoint "$(cat "$work/cluster/etcd.url")" --wait --timeout 20s
  refuses "policies: then the first request is denied" 'denied request: not any more' policy_request added denied
  revision="$(remove_policies added.yaml)"
  check "policies: status waits until the policy is gone" \
    "$gatepost" status --admin "http://$admin" --wait "$revision" --timeout 20s
  allows "policies: then the first request is allowed" policy_request added denied
  params_come_first
  remove_policies params.yaml >"$work/said"
  end_gatepost_of_policies
}

denied_by_limit() { ! policy_request awaiting denied >"$work/said" 2>&1 && grep -qF 'limited by limit' "$work/said"; }

# params_come_first: a policy whose params are of a kind that comes later stops nobody before.
params_come_first() {
  local revision
  revision="$(put_policies awaiting.yaml)"
  check "policies: one with params of a kind that is not served is in force" \
    "$gatepost" status --admin "http://$admin" --wait "$revision" --timeout 20s
  allows "policies: and rejects nothing" policy_request awaiting denied
  refuses "policies: status says what it waits for" 'PARAMS policy awaiting, binding awaiting: not evaluated since' \
    "$gatepost" status --admin "http://$admin"
  check "policies: then the kind is served" kubectl apply -f config/awaited-params.yaml
  eventually "policies: and the policy rejects for want of params" denied_for_want
  echo '{apiVersion: awaited.gatepost.dev/v1, kind: Limit, metadata: {name: limit}}' >"$work/limit.yaml"
  eventually "policies: then there are params" kubectl apply -f "$work/limit.yaml"
  eventually "policies: by which it rejects" denied_by_limit
  remove_policies awaiting.yaml >"$work/said"
}

denied_for_want() {
  ! policy_request awaiting denied >"$work/said" 2>&1 && grep -qF 'no params found for policy binding' "$work/said"
}

# policies_direct: as objects of kube-apiserver. Each part of the cases is then a file.
policies_direct() {
  cp policies/cases.txt "$work/policies.list"
  total="$(grep -cv -e '^#' -e '^$' policies/cases.txt)"
  policy_step prepare >"$work/said" 2>&1 || broken "what the cases of policies need"
  policy_step apply >"$work/said" 2>&1 || broken "the policies as objects of the API"
  check "policies: direct: kube-apiserver decides $total requests as tests/policies says" \
    policy_step -out "$work/policies-direct.jsonl" direct
  policy_step remove >"$work/said" 2>&1 || broken "removing the policies"
  awk -v to="$work/policies-part-" '/^# Part / { part++ } { print >(to part + 1) }' policies/cases.txt
}

# policies_of PART: the policies of its cases, in a folder.
policies_of() {
  cp "$1" "$work/policies.list"
  rm -rf "$work/folder-of-policies"
  mkdir "$work/folder-of-policies"
  policy_step -out "$work/folder-of-policies" write >"$work/said" 2>&1 || broken "writing the policies"
}

# policies_through NAME: the requests of the part, added to the results of NAME.
policies_through() {
  policy_step -out "$work/part.jsonl" through >"$work/said" 2>&1 || broken "replaying policies through Gatepost"
  cat "$work/part.jsonl" >>"$work/policies-$1.jsonl"
}

# policy_differences NAME EXPECTED
policy_differences() {
  "$work/replay-program" compare -expected "$2" -out "$work/policy-differences.md" "$work/policies-direct.jsonl" "$1=$work/policies-$1.jsonl"
}

# policies_by_plugin: kube-apiserver asks Gatepost by the plugin, and clients read the policies' own words.
policies_by_plugin() {
  echo "======== policies, in kube-apiserver and in Gatepost, asked by the plugin"
  local part total
  build_plugged
  kube/cluster.sh stop "$work/cluster"
  plugin_configuration Ignore
  start_cluster_unplugged
  policies_direct
  kube/cluster.sh stop "$work/cluster"
  APISERVER=kube-apiserver-gatepost start_cluster
  : >"$work/policies-plugin.jsonl"
  for part in "$work"/policies-part-*; do
    policies_of "$part"
    start gatepost "$gatepost" serve --config "$work/folder-of-policies" --namespaces-from "$work/cluster/kubeconfig" \
      --uds "$work/gatepost.sock" --plaintext --admin 127.0.0.1:0
    told gatepost '(ready generation.*)' >/dev/null
    policies_through plugin
    check "policies by plugin: gatepost ends well when asked to" stop gatepost
  done
  check "policies by plugin: no difference in $total requests but those in policies/expected-plugin.tsv" \
    policy_differences plugin policies/expected-plugin.tsv
  sed -n '/^| field/,$p' "$work/policy-differences.md"
  kube/cluster.sh stop "$work/cluster"
  start_cluster_unplugged
  policy_step revoke >"$work/said" 2>&1 || broken "revoking the rights of the cases"
}

policies() {
  echo "======== policies, in kube-apiserver and in Gatepost"
  local part total
  policies_direct
  : >"$work/policies-gatepost.jsonl"
  for part in "$work"/policies-part-*; do
    policies_of "$part"
    begin_gatepost_of_policies "mutating validating" "$work/folder-of-policies" --config "$work/folder-of-policies"
    policies_through gatepost
    end_gatepost_of_policies
  done
  check "policies: no difference in $total requests but those in policies/expected.tsv" \
    policy_differences gatepost policies/expected.tsv
  grep ' cases differ in ' "$work/said" || true
  sed -n '/^| field/,$p' "$work/policy-differences.md"
  policies_change
  policy_step revoke >"$work/said" 2>&1 || broken "revoking the rights of the cases"
}
