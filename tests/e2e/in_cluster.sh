# Gatepost behind a Service of the cluster that asks it, by the commands of docs/in-cluster.md and the objects of
# deploy/kubernetes/in-cluster. IN_CLUSTER_RATE says how many writes a second stream in. There is no kubelet: processes of
# this trial are the Pods, with the arguments that the Deployments have and the service accounts' rights, and the Service's
# EndpointSlices point at them. kube-apiserver resolves Services by these slices (--enable-aggregator-routing), which may not
# name loopback addresses.

in_chapter=in-cluster

# in_gatepost ARGUMENTS: kubectl in Gatepost's namespace.
in_gatepost() { kubectl --namespace gatepost "$@"; }

# as_account NAME: a kubeconfig with that service account's token.
as_account() {
  in_gatepost create token "$1" --duration 30m >"$work/$1.token" 2>"$work/said" || broken "no token for $1"
  sed "s|user: {token: .*}|user: {tokenFile: $work/$1.token}|" "$work/cluster/kubeconfig" >"$work/$1.kubeconfig"
}

# deployed NAME: the arguments of that Deployment's container, on this trial's places.
deployed() {
  in_gatepost get deployment "$1" -o 'jsonpath={range .spec.template.spec.containers[0].args[*]}{@}{"\n"}{end}' |
    sed -e "s|=in-cluster|=$work/$1.kubeconfig|" -e "s|/etc/gatepost/tls|$work/mounted|" -e "s|0.0.0.0:9440|$reachable:0|" \
      -e 's|0.0.0.0:9441|127.0.0.1:0|' -e 's|--audit-log=-|--audit-log=none|'
}

# of_secret KEY: what the Secret holds there.
of_secret() { in_gatepost get secret gatepost-tls -o "jsonpath={.data['${1//./\\.}']}" | base64 -d; }

# in_secret KEY: something.
in_secret() { [[ -n "$(of_secret "$1")" ]]; }

# mount: what a kubelet does within a minute.
mount_certificate() {
  mkdir -p "$work/mounted"
  (umask 077 && of_secret tls.key >"$work/mounted/.key" && of_secret tls.crt >"$work/mounted/.crt")
  mv "$work/mounted/.key" "$work/mounted/tls.key"
  mv "$work/mounted/.crt" "$work/mounted/tls.crt"
}

# begin_pod NAME: and waits until its readiness probe succeeds; front and admin are its.
begin_pod() {
  local args
  mapfile -t args < <(deployed gatepost)
  start "$1" "$gatepost" "${args[@]}" --replica "$1"
  front="$(told "$1" 'listening tcp (.*)')"
  admin="$(told "$1" 'listening admin (.*)')"
  eventually "in cluster: $1 is ready" curl -fsS "http://$admin/readyz?fresh"
}

