# That a real kube-apiserver takes the definitions that `gatepost crd` prints, and judges by them as the table
# of each kind in ../definitions says.

# as_written KIND DOCUMENT: a line of the table as a whole object.
as_written() {
  local written="$2"
  written="${written//@HOOK/@NAME, @CLIENT, @RULES}"
  written="${written//@NAME/name: a.example.com}"
  written="${written//@CLIENT/"clientConfig: {url: 'grpc://127.0.0.1:9001'}"}"
  written="${written//@RULES/rules: []}"
  written="${written//@GROUP/"apiGroups: [''], apiVersions: [v1]"}"
  written="${written//@CA/$(base64 -w0 "$work/ca.crt")}"
  written="${written#\{}"
  written="${written%\}}"
  echo "{apiVersion: gatepost.dev/v1alpha1, kind: $1, metadata: {name: written}${written:+, $written}}"
}

# A dry run goes through the schema, the rules and everything else but the store. As kubectl asks,
# without the time that kubectl takes to start: there are two hundred lines.
applied() {
  local kind="$1" resource code=0
  case "$kind" in
    AdmissionControlConfiguration) resource=admissioncontrolconfigurations ;;
    BreakGlass) resource=breakglasses ;;
  esac
  as_written "$kind" "$2" | curl -sS --fail-with-body --cacert "$work/cluster/ca.crt" -H "Authorization: Bearer $(cat "$work/cluster/token")" \
    -H 'Content-Type: application/yaml' --data-binary @- \
    "$(cat "$work/cluster/url")/apis/gatepost.dev/v1alpha1/$resource?dryRun=All&fieldValidation=Strict" >"$work/answer" || code=$?
  sed -n 's/\\"/"/g; s/^ *"message": //p' "$work/answer"
  return "$code"
}

define() { "$gatepost" crd | kubectl apply --filename -; }

# condition_is DEFINITION TYPE STATUS: empty where there is to be no such condition.
condition_is() { test "$(kubectl get crd "$1.gatepost.dev" --output "jsonpath={.status.conditions[?(@.type==\"$2\")].status}")" = "$3"; }

# replica NAME GENERATION: what that replica says of itself in the object `default`, as the field manager of its name.
replica() {
  kubectl apply --server-side --subresource=status --field-manager="gatepost-$1" --filename - <<YAML
apiVersion: gatepost.dev/v1alpha1
kind: AdmissionControlConfiguration
metadata: {name: default}
status:
  replicas:
  - {name: $1, version: 0.1.0, generation: $2, observedGeneration: 1, revision: "7", renewed: "2026-01-02T03:04:05Z", stale: false,
     rejected: [], drained: false, hooks: [{name: no-latest.example.com, state: Active, since: "2026-01-02T03:04:05.678Z"}]}
YAML
}

# in_status TEMPLATE TEXT: what jsonpath finds there.
in_status() { test "$(kubectl get acc default --output "jsonpath={.status.$1}")" = "$2"; }

# table KIND
table() {
  local kind="$1" verdict written says
  while IFS=$'\t' read -r verdict written says; do
    case "$verdict" in
      '#'* | '') ;;
      good | check) allows "definitions: $kind accepted: $written" applied "$kind" "$written" ;;
      *) refuses "definitions: $kind refused: $written" "$says" applied "$kind" "$written" ;;
    esac
  done <"../definitions/$kind.tsv"
}

definitions() {
  local kind file said
  echo "======== definitions: kube-apiserver stores our own kinds"
  allows "definitions: kube-apiserver takes them" define
  for kind in admissioncontrolconfigurations breakglasses; do
    eventually "definitions: $kind is established" condition_is "$kind" Established True
    check "definitions: $kind has a structural schema" condition_is "$kind" NonStructuralSchema ""
  done
  prints "definitions: printed again, they change nothing" unchanged define
  for file in ../../examples/config/*/*.yaml; do
    grep -q AdmissionControlConfiguration "$file" || continue
    allows "definitions: accepted: ${file#../../}" kubectl apply --filename "$file"
  done
  table AdmissionControlConfiguration
  table BreakGlass
  prints "definitions: they explain themselves" 'the hook is skipped' kubectl explain acc.externalAdmissionHooks.failurePolicy

  # Two replicas of one object: neither takes the other's words away.
  allows "definitions: a replica writes its status" replica one 1
  allows "definitions: another one writes its own" replica two 2
  allows "definitions: the first one writes again" replica one 3
  check "definitions: both are there" in_status 'replicas[*].name' 'one two'
  check "definitions: each as it last wrote" in_status 'replicas[*].generation' '3 2'
  refuses "definitions: a status is checked too" 'Unsupported value: "Sleeping"' \
    kubectl patch acc default --subresource=status --type merge --patch '{"status": {"replicas": [{"name": "one", "hooks": [{"name": "a", "state": "Sleeping"}]}]}}'
  allows "definitions: who changes the object does not change its status" kubectl annotate acc default changed=yes
  check "definitions: it is still there" in_status 'replicas[*].name' 'one two'

  # We read what a cluster hands back.
  kubectl get acc default --output yaml >"$work/default.yaml" 2>"$work/said" || broken "reading the object back"
  sed -i "s|certificates/ca.crt|$work/ca.crt|; s|certificates/gatepost.crt|$work/gatepost.crt|; s|certificates/gatepost.key|$work/gatepost.key|" "$work/default.yaml"
  check "definitions: gatepost check reads what the cluster stored" "$gatepost" check "$work/default.yaml"
  check "definitions: our kinds are taken away" kubectl delete crd admissioncontrolconfigurations.gatepost.dev breakglasses.gatepost.dev
}
