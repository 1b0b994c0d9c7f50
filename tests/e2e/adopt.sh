# Webhooks whose owners go on writing them (adopt_owners.sh: one applies, one updates every two seconds, one has its hook
# change certificates, one is mutating) are taken over where they stand, changed, fought over, and given back, by two
# replicas, under a stream of writes: each write has to be judged by each webhook. Once with everybody alive, and then with
# somebody killed at each step (adopt_kills.sh). Then what cannot be taken, a condition written by hand, and the way out
# without a replica.
#
# ADOPT_RATE says how many writes a second stream in (200; judged is what was reached), ADOPT_ROUNDS how many rounds with
# kills there are (1; 3 have each victim at each step), ADOPT_FIRST with which row of the table they begin, ADOPT_OVERLAP how
# many seconds one may be called twice in a row with everybody alive (5), and RESULTS names a folder for what was found.

# begin_adopting NAME: a replica with the rights of deploy/kubernetes and no others.
begin_adopting() {
  start "$1" "$gatepost" serve --source kubernetes --kubeconfig "$work/adopt.kubeconfig" --adopt named --replica "$1" \
    --adopt-registration \
    --namespaces-from "$work/adopt.kubeconfig" --no-drain-finalizer --listen "$2" --admin 127.0.0.1:0 --reuse-port \
    --tls-cert "$work/gatepost.crt" --tls-key "$work/gatepost.key" --audit-log "$work/$1.jsonl"
  front="$(told "$1" 'listening tcp (.*)')"
  admin="$(told "$1" 'listening admin (.*)')"
  adopt_admin[$1]="$admin"
  echo "${process[$1]}" >"$work/pids/replica-$1"
  eventually "adopt: $1 is ready" curl -fsS "http://$admin/readyz"
}

adopt() { "$gatepost" adopt --kubeconfig "$work/cluster/kubeconfig" "$@"; }

release() { "$gatepost" release --kubeconfig "$work/cluster/kubeconfig" "$@"; }

# shows TEXT COMMAND...: the command succeeds and prints this text.
shows() { "${@:2}" >"$work/shown" && cat "$work/shown" && grep -qF -- "$1" "$work/shown"; }

# carries KIND NAME: the apiserver does not call it.
carries() { kubectl get "$1webhookconfigurations" "$2" -o jsonpath='{.webhooks[*].matchConditions[*].name}' | grep -qF gatepost.dev/served; }

carries_not() { ! carries "$@"; }

# registration_guarded KIND: our registration of that kind is held by our finalizer.
registration_guarded() { kubectl get "$1webhookconfigurations" gatepost -o jsonpath='{.metadata.finalizers}' | grep -qF gatepost.dev/adopt; }

unguarded() { ! registration_guarded "$@"; }

gone() { ! kubectl get "$1webhookconfigurations" gatepost; }

# overlap REPLICA: the longest time in which it and kube-apiserver may both have called one webhook, in seconds.
overlap() { curl -fsS "http://${adopt_admin[$1]}/metrics" | awk '/^gatepost_adoption_overlap_longest_seconds / { print $2 }'; }

short_overlap() {
  local seconds
  seconds="$(overlap "$1")"
  echo "$seconds s"
  awk -v "s=$seconds" -v "most=${ADOPT_OVERLAP:-5}" 'BEGIN { exit !(s > 0 && s < most) }'
}

# ended_well PROCESS: the command of a round has ended well.
ended_well() { wait "$1" || { cat "$work/round.log"; return 1; }; }

# adopt_log NAME TEXT: that replica has said so.
adopt_log() { grep -qF -- "$2" "$work/$1.log"; }

either_log() { adopt_log adopt-a "$1" || adopt_log adopt-b "$1"; }

