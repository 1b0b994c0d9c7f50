# Actions of people with kubectl, told the same way whoever asks the hooks.

# object KIND NAME [SCRIPT]: a manifest; the script, HOOK=JSON, says what a hook answers about it.
object() {
  local kind="$1" name="$2" script="${3:-}" version=v1 spec labels=
  case "$kind" in
    Pod) spec='{"containers": [{"name": "main", "image": "registry.example/app:1"}]}' ;;
    Deployment)
      version=apps/v1
      spec='{"selector": {"matchLabels": {"app": "story"}}, "template": {"metadata": {"labels": {"app": "story"}}, "spec": {"containers": [{"name": "main", "image": "registry.example/app:1"}]}}}'
      ;;
    Namespace) spec='{}' ;;
    Widget) version=e2e.gatepost.dev/v1 spec='{"size": 1}' ;;
  esac
  case "$script" in
    strict=* | lenient=*) labels="\"break\": \"${script%%=*}\"" ;;
  esac
  cat <<JSON
{"apiVersion": "$version", "kind": "$kind", "spec": $spec,
 "metadata": {"name": "$name", "labels": {$labels}, "annotations": {$(annotation "$script")}}}
JSON
}

annotation() {
  [[ -z "$1" ]] || echo "\"e2e.gatepost.dev/${1%%=*}\": \"$(sed 's/["\\]/\\&/g' <<<"${1#*=}")\""
}

# make KIND NAME SCRIPT [kubectl flags]
make() {
  local kind="$1" name="$2" script="$3"
  shift 3
  object "$kind" "$name" "$script" | kubectl create --namespace "$([[ $kind == Namespace ]] || echo e2e)" --filename - "$@"
}

in_e2e() { kubectl --namespace e2e "$@"; }

# A namespace goes when someone has seen that it is empty; here there is no controller for that.
forget_namespace() {
  kubectl delete namespace "$1" --wait=false && echo "{\"apiVersion\": \"v1\", \"kind\": \"Namespace\", \"metadata\": {\"name\": \"$1\"}}" |
    kubectl replace --raw "/api/v1/namespaces/$1/finalize" --filename -
}

# story MODE
story() {
  local mode="$1" no='{"allowed": false, "status": {"message": "not today"}}' began_hang

  allows "$mode: a pod is made" make Pod story ''
  refuses "$mode: a pod is refused, and kubectl says why" 'denied the request: not today' make Pod refused "pods=$no"
  prints "$mode: a refused pod is not there" 'pods "refused" not found' not in_e2e get pod refused
  refuses "$mode: a refusal has its code and reason" 'Error from server (Conflict)' \
    make Pod refused 'pods={"allowed": false, "status": {"code": 409, "reason": "Conflict", "message": "not yet"}}'
  prints "$mode: kubectl shows a warning" 'Warning: mind the gap' make Pod warned 'pods={"warnings": ["mind the gap"]}'
  prints "$mode: kubectl shows the warnings of two hooks" 'Warning: from second' \
    make Pod twice 'second={"warnings": ["from second"]}'

  allows "$mode: a dry run is allowed" make Pod dry '' --dry-run=server
  prints "$mode: a dry run leaves nothing" 'pods "dry" not found' not in_e2e get pod dry
  refuses "$mode: a dry run is refused" 'not today' make Pod dry "pods=$no" --dry-run=server

  allows "$mode: a pod is updated" in_e2e label pod story step=1
  refuses "$mode: an update of a pod is refused" 'not today' in_e2e annotate pod story "e2e.gatepost.dev/pods=$no"
  allows "$mode: a pod is deleted" in_e2e delete pod story
  allows "$mode: a pod is made that refuses its deletion" make Pod clinging "deleting=$no"
  refuses "$mode: a deletion of a pod is refused" 'not today' in_e2e delete pod clinging
  allows "$mode: it lets go" in_e2e annotate pod clinging e2e.gatepost.dev/deleting-
  check "$mode: all pods are deleted" in_e2e delete pods --all

  allows "$mode: a deployment is made" make Deployment story ''
  refuses "$mode: a deployment is refused" 'not today' make Deployment refused "deployments=$no"
  allows "$mode: a deployment is scaled" in_e2e scale deployment story --replicas=2
  refuses "$mode: an update of a deployment is refused" 'not today' in_e2e annotate deployment story "e2e.gatepost.dev/deployments=$no"
  allows "$mode: a deployment is deleted" in_e2e delete deployment story

  allows "$mode: a namespace is made" make Namespace e2e-story ''
  refuses "$mode: a namespace is refused" 'not today' make Namespace e2e-refused "namespaces=$no"
  refuses "$mode: an update of a namespace is refused" 'not today' kubectl annotate namespace e2e-story "e2e.gatepost.dev/namespaces=$no"
  allows "$mode: a namespace is deleted" forget_namespace e2e-story

  allows "$mode: a widget is made" make Widget story ''
  refuses "$mode: a widget is refused" 'not today' make Widget refused "widgets=$no"
  allows "$mode: a widget is updated" in_e2e patch widget story --type merge --patch '{"spec": {"size": 2}}'
  refuses "$mode: an update of a widget is refused" 'not today' in_e2e annotate widget story "e2e.gatepost.dev/widgets=$no"
  allows "$mode: a widget is deleted" in_e2e delete widget story

  allows "$mode: a hook with a plain openssl certificate is asked" asking plain yes
  refuses "$mode: and what it refuses is refused" 'plain.e2e.gatepost.dev' asking plain yes "plain=$no"

  began_hang=$SECONDS
  refuses "$mode: a hook that hangs under Fail refuses" 'strict.e2e.gatepost.dev' make Pod hung 'strict={"do": "hang"}'
  allows "$mode: a hook that hangs under Ignore does not" make Pod hung 'lenient={"do": "hang"}'
  check "$mode: neither took longer than its timeout" test $((SECONDS - began_hang)) -le 8
  refuses "$mode: a hook under Ignore that answers is heard" 'not today' make Pod refused "lenient=$no"

  allows "$mode: a pod is made with a note for the audit log" make Pod noted "pods={\"auditAnnotations\": {\"why\": \"in $mode\"}}"
  check "$mode: the note is in kube-apiserver's audit log" replay audited pods.e2e.gatepost.dev why "=in $mode"
  check "$mode: that a hook that hung was passed over is in the audit log" replay audited failed-open lenient.e2e.gatepost.dev

  in_e2e delete pods --all >"$work/said" 2>&1 || broken "deleting the story's pods"
}

not() { ! "$@"; }
