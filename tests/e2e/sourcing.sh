# That Gatepost reads its configuration from the very apiserver that asks it: with the rights of deploy/kubernetes/ and no
# others, within a second of a write, and never into a deadlock.

deploy="../../deploy/kubernetes"

now_ms() { echo $(($(date +%s%N) / 1000000)); }

# sourced_log TEXT: was it said since the last mark?
sourced_log() { tail -n "+$((mark + 1))" "$work/sourced.log" | grep -qF -- "$1"; }

mark_log() { mark="$(wc -l <"$work/sourced.log")"; }

# A token as kubelet would mount it, replaced as kubelet does.
sourced_token() {
  kubectl --namespace gatepost create token gatepost --duration 10m >"$work/sourced.token.new" 2>"$work/said" || broken "no token for Gatepost"
  mv "$work/sourced.token.new" "$work/sourced.token"
}

# begin_sourced: and does not wait for a configuration.
begin_sourced() {
  sed "s|user: {token: .*}|user: {tokenFile: $work/sourced.token}|" "$work/cluster/kubeconfig" >"$work/sourced.kubeconfig"
  start sourced "$gatepost" serve --source kubernetes --kubeconfig "$work/sourced.kubeconfig" \
    --kube-objects configurations,webhooks --no-drain-finalizer --listen 127.0.0.1:0 --admin 127.0.0.1:0 \
    --tls-cert "$work/gatepost.crt" --tls-key "$work/gatepost.key"
  admin="$(told sourced 'listening admin (.*)')"
  front="$(told sourced 'listening tcp (.*)')"
  blind_front="$front"
}

# Of what is in force only: /configz remembers hooks that are gone by their names.
has_hook() { configz "\"name\":\"$1\",\"namespaceSelector\""; }

# quickly SINCE COMMAND...: until it holds, tried every 20 ms; how many milliseconds after SINCE that was.
quickly() {
  local began="$1" tries
  shift
  for ((tries = 0; tries < 250; tries++)); do
    if "$@"; then echo $(($(now_ms) - began)); return; fi
    sleep 0.02
  done
  return 1
}

# configured NAME...: a configuration object with one hook, which refuses config maps with its label.
configured() { own "$1" "{url: \"https://$hooks/json/canary\", caBundle: \"$(base64 -w0 "$work/ca.crt")\"}" "${2:-}"; }

# How long after a write was acknowledged its state was in force, ten times over.
adoption() {
  local i took slowest=0 all="" seconds
  for i in {1..10}; do
    # Not always at the same time of Gatepost's second.
    sleep "0.$((RANDOM % 10))"
    seconds=$((10 + i))
    configured sourced "" | sed "s/timeout: 5s/timeout: ${seconds}s/" | kubectl apply --filename - >"$work/said" 2>&1 || broken "changing the configuration"
    took="$(quickly "$(now_ms)" configz "\"timeoutMilliseconds\":${seconds}000")" || took=99999
    all+="$took "
    ((took <= slowest)) || slowest=$took
  done
  echo "in force after (ms): $all" | tee "$work/said"
  # One second between reads, and what a read takes; a shared machine gets half a second more.
  ((slowest <= 1500))
}