# The rights of deploy/kubernetes, the definitions, and a kubeconfig with these rights.
adopting_rights() {
  allows "adopt: the rights of deploy/kubernetes are granted" kubectl apply -f "$deploy/source.yaml" -f "$deploy/adopt.yaml" -f "$deploy/beside.yaml"
  allows "adopt: the definitions are applied" define
  # Replicas report in the status of such objects.
  echo '{apiVersion: gatepost.dev/v1alpha1, kind: AdmissionControlConfiguration, metadata: {name: adopt}, externalAdmissionHooks: []}' >"$work/adopt-own.yaml"
  eventually "adopt: a configuration of ours is there" kubectl apply -f "$work/adopt-own.yaml"
  kubectl --namespace gatepost create token gatepost --duration 60m >"$work/adopt.token" 2>"$work/said" || broken "no token for Gatepost"
  sed "s|user: {token: .*}|user: {tokenFile: $work/adopt.token}|" "$work/cluster/kubeconfig" >"$work/adopt.kubeconfig"
}

# Those, and what a registration has to cover.
prepare_adopting() {
  adopting_rights
  refuses "adopt: without a replica nothing is taken, and it says so" 'no replica that serves with --adopt is alive' \
    adopt move-first --timeout 20s
  rm -rf "$work/adopt-hooks"
  check "adopt: what the webhooks want is known" "$gatepost" import --kubeconfig "$work/cluster/kubeconfig" --kind all "$work/adopt-hooks"
}

register_adopting() {
  local kind
  for kind in validating mutating; do
    "$gatepost" register --form api --kind "$kind" --url "https://$front" --ca-file "$work/ca.crt" --config "$work/adopt-hooks" ||
      broken "a registration for what is taken over"
    echo ---
  done >"$work/adopt-registration.yaml"
  kubectl apply -f "$work/adopt-registration.yaml" >"$work/said" 2>&1 || broken "registering Gatepost"
}

# unregistered: our registrations are deleted while webhooks are taken over, and come back.
unregistered() {
  local kind
  event "registrations deleted"
  for kind in validating mutating; do check "adopt: the $kind registration is held" registration_guarded "$kind"; done
  kubectl delete -f "$work/adopt-registration.yaml" --wait=false >"$work/said" 2>&1 || broken "unregistering"
  eventually "adopt: it goes once everything is given back" gone validating
  check "adopt: so that what it covered carries the condition no more" carries_not validating move-first
  eventually "adopt: and so does the mutating one" gone mutating
  kubectl apply -f "$work/adopt-registration.yaml" >"$work/said" 2>&1 || broken "registering Gatepost"
  event "registered again"
  check "adopt: what is wanted is taken again" adopt move-first move-third adopt-changing mutating/adopt-mutating
}

# hostile NAME WEBHOOK CONDITIONS RESOURCE: one more configuration, with a webhook that cannot be taken as it is.
hostile() {
  echo ---
  owned move-first | sed "s/name: move-first\$/name: $1/; s/name: move-first.e2e.gatepost.dev/name: $2/; s/resources: .configmaps./resources: [$4]/"
  echo "  matchConditions: [$3]"
}

# not_taken: what cannot be taken says why, and is taken once it can be.
not_taken() {
  local n full=""
  for ((n = 0; n < 64; n++)); do full+="{name: c$n, expression: 'true'}, "; done
  {
    hostile adopt-full full.e2e.gatepost.dev "$full" configmaps
    hostile adopt-namesake x.validate.gatepost.dev "{name: c, expression: 'true'}" configmaps
    # Together with another one: alone it would be a registration of Gatepost's.
    owned move-first | sed -n '/^- name/,$p' | sed 's/move-first.e2e/beside.e2e/'
    hostile adopt-asks asks.e2e.gatepost.dev "{name: c, expression: \"authorizer.requestResource.check('create').allowed()\"}" configmaps
    hostile adopt-late late.e2e.gatepost.dev "{name: c, expression: 'true'}" endpoints
  } >"$work/hostile.yaml"
  check "adopt: webhooks that cannot be taken as they are" kubectl apply -f "$work/hostile.yaml"
  refuses "adopt: one with 64 conditions is left" 'has 64 match conditions' adopt adopt-full --timeout 20s
  refuses "adopt: and one that is named like ours" "has a name of Gatepost's own registration" adopt adopt-namesake --timeout 20s
  refuses "adopt: and one that asks the authorizer, which we may not" 'may not create subjectaccessreviews' adopt adopt-asks --timeout 20s
  check "adopt: until we may" kubectl create clusterrolebinding adopt-asks --clusterrole gatepost-authorizer --serviceaccount gatepost:gatepost
  check "adopt: then it is taken" adopt adopt-asks --timeout 2m
  check "adopt: one that no registration covers is covered, and taken" adopt adopt-late
  prints "adopt: by what the registration sends now" endpoints kubectl get validatingwebhookconfiguration gatepost -o yaml
  check "adopt: all of them are given back" release adopt-full adopt-namesake adopt-asks adopt-late
  kubectl delete -f "$work/hostile.yaml" >"$work/said" 2>&1 || broken "removing them"
  kubectl delete clusterrolebinding adopt-asks >/dev/null 2>&1 || true
}

