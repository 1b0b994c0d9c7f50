# Match conditions that ask the cluster's authorizer: each user gets the same answer whether kube-apiserver asks the hooks
# or Gatepost does.

# conditioned USER LABEL NAME: this user makes a config map that the hook of this label is about; a dry run.
conditioned() {
  echo "{\"apiVersion\": \"v1\", \"kind\": \"ConfigMap\", \"metadata\": {\"name\": \"$3\", \"labels\": {\"conditions\": \"$2\"}}}" |
    in_e2e create --dry-run=server --as "$1" --filename -
}

# A command that is refused fails, and so would a pipe of it.
is_refused() { { conditioned "$@" 2>&1 || true; } | grep -q 'denied the request'; }

is_made() { conditioned "$@" >/dev/null 2>&1; }

# conditions_hold HOW: what each user is told about each hook. alice may skip widgets and break glass, bob may not.
conditions_hold() {
  local how="$1" hook user
  for hook in resource request; do
    allows "conditions: $how: $hook: alice, who may, is not held up" conditioned alice "$hook" found
    refuses "conditions: $how: $hook: bob, who may not, is" 'denied the request' conditioned bob "$hook" found
  done
  for user in alice bob; do
    refuses "conditions: $how: path: the robot may not, and $user is held up" 'denied the request' conditioned "$user" path found
    allows "conditions: $how: path: by another name $user is not" conditioned "$user" path other
  done
}

conditions() {
  echo "======== match conditions that ask the authorizer, directly and behind Gatepost"
  local name=conditions
  sed -e "s|@HOOKS@|$hooks|" -e "s|@CA@|$(base64 -w0 "$work/ca.crt")|" config/conditions.yaml >"$work/conditions.yaml"
  kubectl --namespace e2e create role makes --verb=create --resource=configmaps >"$work/said" 2>&1 || broken "a role"
  kubectl --namespace e2e create rolebinding makes --role=makes --user=alice --user=bob >"$work/said" 2>&1 || broken "a role"
  kubectl --namespace e2e create role skips --verb=skip --resource=widgets.e2e.gatepost.dev >"$work/said" 2>&1 || broken "a role"
  kubectl --namespace e2e create rolebinding skips --role=skips --user=alice >"$work/said" 2>&1 || broken "a role"
  kubectl --namespace e2e create role breaks --verb=breakglass --resource=configmaps >"$work/said" 2>&1 || broken "a role"
  kubectl --namespace e2e create rolebinding breaks --role=breaks --user=alice >"$work/said" 2>&1 || broken "a role"
  eventually "$name: bob may make config maps" is_made bob none found

  kubectl apply -f "$work/conditions.yaml" >"$work/said" 2>&1 || broken "registering the hooks"
  eventually "$name: direct: the hooks are asked" is_refused bob resource found
  conditions_hold direct
  kubectl delete -f "$work/conditions.yaml" >"$work/said" 2>&1 || broken "unregistering the hooks"
  eventually "$name: direct: the hooks are asked no more" is_made bob resource found

  rm -rf "$work/folder-of-conditions"
  mkdir "$work/folder-of-conditions"
  cp "$work/conditions.yaml" "$work/folder-of-conditions/"
  refuses "$name: gatepost check wants to be told that there is a cluster to ask" 'asks the authorizer' \
    "$gatepost" check "$work/folder-of-conditions"
  check "$name: and takes it then" "$gatepost" check --authorizer "$work/folder-of-conditions"
  start gatepost "$gatepost" serve --config "$work/folder-of-conditions" --namespaces-from "$work/cluster/kubeconfig" \
    --listen 127.0.0.1:0 --admin 127.0.0.1:0 --tls-cert "$work/gatepost.crt" --tls-key "$work/gatepost.key"
  told gatepost '(ready generation.*)' >/dev/null
  front="$(told gatepost 'listening tcp (.*)')"
  admin="$(told gatepost 'listening admin (.*)')"
  "$gatepost" register --form api --url "https://$front" --ca-file "$work/ca.crt" --config "$work/folder-of-conditions" \
    >"$work/gatepost.yaml" || broken "gatepost register"
  kubectl apply -f "$work/gatepost.yaml" >"$work/said" 2>&1 || broken "registering Gatepost"
  eventually "$name: gatepost: the hooks are asked" is_refused bob resource found
  conditions_hold gatepost
  check "$name: the metrics count what was allowed" counted allowed
  check "$name: and what was denied" counted denied
  check "$name: and nothing has failed" metric_is 'gatepost_access_reviews_total{outcome="failed"}' 0
  kubectl delete -f "$work/gatepost.yaml" >"$work/said" 2>&1 || broken "unregistering Gatepost"
  eventually "$name: gatepost: the hooks are asked no more" is_made bob resource found
  check "$name: gatepost ends well when asked to" stop gatepost
}

counted() { (($(metric "gatepost_access_reviews_total{outcome=\"$1\"}") > 0)); }