# endpoint SERVICE NAME ADDRESS READY: the slice of that name has this endpoint; that of the Pod NAME is called gatepost-NAME.
endpoint() {
  kubectl apply --server-side --filename - >"$work/said" 2>&1 <<YAML || broken "an endpoint of $1"
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: $2, namespace: ${1%/*}, labels: {kubernetes.io/service-name: ${1#*/}}}
addressType: IPv4
endpoints: [{addresses: ["${3%:*}"], conditions: {ready: $4, serving: true, terminating: $([[ $4 == true ]] && echo false || echo true)}, targetRef: {kind: Pod, namespace: ${1%/*}, name: ${2#gatepost-}}}]
ports: [{name: https, port: ${3##*:}, protocol: TCP}]
YAML
}

# begin_service_hook NAME: a hook that only its Service leads to.
begin_service_hook() {
  start "$1" "$work/hook" -listen "$reachable:0" -cert "$work/service.crt" -key "$work/service.key" -judged "$work/judged"
  endpoint move/move-first move-first "$(told "$1" 'listening (.*)')" true
}

# shown ADDRESS: the fingerprint of the certificate there.
shown() { openssl s_client -connect "$1" -servername gatepost.gatepost.svc </dev/null 2>/dev/null | openssl x509 -noout -fingerprint; }

shows_another() { [[ "$(shown "$1")" != "$2" ]]; }

# as_a_pod NAME: the Pod of that Deployment, as the apiserver would take it from a ReplicaSet.
as_a_pod() {
  in_gatepost get deployment "$1" -o 'jsonpath={.spec.template}' |
    sed 's|^{"metadata":{|{"apiVersion":"v1","kind":"Pod","metadata":{"name":"trial","namespace":"gatepost",|' |
    kubectl create --dry-run=server --validate=strict --filename -
}

bundle_of_registration() { kubectl get validatingwebhookconfiguration gatepost -o 'jsonpath={.webhooks[0].clientConfig.caBundle}' | base64 -d; }

# authorities NUMBER: so many are in the registration's bundle.
authorities() { [[ "$(bundle_of_registration | grep -c 'BEGIN CERTIFICATE')" == "$1" ]]; }

# in_cluster_no: a write that the hook behind a Service refuses; a dry run.
in_cluster_no() {
  echo "{\"apiVersion\": \"v1\", \"kind\": \"ConfigMap\", \"metadata\": {\"name\": \"no\", \"annotations\": {$(annotation 'move-first={"allowed": false, "status": {"message": "as it should be"}}')}}}" |
    kubectl --namespace move create --dry-run=server --filename -
}

webhooks_are() { [[ "$(kubectl get validatingwebhookconfiguration gatepost -o 'jsonpath={range .webhooks[*]}x{end}')" == "$1" ]]; }

# in_cluster_rights: what the two accounts need, and none of what they do not.
in_cluster_rights() {
  local serve=system:serviceaccount:gatepost:gatepost certificates=system:serviceaccount:gatepost:gatepost-certificates asked
  for asked in "get secrets/gatepost-tls" "patch secrets/gatepost-tls" "list endpointslices"; do
    # shellcheck disable=SC2086 # a verb and a resource
    check "in cluster: the certificates' account may $asked" in_gatepost auth can-i --as "$certificates" $asked
  done
  for asked in "get secrets/other" "create secrets" "delete secrets/gatepost-tls" "list secrets"; do
    # shellcheck disable=SC2086
    check "in cluster: the certificates' account may not $asked" not in_gatepost auth can-i --as "$certificates" $asked
    # shellcheck disable=SC2086
    check "in cluster: the replicas' account may not $asked" not in_gatepost auth can-i --as "$serve" $asked
  done
  check "in cluster: nor patch the registration" not may "$serve" patch validatingwebhookconfigurations/gatepost
  check "in cluster: nor may the certificates' account patch another" not may "$certificates" patch validatingwebhookconfigurations/other
}

# rollout: each of two Pods is replaced as the Deployment says, under the stream of writes.
rollout() {
  local n old new old_front
  for n in 1 2; do
    old="pod-$n" new="pod-$((n + 2))" old_front="${pods[$n]}"
    begin_pod "$new"
    endpoint gatepost/gatepost "gatepost-$new" "$front" true
    event "$new is an endpoint"
    sleep 1
    # It is about to end: no endpoint, but serving on for the pause of preStop (3 s here).
    endpoint gatepost/gatepost "gatepost-$old" "$old_front" false
    event "$old is none any more"
    sleep 3
    check "in cluster: $old ends, and has cut nothing" stop "$old"
    event "$old has ended"
    in_gatepost delete endpointslice "gatepost-$old" >"$work/said" 2>&1 || broken "an endpoint of the Service"
    pods[n]="$front"
  done
}

# renewal: under the stream of writes, by the chapter's command beside the Deployment's process.
renewal() {
  local before pid code=0
  before="$(shown "${pods[1]}")"
  documented "$in_chapter" '--renew' >"$work/renew.commands"
  KUBECONFIG="$work/cluster/kubeconfig" in_shell "$work/renew.commands" >"$work/renew.out" 2>"$work/renew.log" &
  pid=$!
  eventually "in cluster: renewed, the registration trusts two authorities" authorities 2
  event "two authorities are trusted"
  eventually "in cluster: then the new certificate is to be served" grep -q 'the next certificate is to be served' "$work/certificates.log"
  check "in cluster: until it is mounted, the old one is" test "$(shown "${pods[1]}")" = "$before"
  mount_certificate
  eventually "in cluster: the first Pod shows the new one" shows_another "${pods[1]}" "$before"
  eventually "in cluster: and so does the second" shows_another "${pods[2]}" "$before"
  event "the new certificate is served"
  eventually "in cluster: and the old authority is not trusted any more" authorities 1
  check "in cluster: nor is it in ca.crt" test "$(of_secret ca.crt | grep -c BEGIN)" = 1
  event "one authority is trusted"
  wait "$pid" || code=$?
  cp "$work/renew.log" "$work/said"
  said "in cluster: the chapter's command has ended well" "$code"
}

# register_other KIND NAME ADDRESS: a webhook of somebody else, that leaves no namespace out.
register_other() {
  kubectl apply --server-side --field-manager owner --filename - <<YAML
apiVersion: admissionregistration.k8s.io/v1
kind: $1WebhookConfiguration
metadata: {name: $2}
webhooks:
- name: $2.e2e.gatepost.dev
  clientConfig: {url: "https://$3/json/$2", caBundle: $(base64 -w0 "$work/ca.crt")}
  timeoutSeconds: 2
  rules:
  - operations: [CREATE, UPDATE, DELETE]
    apiGroups: [""]
    apiVersions: [v1]
    resources: [configmaps, namespaces, namespaces/status, serviceaccounts/token]
  - {operations: [CREATE], apiGroups: [rbac.authorization.k8s.io], apiVersions: [v1], resources: [clusterroles]}
  admissionReviewVersions: [v1]
  sideEffects: None
YAML
}

# called_once directly|by-gatepost COMMAND...: the webhook $others judges that once, called by kube-apiserver itself or not.
called_once() {
  local how="$1" judged direct
  shift
  judged="$(grep -c "^$others " "$work/judged")" direct="$(asked_directly "$others")"
  "$@" || return 1
  judged=$(($(grep -c "^$others " "$work/judged") - judged)) direct=$(($(asked_directly "$others") - direct))
  echo "judged $judged times, called by kube-apiserver $direct times"
  ((judged == 1)) && { if [[ "$how" == directly ]]; then ((direct == 1)); else ((direct == 0)); fi; }
}

# dry VERB...: nothing is stored.
dry() { kubectl "$1" --dry-run=server "${@:2}"; }

# generated_namespace: one whose name is made up, and that has the label of another.
generated_namespace() {
  echo '{apiVersion: v1, kind: Namespace, metadata: {generateName: x-, labels: {kubernetes.io/metadata.name: kube-system}}}' | dry create -f -
}

served_in() { kubectl get validatingwebhookconfiguration other -o "jsonpath={.webhooks[0].matchConditions[0].expression}" | grep -qF -- "$1"; }

# leave_out NAME: the registration never sends this namespace either.
leave_out() {
  kubectl get validatingwebhookconfiguration gatepost -o json |
    sed -e "s/\"kube-node-lease\",/\"kube-node-lease\", \"$1\",/" -e "s/\"gatepost,kube-node-lease,/\"gatepost,kube-node-lease,$1,/" | kubectl replace -f -
}

# write_everywhere: into two namespaces, of which the second is never sent, until the file of that name is gone.
write_everywhere() {
  local n
  for ((n = 0; ; n++)); do
    [[ -e "$work/everywhere" ]] || break
    dry create --namespace move configmap "sent-$n" && echo "sent-$n" >>"$work/everywhere.sent"
    dry create --namespace kube-system configmap "kept-$n" && echo "kept-$n" >>"$work/everywhere.kept"
  done
}

# judged_everywhere: all of them, and those that are never sent once.
judged_everywhere() {
  local name
  [[ -s "$work/everywhere.sent" && -s "$work/everywhere.kept" ]] || return 1
  while read -r name; do grep -qx "other CREATE $name" "$work/judged" || { echo "$name was not judged"; return 1; }; done <"$work/everywhere.sent"
  while read -r name; do
    [[ "$(grep -cx "other CREATE $name" "$work/judged")" == 1 ]] || { echo "$name was not judged once"; return 1; }
  done <"$work/everywhere.kept"
}

# in_cluster_adopting_mutating ADDRESS: and so is a mutating one, for which Gatepost is not registered yet.
in_cluster_adopting_mutating() {
  local others=changing
  check "in cluster: a mutating webhook, which leaves no namespace out either" register_other Mutating changing "$1"
  of_secret ca.crt >"$work/etc/ca.crt"
  KUBECONFIG="$work/cluster/kubeconfig" follow "in cluster: Gatepost is registered for it" "$in_chapter" 'gatepost import --kind all'
  check "in cluster: it is taken over" adopt changing --timeout 2m
  check "in cluster: a write elsewhere goes through Gatepost" called_once by-gatepost dry create --namespace move configmap changed-1
  check "in cluster: one in kube-system does not" called_once directly dry create --namespace kube-system configmap changed-2
  check "in cluster: an object outside of namespaces does" called_once by-gatepost dry create clusterrole changed-3 --verb get --resource pods
  check "in cluster: and a namespace" called_once by-gatepost dry create namespace changed-4
  # Its label counts, as it has no name yet.
  check "in cluster: but not one that says it is kube-system" called_once directly generated_namespace
  check "in cluster: it is given back" release changing
  check "in cluster: a write elsewhere is judged once" called_once directly dry create --namespace move configmap changed-5
  check "in cluster: and so is one in kube-system" called_once directly dry create --namespace kube-system configmap changed-6
  kubectl delete mutatingwebhookconfiguration changing >"$work/said" 2>&1 || broken "removing the mutating webhook"
}

# in_cluster_adopting ADDRESS: a webhook of somebody else, there, is taken over and given back behind the Service.
in_cluster_adopting() {
  local n others=other
  check "in cluster: a webhook of somebody else, which leaves no namespace out" register_other Validating other "$1"
  eventually "in cluster: it judges" called_once directly dry create --namespace move configmap first
  mkdir -p "$work/etc/adopting"
  documented "$in_chapter" 'components:' |
    sed "s|\.\./gatepost/$deploy|$(realpath --relative-to "$work/etc/adopting" "$deploy")|" >"$work/etc/adopting/kustomization.yaml"
  follow "in cluster: the component for taking over is applied" "$in_chapter" 'kubectl apply --server-side -k /etc/gatepost/adopting'
  allows "in cluster: every object of it is accepted, without a warning" kubectl apply --server-side --dry-run=server --validate=strict \
    -k "$work/etc/adopting"
  for n in 5 6; do
    begin_pod "pod-$n"
    endpoint gatepost/gatepost "gatepost-pod-$n" "$front" true
  done
  refuses "in cluster: while replicas without --adopt are called, nothing is taken over" \
    'pod-3, pod-4 behind the Service gatepost/gatepost has no lease of --adopt' adopt other --timeout 20s
  check "in cluster: it is not wanted any more" release other
  for n in 3 4; do
    in_gatepost delete endpointslice "gatepost-pod-$n" >"$work/said" 2>&1 || broken "an endpoint of the Service"
  done
  sleep 2
  for n in 3 4; do check "in cluster: pod-$n, which takes nothing over, ends" stop "pod-$n"; done

  : >"$work/everywhere"
  write_everywhere >"$work/everywhere.log" 2>&1 &
  process[everywhere]=$!
  check "in cluster: it is taken over" adopt other --timeout 2m
  check "in cluster: but in the namespaces that are never sent" served_in "['gatepost', 'kube-node-lease', 'kube-system']"
  prints "in cluster: the plan says so" 'taken             validating/other/other.e2e.gatepost.dev' adopt --plan
  sleep 5
  rm "$work/everywhere"
  wait "${process[everywhere]}"
  unset "process[everywhere]"
  check "in cluster: each write meanwhile was judged, and in kube-system once" judged_everywhere

  check "in cluster: a write elsewhere goes through Gatepost" called_once by-gatepost dry create --namespace move configmap second
  check "in cluster: one in kube-system does not" called_once directly dry create --namespace kube-system configmap third
  check "in cluster: nor in Gatepost's own namespace" called_once directly dry create --namespace gatepost configmap fourth
  kubectl --namespace kube-system create serviceaccount other >"$work/said" 2>&1 || broken "a service account"
  check "in cluster: nor a subresource there" called_once directly kubectl --namespace kube-system create token other
  check "in cluster: an object outside of namespaces does" called_once by-gatepost dry create clusterrole fifth --verb get --resource pods
  check "in cluster: and a namespace" called_once by-gatepost dry create namespace sixth
  check "in cluster: and its change" called_once by-gatepost dry label namespace move seen=yes
  check "in cluster: and its end" called_once by-gatepost dry delete namespace move
  check "in cluster: and one whose name is made up" called_once by-gatepost generated_namespace
  check "in cluster: but not a change of kube-system itself" called_once directly dry label namespace kube-system seen=yes
  check "in cluster: nor of its status" called_once directly dry patch namespace kube-system --subresource status --type merge \
    -p '{"metadata": {"annotations": {"seen": "yes"}}}'

  check "in cluster: a namespace that it shall not be sent of" kubectl create namespace quiet
  eventually "in cluster: it is left out of the registration" leave_out quiet
  eventually "in cluster: which the condition follows" served_in "'kube-node-lease', 'kube-system', 'quiet']"
  eventually "in cluster: and so does kube-apiserver" called_once directly dry create --namespace quiet configmap seventh
  check "in cluster: a write elsewhere still goes through Gatepost" called_once by-gatepost dry create --namespace move configmap eighth

  check "in cluster: it is given back" release other
  check "in cluster: it carries no condition" carries_not validating other
  check "in cluster: a write elsewhere is judged once" called_once directly dry create --namespace move configmap ninth
  check "in cluster: and so is one in kube-system" called_once directly dry create --namespace kube-system configmap tenth
  kubectl delete validatingwebhookconfiguration other >"$work/said" 2>&1 || broken "removing the webhook of somebody else"
}

in_cluster() {
  local reachable args pods=() streaming streamed_since first plain account
  echo "======== in cluster: Gatepost behind a Service"
  reachable="$(reachable_address)" || {
    echo "################ NOT RUN: in cluster: this machine has no address but loopback"
    return
  }
  begin_path
  follow "in cluster: 1. the kinds are installed" "$in_chapter" 'gatepost crd | kubectl apply --server-side'
  allows "in cluster: the network policy is accepted" kubectl apply --dry-run=client -f "$deploy/in-cluster/network-policy.yaml"
  follow "in cluster: and Gatepost" "$in_chapter" 'kubectl apply --server-side -k deploy/kubernetes/in-cluster'
  allows "in cluster: every object is accepted, without a warning" kubectl apply --server-side --dry-run=server --validate=strict \
    -k "$deploy/in-cluster"
  allows "in cluster: and the network policy" kubectl apply --dry-run=server --validate=strict -f "$deploy/in-cluster/network-policy.yaml"
  for account in gatepost gatepost-certificates; do
    check "in cluster: the Pods of $account are accepted, with their priority" as_a_pod "$account"
    as_account "$account"
  done
  in_cluster_rights

  check "in cluster: without a certificate its Secret is empty" not in_secret tls.crt
  mapfile -t args < <(deployed gatepost-certificates)
  start certificates "$gatepost" "${args[@]}" --settle 1s --every 1s
  eventually "in cluster: the certificate is made" in_secret tls.crt
  follow "in cluster: the base is applied once more" "$in_chapter" 'kubectl apply --server-side -k deploy/kubernetes/in-cluster'
  check "in cluster: and takes nothing away" in_secret tls.key
  mount_certificate
  for n in 1 2; do
    begin_pod "pod-$n"
    pods[n]="$front"
    endpoint gatepost/gatepost "gatepost-pod-$n" "$front" true
  done

  begin_movers
  kubectl delete -f "$work/move.yaml" >"$work/said" 2>&1 || broken "unregistering the hooks that moved"
  server_certificate "$work/service" "$work/ca" /CN=move-first DNS:move-first.move.svc
  kubectl --namespace move create service clusterip move-first --tcp 443:8443 --dry-run=client -o yaml |
    sed 's/name: 443-8443/name: https/' | kubectl apply --server-side --filename - >"$work/said" 2>&1 || broken "a Service for a hook"
  begin_service_hook service-one
  first="$(told move-first 'listening (.*)')"
  plain="$(told move-plain 'listening (.*)')"
  sed -e "s|@HOOKS@|$first|" -e "s|@PLAIN@|$plain|" -e "s|@CA@|$(base64 -w0 "$work/ca.crt")|" \
    -e "s|@PLAIN_CA@|$(base64 -w0 "$work/plain/tls.crt")|" config/in-cluster.yaml >"$work/etc/hooks.yaml"
  follow "in cluster: 3. the hooks are checked and applied" "$in_chapter" 'gatepost check /etc/gatepost/hooks.yaml'
  for n in 1 2; do
    admin="$(told "pod-$n" 'listening admin (.*)')"
    # One that is probed is not asked yet.
    eventually "in cluster: pod-$n has them, in rotation" metric_is 'gatepost_hooks_by_state{state="active"}' 3
  done
  follow "in cluster: 4. Gatepost is registered" "$in_chapter" 'get secret gatepost-tls'
  prints "in cluster: it never sends its own namespace" '[gatepost,kube-node-lease,kube-system]' \
    kubectl get validatingwebhookconfiguration gatepost -o 'jsonpath=[{range .webhooks[0].namespaceSelector.matchExpressions[?(@.operator=="NotIn")]}{.values[0]},{.values[1]},{.values[2]}{end}]'

  # It is watched by apiservers, and in force a moment later.
  eventually "in cluster: and asked" refused_for 'as it should be' in_cluster_no
  # Each read of the configuration asks the same apiserver, which may take 800 ms: no more than it can do in time.
  begin_stream in-cluster "${IN_CLUSTER_RATE:-50}"
  eventually "in cluster: every hook judges" judged_by move-first move-plain move-third
  follow "in cluster: 5. as the number says that the chapter names" "$in_chapter" 'apiserver_admission_webhook_request_total.*gatepost'
  rollout
  renewal
  end_stream

  begin_service_hook service-two
  check "in cluster: the Pod of a hook ends" stop service-one
  eventually "in cluster: and another is dialled, which no name leads to" kubectl --namespace move create configmap dialled --dry-run=server
  check "in cluster: by the log no look-up was needed" not grep -q 'EndpointSlices for' "$work/pod-3.log"

  # An operator who applies a registration must be able to take an entry out again, although others write into it.
  webhooks_are xx || broken "the registration has not two webhooks"
  sed '/^---/,$d' "$work/etc/hooks.yaml" >"$work/etc/fewer.yaml"
  "$gatepost" register --service gatepost/gatepost --config "$work/etc/fewer.yaml" >"$work/fewer.yaml"
  allows "in cluster: a registration printed anew, without a bundle, is accepted" kubectl apply --server-side -f "$work/fewer.yaml"
  check "in cluster: an entry that is not in it is gone" webhooks_are x
  eventually "in cluster: the bundle is there" authorities 1
  check "in cluster: no key is in any log" not grep -l 'PRIVATE KEY' "$work"/*.log "$work"/*.out

  in_cluster_adopting "$first"
  in_cluster_adopting_mutating "$first"

  follow "in cluster: it is removed, and nothing can prevent that" "$in_chapter" 'validatingwebhookconfigurations,mutatingwebhookconfigurations gatepost'
  allows "in cluster: writes pass" kubectl --namespace move create configmap unguarded --dry-run=server
  for n in certificates pod-5 pod-6 service-two move-first move-plain; do check "in cluster: $n ends well when asked to" stop "$n"; done
}