# each_has_event REASON [TEXT]: so has each configuration, with such a message.
each_has_event() {
  local one
  kubectl get events --namespace default \
    -o jsonpath='{range .items[*]}{.reason} {.involvedObject.kind}/{.involvedObject.name} {.message}{"\n"}{end}' |
    sed 's| ValidatingWebhookConfiguration/| |; s| MutatingWebhookConfiguration/| mutating/|' >"$work/adopt.each"
  for one in "${adopt_all[@]}"; do grep -q "^$1 $one ${2:-}" "$work/adopt.each" || { echo "none of $one"; return 1; }; done
}

# owners_changes: what an owner changes is in force in time, also where the webhook is taken over meanwhile.
owners_changes() {
  local change
  for change in url rules failure-policy failure-policy-back added; do owners_change "$change"; done
  in_time 30 "adopt: the webhook that was added is taken as well" both_carry adopt-changing
  owners_change removed
}

# restarted REPLICA: it ends well and starts again.
restarted() {
  event "$1 restarts"
  check "adopt: $1 ends well when asked to" stop "$1"
  begin_adopting "$1" "$front"
}

# keep_adopted: for a folder of loadtest/results.
keep_adopted() {
  mkdir -p "$RESULTS/raw"
  cp "$work/adopt.events" "$RESULTS/raw/events.csv"
  cp "$work/adopt.changes" "$RESULTS/raw/changes.txt"
  sed -n "s|^  ||; /^at_s,/,\$p" "$work/adopt.found" >"$RESULTS/raw/phases.csv"
  cp "$work/adopt.found" "$RESULTS/found.txt"
}

