# sample-apiserver behind the aggregator of a kube-apiserver, both with the admission plugin of go/admission compiled in: one
# configuration of one Gatepost decides about the resources of both, in the versions that hooks want.

# The authority by which the aggregated server knows kube-apiserver, and a certificate for the name of its Service.
aggregated_certificates() {
  authority "$work/aggregator-ca" "/CN=trial aggregator"
  client_certificate "$work/aggregator" "$work/aggregator-ca" /CN=aggregator
  server_certificate "$work/wardle" "$work/ca" /CN=wardle DNS:wardle.e2e.svc
}

# Its users and their rights it has from kube-apiserver.
begin_aggregated() {
  local tries wait port
  for ((tries = 0; tries < 20; tries++)); do
    port=$((10000 + RANDOM % 22000))
    start wardle "$BIN/sample-apiserver-gatepost" --bind-address 127.0.0.1 --secure-port "$port" \
      --tls-cert-file "$work/wardle.crt" --tls-private-key-file "$work/wardle.key" --etcd-servers "$(cat "$work/cluster/etcd.url")" \
      --kubeconfig "$work/cluster/kubeconfig" --authentication-kubeconfig "$work/cluster/kubeconfig" \
      --authorization-kubeconfig "$work/cluster/kubeconfig" --admission-control-config-file "$work/admission.yaml"
    for ((wait = 0; wait < 300; wait++)); do
      if curl -fsk "https://127.0.0.1:$port/readyz" >/dev/null 2>&1; then
        wardle_port="$port"
        return
      fi
      kill -0 "${process[wardle]}" 2>/dev/null || break
      sleep 0.1
    done
    grep -q 'address already in use' "$work/wardle.log" || break
  done
  broken "sample-apiserver does not get ready"
}

# The Service leads to loopback by a name, as no EndpointSlice may.
register_aggregated() {
  local version
  {
    cat <<YAML
apiVersion: v1
kind: Service
metadata: {name: wardle, namespace: e2e}
spec: {type: ExternalName, externalName: localhost}
YAML
    for version in v1alpha1 v1beta1; do
      cat <<YAML
---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: $version.wardle.example.com}
spec:
  group: wardle.example.com
  version: $version
  groupPriorityMinimum: 1000
  versionPriority: 15
  service: {namespace: e2e, name: wardle, port: $wardle_port}
  caBundle: $(base64 -w0 "$work/ca.crt")
YAML
    done
  } | kubectl apply --filename - >"$work/said" 2>&1 || broken "registering sample-apiserver"
}

# flunder NAME REFERENCE [HOOK=JSON]: in the newer version.
flunder() {
  cat <<JSON
{"apiVersion": "wardle.example.com/v1beta1", "kind": "Flunder", "metadata": {"name": "$1", "annotations": {$(annotation "${3:-}")}},
 "spec": {"flunderReference": "$2", "referenceType": "Flunder"}}
JSON
}

make_flunder() { flunder "$@" | in_e2e create --filename -; }

# autoscaler PERCENT: in the newer version; a dry run.
autoscaler() {
  in_e2e create --dry-run=server --filename - <<JSON
{"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "scaler"}, "spec": {"maxReplicas": 3,
 "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"},
 "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": $1}}}]}}
JSON
}

# fischer: of which no rule is; a dry run.
fischer() {
  in_e2e create --dry-run=server --filename - <<'JSON'
{"apiVersion": "wardle.example.com/v1alpha1", "kind": "Fischer", "metadata": {"name": "fischer"}}
JSON
}

# flunder_has PATH VALUE
flunder_has() { [[ "$(in_e2e get flunders.v1beta1.wardle.example.com/painted -o "jsonpath={$1}")" == "$2" ]]; }