sourcing() {
  local resource rights began took mark
  echo "======== source: the configuration lives in the cluster"
  kubectl create namespace gatepost --save-config >"$work/said" 2>&1 || broken "a namespace for Gatepost"
  kubectl --namespace gatepost create serviceaccount gatepost --save-config >"$work/said" 2>&1 || broken "a service account for Gatepost"
  sourced_token
  begin_sourced
  mark=0
  eventually "source: without any right, the log says what is missing" sourced_log 'cannot list resource "admissioncontrolconfigurations" in API group "gatepost.dev"'
  eventually "source: and /configz too" configz 'cannotlistresource\"admissioncontrolconfigurations\"'
  prints "source: and every review is refused" LoadingConfiguration posted ConfigMap

  allows "source: the rights of deploy/kubernetes are granted" kubectl apply --filename "$deploy/source.yaml" --filename "$deploy/source-webhooks.yaml"
  eventually "source: the kind is not installed, and the log says how to" sourced_log 'gatepost crd | kubectl apply -f -'
  prints "source: which is no empty configuration" LoadingConfiguration posted ConfigMap
  allows "source: the definitions are applied" define
  eventually "source: a cluster without configurations has no hooks, and /configz says so" configz 'thereisnosuchobject'
  prints "source: nobody is asked" '"allowed":true' posted ConfigMap

  configured sourced | kubectl apply --filename - >"$work/said" 2>&1 || broken "a configuration in the cluster"
  eventually "source: a configuration is written, and its hook is known" has_hook sourced.e2e.gatepost.dev
  check "source: each change is in force within about a second" adoption
  sed 's/^/        /' "$work/said"

  # The apiserver asks for everything, the configuration itself included, and Gatepost asks the apiserver.
  "$gatepost" register --form api --url "https://$front" --ca-file "$work/ca.crt" >"$work/gatepost.yaml"
  kubectl apply --filename "$work/gatepost.yaml" >"$work/register.log" 2>&1 || broken "registering Gatepost"
  eventually "source: Gatepost's own registration is seen, and not asked" configz "Gatepost'sownregistrationisignored"
  eventually "source: kube-apiserver asks Gatepost, and Gatepost the hook" refused_for 'sourced.e2e.gatepost.dev' asking sourced no 'canary={"allowed": false}'
  allows "source: which may allow" asking sourced yes
  configured other >"$work/other.yaml"
  check "source: a second configuration, applied while Gatepost guards the cluster, is waited for" \
    "$gatepost" apply -f "$work/other.yaml" --source kubernetes --kubeconfig "$work/cluster/kubeconfig" --wait
  check "source: it is in force then" has_hook other.e2e.gatepost.dev
  sed 's/timeout: 5s/timeout: 5h/' "$work/other.yaml" >"$work/wrong.yaml"
  check "source: one with a problem is not written" refused_for 'nothing is written' \
    "$gatepost" apply -f "$work/wrong.yaml" --source kubernetes --kubeconfig "$work/cluster/kubeconfig"

  # Nothing tells this Gatepost in which versions the cluster serves config maps.
  configured ninth | sed 's/apiVersions: \[v1\]/apiVersions: [v9]/' | kubectl apply --filename - >"$work/said" 2>&1 || broken "a hook for v9"
  eventually "source: a hook for a version that there is not is in force" has_hook ninth.e2e.gatepost.dev
  allows "source: and fails no write, nor is it asked" asking ninth yes 'canary={"allowed": false}'

  mark_log
  check "source: kube-apiserver stops" kube/cluster.sh stop "$work/cluster"
  eventually "source: the log says that it is gone" sourced_log 'cannot reach the apiserver'
  # Longer than what was read stays fresh.
  sleep 5
  prints "source: what is in force grows too old to be trusted" LoadingConfiguration posted ConfigMap
  start_cluster
  eventually "source: kube-apiserver is back and waits for nobody: writes are allowed" asking sourced yes
  refuses "source: and the hooks are asked" 'sourced.e2e.gatepost.dev' asking sourced no 'canary={"allowed": false}'

  check "source: a configuration is deleted" kubectl delete admissioncontrolconfiguration other
  eventually "source: and its hook is gone" not has_hook other.e2e.gatepost.dev

  kubectl apply --filename "$work/hooks.yaml" >"$work/said" 2>&1 || broken "registering hooks beside Gatepost"
  eventually "source: webhooks of the cluster are read as they are" has_hook pods.e2e.gatepost.dev
  kubectl delete --filename "$work/hooks.yaml" >"$work/said" 2>&1 || broken "unregistering them"
  eventually "source: and go when they go" not has_hook pods.e2e.gatepost.dev

  began="$(date +%s)"
  echo "{apiVersion: gatepost.dev/v1alpha1, kind: BreakGlass, metadata: {name: trial}, reason: a trial, for: 5m,
    opened: \"$(date -u -d "@$began" +%FT%TZ)\", until: \"$(date -u -d "@$((began + 300))" +%FT%TZ)\"}" |
    kubectl apply --filename - >"$work/said" 2>&1 || broken "opening the gate"
  eventually "source: a break glass is read from the cluster, and open" configz '"state":"Open"'
  check "source: it is deleted" kubectl delete breakglass trial
  eventually "source: and closed" not configz '"state":"Open"'

  mark_log
  sourced_token
  eventually "source: a token that was replaced is used at once" sourced_log 'using new credentials for the apiserver'

  for resource in admissioncontrolconfigurations breakglasses validatingwebhookconfigurations mutatingwebhookconfigurations namespaces; do
    rights="$(role_with "$resource")"
    mark_log
    without "$rights" "$resource"
    eventually "source: without the right to $resource, the log names it" sourced_log "resource \"$resource\""
    check "source: and /configz too" configz "resource\\\"$resource\\\""
    kubectl apply --filename "$deploy/source.yaml" --filename "$deploy/source-webhooks.yaml" >"$work/said" 2>&1 || broken "granting the rights again"
    eventually "source: and with it, reads are good again" less_than gatepost_config_age_seconds 2
  done

  began="$(now_ms)"
  kubectl delete clusterrolebinding gatepost-source gatepost-source-webhooks >"$work/said" 2>&1 || broken "taking the rights away"
  until posted ConfigMap | grep -q LoadingConfiguration; do
    (($(now_ms) - began < 10000)) || break
    sleep 0.05
  done
  took=$(($(now_ms) - began))
  echo "refused $took ms after the rights were taken" >"$work/said"
  check "source: reviews are refused some five seconds after the rights are gone ($took ms)" test $((took > 3000 && took < 8000)) -eq 1
  # Now nobody may write, save who looses the gate.
  kubectl delete --filename "$work/gatepost.yaml" >"$work/register.log" 2>&1 || broken "unregistering Gatepost"
  kubectl delete crd admissioncontrolconfigurations.gatepost.dev breakglasses.gatepost.dev >"$work/said" 2>&1 || broken "taking our kinds away"
  check "source: gatepost ends well when asked to" stop sourced
}

# role_with RESOURCE: the role that grants it.
role_with() {
  case "$1" in
    *webhookconfigurations) echo gatepost-source-webhooks ;;
    *) echo gatepost-source ;;
  esac
}

# without ROLE RESOURCE: the role grants everything else that it did.
without() {
  local role="$1" resource="$2" file="$deploy/source.yaml"
  [[ "$role" == gatepost-source ]] || file="$deploy/source-webhooks.yaml"
  sed -E "s/\\b$resource\\b/nothing/" "$file" | kubectl apply --filename - >"$work/said" 2>&1 || broken "taking the right to $resource away"
}