adopting() {
  local streaming streamed_since front admin n
  local -A adopt_admin
  echo "======== adopt: webhooks that others own are taken over and given back"
  begin_path
  mkdir -p "$work/pids"
  begin_movers
  begin_third
  begin_mutating
  begin_changing
  prepare_adopting
  begin_adopting adopt-a 127.0.0.1:0
  prints "adopt: the plan says what the registration lacks" 'there is none in this cluster' adopt --plan
  register_adopting
  prints "adopt: the plan says what can be taken" 'can be taken      validating/move-third/move-third.e2e.gatepost.dev' adopt --plan
  begin_adopting adopt-b "$front"
  begin_owners
  # Replicas that cannot read the configuration for 5 s refuse everything: the machine is not to be asked for more than it gives.
  begin_stream adopt "${ADOPT_RATE:-200}" -workers 16 -mutating
  eventually "adopt: the webhooks judge, called by kube-apiserver itself" judged_by adopt-mutating move-first move-plain move-third

  event "taken over"
  check "adopt: all of them are taken over" adopt "${adopt_all[@]}" --timeout 2m
  for hook in "${adopt_all[@]}"; do check "adopt: $hook carries the condition" carries_as "$hook"; done
  prints "adopt: the plan says so" '5 taken' adopt --plan
  # It has what the replica that writes said at its last turn.
  eventually "adopt: and so does gatepost status" shows 'taken         validating/move-first/move-first.e2e.gatepost.dev' \
    "$gatepost" status --source kubernetes --kubeconfig "$work/cluster/kubeconfig"
  check "adopt: the audit log has it" grep -q '"adoption":"taken"' "$work/adopt-a.jsonl" "$work/adopt-b.jsonl"
  eventually "adopt: and each has an Event" each_has_event WebhookTakenOver

  event "changed"
  n="$(certificates_served)"
  owners_changes
  in_time 30 "adopt: the rotating hook has got another certificate meanwhile" rotated_since "$n"
  check "adopt: whatever their owners have written, all keep the condition" carry_all

  event "fought over"
  echo always >"$work/replacing"
  eventually "adopt: what is replaced again and again is left to the apiserver" either_log 'its owner replaced the configuration'
  rm -f "$work/replacing"
  check "adopt: the others stay taken" carries validating move-first
  for n in a b; do check "adopt: nothing was called twice for ${ADOPT_OVERLAP:-5} s in a row, by adopt-$n" short_overlap "adopt-$n"; done
  prints "adopt: and no replica has left out what kube-apiserver does not call" 'gatepost_adopted_webhooks_uncalled 0' \
    curl -fsS "http://$admin/metrics"
  unregistered
  for n in b a; do restarted "adopt-$n"; done
  check "adopt: the others stayed taken throughout" carries validating move-third
  prints "adopt: and the one that was left is left by the next leader, too" 'its owner replaced the configuration' adopt --plan
  check "adopt: kube-apiserver calls it" carries_not validating move-plain
  check "adopt: a release ends the fight" release move-plain
  check "adopt: so that it is taken again" adopt move-plain --timeout 1m
  in_time 60 "adopt: and all are" carry_all

  event "given back"
  check "adopt: everything is given back" release --all
  check "adopt: nothing carries the condition" carry_none
  check "adopt: the audit log has that, too" grep -q '"adoption":"given_back"' "$work/adopt-a.jsonl" "$work/adopt-b.jsonl"
  eventually "adopt: and each has an Event that says why" each_has_event WebhookGivenBack '.*released'
  kill_rounds

  event "over"
  sleep 6
  end_owners
  end_stream -killed -events "$work/adopt.events"
  sed -n '2,$s/^/      /p' "$work/adopt.found"
  echo "        ${ADOPT_RATE:-200} writes a second were asked for; $(certificates_served) certificates were served"
  [[ -z "${RESULTS:-}" ]] || keep_adopted
  grep -h '^gatepost_adopt' <(curl -fsS "http://$admin/metrics") | sed 's/^/        /'

  eventually "adopt: the registration is held no longer" unguarded validating
  not_taken
  fewer_replicas
  exempt
  narrowed
  by_hand
  alone
  kubectl delete -f "$work/adopt-registration.yaml" -f "$work/move.yaml" -f "$work/owned-mutating.yaml" -f "$work/owned-changing.yaml" >"$work/said" 2>&1 || broken "unregistering"
  # The next part is to have no more rights than it grants itself.
  kubectl delete clusterrolebinding gatepost-adopt gatepost-source >"$work/said" 2>&1 || broken "taking the rights away"
  stop move-first && stop move-plain && stop move-third || broken "the hooks"
}

# apiserver_elsewhere NAME: the identity lease of one, beside which there is no replica with --adopt.
apiserver_elsewhere() {
  kubectl apply --filename - <<YAML
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: $1, namespace: kube-system, labels: {apiserver.kubernetes.io/identity: kube-apiserver}}
spec: {holderIdentity: $1, leaseDurationSeconds: 3600, renewTime: "$(date -u +%Y-%m-%dT%H:%M:%S.000000Z)"}
YAML
}

# fewer_replicas: with more apiservers than replicas nothing is taken over.
fewer_replicas() {
  local n
  for n in 1 2; do check "adopt: apiserver $n without a replica that takes part" apiserver_elsewhere "apiserver-e2e-$n"; done
  sleep 4 # The replica that writes looks every three seconds.
  refuses "adopt: while they live nothing is taken" 'live apiservers: 3; live replicas with --adopt beside them: 2' adopt move-first --timeout 15s
  kubectl --namespace kube-system delete lease apiserver-e2e-1 apiserver-e2e-2 >"$work/said" 2>&1 || broken "their leases"
  check "adopt: once they are gone it is" adopt move-first --timeout 30s
  check "adopt: and is given back" release move-first
}