aggregated() {
  echo "======== aggregated: sample-apiserver behind kube-apiserver, both with the compiled-in plugin"
  local no='{"allowed": false, "status": {"message": "not today"}}'
  aggregated_certificates
  build_plugged
  rm -rf "$work/folder"
  mkdir "$work/folder"
  cp "$work/hooks.yaml" "$work/folder/"
  sed -e "s|@HOOKS@|$hooks|" -e "s|@CA@|$(base64 -w0 "$work/ca.crt")|" config/aggregated.yaml | put aggregated.yaml
  begin_gatepost_of_plugin aggregated
  check "aggregated: kube-apiserver stops" kube/cluster.sh stop "$work/cluster"
  plugin_configuration Fail
  # Services by their own addresses: an ExternalName has no endpoints.
  APISERVER=kube-apiserver-gatepost kube/cluster.sh start "$work/cluster" --admission-control-config-file "$work/admission.yaml" \
    --requestheader-client-ca-file "$work/aggregator-ca.crt" --requestheader-allowed-names aggregator \
    --requestheader-username-headers X-Remote-User --requestheader-group-headers X-Remote-Group \
    --requestheader-extra-headers-prefix X-Remote-Extra- \
    --proxy-client-cert-file "$work/aggregator.crt" --proxy-client-key-file "$work/aggregator.key" || broken "the cluster does not start"
  begin_aggregated
  register_aggregated
  check "aggregated: kube-apiserver passes requests on" kubectl wait --for=condition=Available --timeout=60s \
    apiservice/v1alpha1.wardle.example.com apiservice/v1beta1.wardle.example.com
  eventually "aggregated: both servers follow the rule index" metric_is gatepost_rule_index_followers 2

  allows "aggregated: a flunder is made" make_flunder plain x
  refuses "aggregated: a flunder is refused, and kubectl says why" 'flunders.e2e.gatepost.dev" denied the request: not today' make_flunder refused x "flunders=$no"
  prints "aggregated: kubectl shows a warning" 'Warning: mind the gap' make_flunder warned x 'flunders={"warnings": ["mind the gap"]}'
  refuses "aggregated: an update of a flunder is refused" 'not today' in_e2e annotate flunder plain "e2e.gatepost.dev/flunders=$no"
  allows "aggregated: a flunder is deleted" in_e2e delete flunder plain
  check "aggregated: a flunder is changed" make_flunder painted x "paint=$(patch '[{"op": "add", "path": "/metadata/labels", "value": {"paint": "red"}}]')"
  check "aggregated: as its hook wants it" flunder_has .metadata.labels.paint red
  eventually "aggregated: a write that no rule matches makes no call" makes_no_call fischer

  refuses "aggregated: a hook that wants v1alpha1 gets it of a client that writes v1beta1" 'older-flunders.e2e.gatepost.dev" denied the request' make_flunder refused banned
  in_e2e delete flunder painted >"$work/said" 2>&1 || broken "deleting a flunder"
  check "aggregated: and one that changes it" make_flunder painted x "older-paint=$(patch '[{"op": "replace", "path": "/spec/reference", "value": "y"}]')"
  check "aggregated: its change is in the client's version, too" flunder_has .spec.flunderReference y
  in_e2e delete flunder painted >"$work/said" 2>&1 || broken "deleting a flunder"
  allows "aggregated: a flunder is made that refuses its deletion" make_flunder clinging x "older-deleting=$no"
  refuses "aggregated: a deletion is refused in v1alpha1" 'older-deleting.e2e.gatepost.dev" denied the request: not today' in_e2e delete flunder clinging
  refuses "aggregated: what it makes of an object is judged" 'older-flunders.e2e.gatepost.dev" denied the request' \
    make_flunder painted x "older-paint=$(patch '[{"op": "replace", "path": "/spec/reference", "value": "banned"}]')"

  refuses "aggregated: the same configuration is kube-apiserver's" 'canary.e2e.gatepost.dev' asking canary yes 'canary={"allowed": false}'
  allows "aggregated: which converts as well: a write in autoscaling/v2 is allowed" autoscaler 60
  refuses "aggregated: and refused by a hook that wants autoscaling/v1" 'older-autoscalers.e2e.gatepost.dev" denied the request' autoscaler 50

  check "aggregated: Gatepost ends well" stop aggregated
  refuses "aggregated: without Gatepost a flunder is refused" 'failed calling Gatepost (gatepost.v1.Admission/Mutate): no connection to Gatepost' make_flunder nobody x
  begin_gatepost_of_plugin aggregated
  eventually "aggregated: with Gatepost back it is allowed" make_flunder somebody x
  check "aggregated: sample-apiserver ends well" stop wardle
  kubectl delete apiservice v1alpha1.wardle.example.com v1beta1.wardle.example.com >"$work/said" 2>&1 || broken "unregistering sample-apiserver"
  kube/cluster.sh stop "$work/cluster"
  check "aggregated: Gatepost ends well at last" stop aggregated
}
