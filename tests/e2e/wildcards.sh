# A hook for everything (`*/*`) behind a registration for everything: each request, of a subresource or of Gatepost's own,
# is judged once, and whoever stands still, nothing waits for itself.

# everything ADDRESS [SECONDS]: a configuration with the hook for everything at this address, beside one for new Pods.
everything() {
  local ca
  ca="$(base64 -w0 "$work/ca.crt")"
  cat <<YAML
apiVersion: gatepost.dev/v1alpha1
kind: AdmissionControlConfiguration
metadata: {name: everything}
externalAdmissionHooks:
- name: everything.e2e.gatepost.dev
  clientConfig: {url: "https://$1/json/everything", caBundle: "$ca"}
  rules: [{operations: ["*"], apiGroups: ["*"], apiVersions: ["*"], resources: ["*/*"]}]
  timeout: ${2:-5}s
  sideEffects: None
- name: narrow.e2e.gatepost.dev
  clientConfig: {url: "https://$1/json/narrow", caBundle: "$ca"}
  rules: [{operations: [CREATE], apiGroups: [""], apiVersions: [v1], resources: [pods]}]
  timeout: 5s
  sideEffects: None
YAML
}

configure_everything() {
  everything "$@" >"$work/folder-of-everything/everything.yaml"
  kubectl apply --filename "$work/folder-of-everything/everything.yaml"
}

# begin_wild ADDRESS: the same address again is the same Gatepost for kube-apiserver.
begin_wild() {
  start wild "$gatepost" serve --source kubernetes --kubeconfig "$work/sourced.kubeconfig" --replica wild --listen "$1" \
    --admin 127.0.0.1:0 --tls-cert "$work/gatepost.crt" --tls-key "$work/gatepost.key"
  told wild '(ready generation.*)' >/dev/null
  front="$(told wild 'listening tcp (.*)')"
  admin="$(told wild 'listening admin (.*)')"
}

# own_status_is_current: Gatepost has written to its own object, by way of the kube-apiserver that asks it about writes.
own_status_is_current() {
  local generation
  generation="$(kubectl get acc everything --output 'jsonpath={.metadata.generation}')"
  of_object everything '.status.replicas[?(@.name=="wild")].observedGeneration' "$generation"
}

