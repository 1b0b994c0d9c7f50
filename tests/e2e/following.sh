# That Gatepost follows the cluster's namespaces: what it says of that, what a restart of kube-apiserver does to it, and
# what becomes of requests when it may not.

# selected NAMESPACE [SCRIPT]: a config map there, which hooks want where the namespace is labelled so; a dry run.
selected() {
  echo "{\"apiVersion\": \"v1\", \"kind\": \"ConfigMap\", \"metadata\": {\"name\": \"selected\", \"annotations\": {$(annotation "${2:-selected=$never}")}}}" |
    kubectl create --namespace "$1" --dry-run=server --filename -
}
never='{"allowed": false, "status": {"message": "never here"}}'

relabel() { kubectl label namespace "$1" --overwrite "$2"; }

# knows_all: as many namespaces are known as there are.
knows_all() { metric_is gatepost_namespaces "$(kubectl get namespaces --output name | wc -l)"; }

# configz JSON: the page has this somewhere.
configz() { curl -fsS "http://$admin/configz" | tr -d ' \n' | grep -qF -- "$1"; }

less_than() { awk -v one="$(metric "$1")" -v other="$2" 'BEGIN { exit !(one < other) }'; }

following() {
  eventually "$mode: every namespace is known" knows_all
  check "$mode: /configz says that namespaces are followed" configz '"followed":true'
  check "$mode: what is known of them is fresh" less_than gatepost_namespaces_age_seconds 60
}

# kube-apiserver has been away: what changes as soon as it is back must not be missed.
after_restart() {
  check "$mode: a namespace is labelled at once" relabel e2e e2e=selected
  eventually "$mode: and hooks that select it are asked" refused_for 'never here' selected e2e
  check "$mode: its label is removed" relabel e2e e2e-
  eventually "$mode: and they are not asked" selected e2e
  allows "$mode: a namespace is made" kubectl create namespace e2e-after
  allows "$mode: an object in it is allowed" selected e2e-after
  allows "$mode: it is deleted" forget_namespace e2e-after
  eventually "$mode: every namespace is known again" knows_all
  # Fresh again: a watch lives, and not only the list.
  eventually "$mode: what is known of them is fresh again" less_than gatepost_namespaces_age_seconds 15
  check "$mode: the log says that they could not be followed" grep -q 'cannot watch namespaces.*cannot reach the apiserver' "$work/gatepost.log"
  check "$mode: and that they can be again" grep -q 'watching namespaces again' "$work/gatepost.log"
}

# posted KIND: what a Gatepost at $blind_front answers about an object of this kind in namespace e2e.
posted() {
  local resource="${1,,}s"
  curl -sS --cacert "$work/ca.crt" --json @- "https://$blind_front/validate?timeout=5s" <<JSON
{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "blind", "operation": "CREATE",
 "kind": {"group": "", "version": "v1", "kind": "$1"}, "resource": {"group": "", "version": "v1", "resource": "$resource"},
 "namespace": "e2e", "name": "blind", "userInfo": {"username": "trial"},
 "object": {"apiVersion": "v1", "kind": "$1", "metadata": {"name": "blind", "namespace": "e2e"}}}}
JSON
}

in_log() { grep -q -- "$1" "$work/blind.log"; }

# blind: Gateposts whom the cluster does not let see its namespaces.
blind() {
  local name code why
  sed 's/token: .*}/token: "wrong"}/' "$work/cluster/kubeconfig" >"$work/kubeconfig-401"
  sed 's/user: {token: .*}/user: {}/' "$work/cluster/kubeconfig" >"$work/kubeconfig-403"
  for code in 401 403; do
    start blind "$gatepost" serve --config "$work/folder" --namespaces-from "$work/kubeconfig-$code" \
      --listen 127.0.0.1:0 --admin 127.0.0.1:0 --tls-cert "$work/gatepost.crt" --tls-key "$work/gatepost.key"
    told blind '(ready generation.*)' >/dev/null
    blind_front="$(told blind 'listening tcp (.*)')"
    eventually "$code for its namespaces: the log says so" in_log "cannot watch namespaces.*answers $code"
    prints "$code for its namespaces: what needs them is refused" '"code":500' posted ConfigMap
    prints "$code for its namespaces: and says where to read why" "and Gatepost's log says why" posted ConfigMap
    check "$code for its namespaces: it is there" in_log "cannot look up a namespace.*answers $code"
    prints "$code for its namespaces: what does not is allowed" '"allowed":true' posted Pod
    check "$code for its namespaces: it ends well when asked to" stop blind
  done
}