# exempt: what Gatepost asks no hook about stays with the apiserver, although the webhook is taken over.
exempt() {
  hostile adopt-exempt exempt.e2e.gatepost.dev "{name: c, expression: 'true'}" tokenreviews |
    sed '/namespaceSelector/d; s|json/move-first|json/adopt-exempt|; s/apiGroups: .""./apiGroups: [authentication.k8s.io]/; s/CREATE, UPDATE, DELETE/CREATE/' >"$work/exempt.yaml"
  check "adopt: a webhook about token reviews" kubectl apply -f "$work/exempt.yaml"
  check "adopt: it is taken over" adopt adopt-exempt
  prints "adopt: but for these" "TokenReview authentication.k8s.io/tokenreviews'" kubectl get validatingwebhookconfiguration adopt-exempt -o yaml
  echo '{apiVersion: authentication.k8s.io/v1, kind: TokenReview, spec: {token: none}}' >"$work/token-review.yaml"
  check "adopt: a token is reviewed" kubectl create -f "$work/token-review.yaml"
  # From 1.37 on, kube-apiserver itself calls no webhook about them.
  if "$BIN/kube-apiserver" --version | grep -q ' v1\.36\.'; then
    check "adopt: the webhook was called about that" judged_by adopt-exempt
  else
    check "adopt: the apiserver called no webhook about that" not judged_by adopt-exempt
  fi
  check "adopt: it is given back" release adopt-exempt
  kubectl delete -f "$work/exempt.yaml" >"$work/said" 2>&1 || broken "removing it"
}

# unconditional: our registration has no condition of that somebody.
unconditional() { ! kubectl get validatingwebhookconfigurations gatepost -o jsonpath='{.webhooks[*].matchConditions[*].name}' | grep -qw mine; }

# narrowed: somebody puts a condition on Gatepost's own registration, which then sends nothing.
narrowed() {
  check "adopt: one is taken" adopt move-first
  check "adopt: a condition is put on Gatepost's registration" kubectl patch validatingwebhookconfiguration gatepost --type json \
    -p '[{"op": "add", "path": "/webhooks/0/matchConditions", "value": [{"name": "mine", "expression": "false"}]}]'
  eventually "adopt: it is taken off" unconditional
  check "adopt: the one is given back" release move-first
}

# emergency: the chapter's command that needs no Gatepost.
emergency() { sed -n '/^kubectl get validatingwebhook/,/^```/p' ../../docs/adopt.md | sed '$d'; }

# by_hand: somebody writes the condition where nobody has asked for it: nobody but Gatepost would call that webhook.
by_hand() {
  check "adopt: a condition is written by hand" kubectl patch validatingwebhookconfiguration move-first --type json \
    -p '[{"op": "add", "path": "/webhooks/0/matchConditions", "value": [{"name": "gatepost.dev/served", "expression": "false"}]}]'
  eventually "adopt: it is given back at once" carries_not validating move-first
}

# The way out: no replica lives, and the conditions are still there.
alone() {
  emergency >"$work/adopt.emergency"
  check "adopt: one is taken again" adopt move-first
  killed adopt-a
  killed adopt-b
  check "adopt: with every replica dead it still carries the condition" carries validating move-first
  check "adopt: release takes it off by itself" release --all
  check "adopt: it does not carry it any more" carries_not validating move-first
  check "adopt: and lets go of the registration" unguarded validating
  # The other one counts as alive for half a minute.
  kubectl --namespace gatepost delete lease --all >"$work/said" 2>&1 || broken "deleting leases"
  begin_adopting adopt-a "$front"
  check "adopt: and is taken once more" adopt move-first --timeout 2m
  check "adopt: by a replica that ends well" stop adopt-a
  check "adopt: kubectl alone takes it off, as the chapter says" in_shell "$work/adopt.emergency"
  check "adopt: so that it carries it no more" carries_not validating move-first
  check "adopt: and the registration is free" unguarded validating
}