# asked_of HOOK OPERATION RESOURCE[/SUBRESOURCE] OBJECT: the calls about it since the last look, one a line.
asked_of() {
  local resource="${3%%/*}" sub='"subResource":"[a-z]'
  grep -F "\"hook\":\"$1\"" "$work/wild.asked" | grep -F "\"operation\":\"$2\"" | grep -F "\"resource\":\"$resource\"" |
    grep -F "\"name\":\"$4\"" |
    if [[ "$3" == */* ]]; then grep -F "\"subResource\":\"${3#*/}\""; else grep -v "$sub"; fi
}

look_at_wild() { curl -fsS --cacert "$work/ca.crt" "https://$wild/seen" >"$work/wild.asked"; }

# judged_once HOOK OPERATION RESOURCE[/SUBRESOURCE] OBJECT
judged_once() { test "$(asked_of "$@" | wc -l)" = 1; }

never_asked_about() { not grep -F "\"resource\":\"$1\"" "$work/wild.asked"; }

# once_each HOW: requests of many kinds, each judged by each hook that means it, and by none twice.
once_each() {
  local how="$1" no='"allowed": false, "status": {"message": "not today"}' line
  allows "wildcards: $how: a pod is made" make Pod "wild-$how" ''
  allows "wildcards: $how: and its status written" in_e2e patch pod "wild-$how" --subresource=status --type=merge \
    --patch '{"status": {"message": "seen"}}'
  refuses "wildcards: $how: exec reaches the pod's host, which there is none" 'does not have a host assigned' \
    kubectl get --raw "/api/v1/namespaces/e2e/pods/wild-$how/exec?command=true&stdout=true"
  echo "{\"apiVersion\": \"policy/v1\", \"kind\": \"Eviction\", \"metadata\": {\"name\": \"wild-$how\", \"namespace\": \"e2e\"}}" >"$work/eviction.json"
  check "wildcards: $how: it is evicted" kubectl create --raw "/api/v1/namespaces/e2e/pods/wild-$how/eviction" --filename "$work/eviction.json"
  eventually "wildcards: $how: and gone" not in_e2e get pod "wild-$how"
  allows "wildcards: $how: a deployment is made" make Deployment "wild-$how" ''
  allows "wildcards: $how: and scaled" in_e2e scale deployment "wild-$how" --replicas=3
  allows "wildcards: $how: a service account is made" in_e2e create serviceaccount "wild-$how"
  check "wildcards: $how: and given a token" in_e2e create token "wild-$how"
  allows "wildcards: $how: a widget is made" make Widget "wild-$how" ''
  allows "wildcards: $how: and its status written" in_e2e patch widget "wild-$how" --subresource=status --type=merge \
    --patch '{"status": {"phase": "seen"}}'
  check "wildcards: $how: a review of access is made" in_e2e auth can-i create pods
  look_at_wild
  while read -r line; do
    # shellcheck disable=SC2086 # words
    check "wildcards: $how: judged once: $line" judged_once $line
  done <<LINES
everything CREATE pods wild-$how
narrow CREATE pods wild-$how
everything UPDATE pods/status wild-$how
everything CONNECT pods/exec wild-$how
everything CREATE pods/eviction wild-$how
everything CREATE deployments wild-$how
everything UPDATE deployments/scale wild-$how
everything CREATE serviceaccounts wild-$how
everything CREATE serviceaccounts/token wild-$how
everything CREATE widgets wild-$how
everything UPDATE widgets/status wild-$how
LINES
  check "wildcards: $how: no hook is asked about reviews of access" never_asked_about selfsubjectaccessreviews
  check "wildcards: $how: nor about Gatepost's own configuration" never_asked_about admissioncontrolconfigurations
  in_e2e delete deployment/"wild-$how" widget/"wild-$how" serviceaccount/"wild-$how" >"$work/said" 2>&1 || broken "cleaning up"

  allows "wildcards: $how: a pod is made that is to stay as it is" make Pod "still-$how" "everything={\"on\": \"UPDATE\", $no}"
  refuses "wildcards: $how: its status is refused" 'denied the request: not today' \
    in_e2e patch pod "still-$how" --subresource=status --type=merge --patch '{"status": {"message": "seen"}}'
  check "wildcards: $how: it is deleted" in_e2e delete pod "still-$how" --grace-period=0 --force
}

wildcards() {
  echo "======== wildcards: a hook for everything, and a registration for everything"
  local before
  mkdir -p "$work/folder-of-everything"
  allows "wildcards: the definitions are applied" define
  allows "wildcards: the rights of deploy/kubernetes are granted" kubectl apply --filename "$deploy/source.yaml" --filename "$deploy/source-drain.yaml"
  eventually "wildcards: the service account is there" kubectl --namespace gatepost get serviceaccount gatepost
  sourced_token
  sed "s|user: {token: .*}|user: {tokenFile: $work/sourced.token}|" "$work/cluster/kubeconfig" >"$work/sourced.kubeconfig"
  # A process of its own: it is ended below.
  start wild-hooks "$work/hook" -cert "$work/hooks.crt" -key "$work/hooks.key" -record
  wild="$(told wild-hooks 'listening (.*)')"
  configure_everything "$wild" >"$work/said" 2>&1 || broken "a configuration in the cluster"
  begin_wild 127.0.0.1:0
  eventually "wildcards: before anyone asks, Gatepost writes the status of its object" own_status_is_current

  "$gatepost" register --form api --url "https://$front" --ca-file "$work/ca.crt" >"$work/gatepost.yaml"
  check "wildcards: a registration for everything is printed" grep -q '\*/\*' "$work/gatepost.yaml"
  kubectl apply --filename "$work/gatepost.yaml" >"$work/register.log" 2>&1 || broken "registering Gatepost"
  eventually "wildcards: kube-apiserver asks Gatepost, and Gatepost the hook" \
    refused_for 'everything.e2e.gatepost.dev' asking wild yes 'everything={"allowed": false}'
  once_each everything

  "$gatepost" register --form api --url "https://$front" --ca-file "$work/ca.crt" --config "$work/folder-of-everything" \
    >"$work/gatepost.yaml" || broken "gatepost register --config"
  check "wildcards: what these hooks want is everything, too" grep -q '\*/\*' "$work/gatepost.yaml"
  check "wildcards: check --against finds it covered" "$gatepost" check --against "$work/gatepost.yaml" "$work/folder-of-everything"
  kubectl apply --filename "$work/gatepost.yaml" >"$work/register.log" 2>&1 || broken "registering Gatepost"
  # Until kube-apiserver has read it the former one holds, and everything is sent by that.
  once_each configured

  before="$(metric 'gatepost_bypassed_requests_total{bypass="own-configuration",effect="Skip"}')"
  allows "wildcards: the configuration is changed while it guards the cluster" configure_everything "$wild" 6
  eventually "wildcards: which is in force, and Gatepost has written so" own_status_is_current
  check "wildcards: kube-apiserver asked Gatepost about its own writes, and it skipped the hooks" \
    test "$(metric 'gatepost_bypassed_requests_total{bypass="own-configuration",effect="Skip"}')" -gt "$before"

  check "wildcards: the hook ends" stop wild-hooks
  refuses "wildcards: without it every write is refused" 'everything.e2e.gatepost.dev' asking wild yes
  killed wild
  begin_wild "$front"
  eventually "wildcards: Gatepost is killed and starts again without the hook" own_status_is_current
  refuses "wildcards: and refuses writes still" 'everything.e2e.gatepost.dev' asking wild yes
  check "wildcards: kube-apiserver stops" kube/cluster.sh stop "$work/cluster"
  start_cluster
  check "wildcards: and starts again, where each of its own writes needs a hook that is gone" kubectl get --raw /readyz
  eventually "wildcards: Gatepost still refuses by name" refused_for 'everything.e2e.gatepost.dev' asking wild yes
  wild="$hooks"
  eventually "wildcards: the repair is a write that waits for nobody" configure_everything "$hooks"
  eventually "wildcards: with it in force, writes are allowed" asking wild yes

  check "wildcards: Gatepost ends well when asked to" stop wild
  refuses "wildcards: without Gatepost every write is refused" 'failed calling webhook' asking wild yes
  check "wildcards: its registration can be removed" kubectl delete --filename "$work/gatepost.yaml"
  eventually "wildcards: and writes are allowed" asking wild yes
  # Its replica is gone, and with it whoever removes the finalizer.
  kubectl patch acc everything --type=merge --patch '{"metadata": {"finalizers": null}}' >"$work/said" 2>&1 || broken "removing the finalizer"
  kubectl delete clusterrolebinding gatepost-source gatepost-source-drain >"$work/said" 2>&1 || broken "taking the rights away"
  kubectl delete crd admissioncontrolconfigurations.gatepost.dev breakglasses.gatepost.dev >"$work/said" 2>&1 || broken "taking our kinds away"
}
