# Three webhooks whose owners go on writing them (one applies them every second, one replaces its own every two, one changes
# its authority every three) are taken over where they stand, fought over, and given back, by two replicas of which each is
# killed at every step (as are the owners), under a stream of writes: each write has to be judged by each webhook. A mutating
# one as well. Then what cannot be taken, a condition written by hand, and the way out without a replica.
#
# ADOPT_RATE says how many writes a second stream in, and ADOPT_ROUNDS how often everything is given back and taken again
# with the replica that writes, and the owners, killed later and later in between.

# begin_adopting NAME: a replica with the rights of deploy/kubernetes and no others.
begin_adopting() {
  start "$1" "$gatepost" serve --source kubernetes --kubeconfig "$work/adopt.kubeconfig" --adopt named --replica "$1" \
    --adopt-registration \
    --namespaces-from "$work/adopt.kubeconfig" --no-drain-finalizer --listen "$2" --admin 127.0.0.1:0 --reuse-port \
    --tls-cert "$work/gatepost.crt" --tls-key "$work/gatepost.key" --audit-log "$work/$1.jsonl"
  front="$(told "$1" 'listening tcp (.*)')"
  admin="$(told "$1" 'listening admin (.*)')"
  adopt_admin[$1]="$admin"
  eventually "adopt: $1 is ready" curl -fsS "http://$admin/readyz"
}

adopt() { "$gatepost" adopt --kubeconfig "$work/cluster/kubeconfig" "$@"; }

release() { "$gatepost" release --kubeconfig "$work/cluster/kubeconfig" "$@"; }

# carries KIND NAME: the apiserver does not call it.
carries() { kubectl get "$1webhookconfigurations" "$2" -o jsonpath='{.webhooks[*].matchConditions[*].name}' | grep -qF gatepost.dev/served; }

carries_not() { ! carries "$@"; }

# registration_guarded KIND: our registration of that kind is held by our finalizer.
registration_guarded() { kubectl get "$1webhookconfigurations" gatepost -o jsonpath='{.metadata.finalizers}' | grep -qF gatepost.dev/adopt; }

unguarded() { ! registration_guarded "$@"; }

gone() { ! kubectl get "$1webhookconfigurations" gatepost; }

# leader: the replica that writes.
leader() { kubectl --namespace gatepost get lease gatepost-adopt -o jsonpath='{.spec.holderIdentity}' | cut -d/ -f1; }

# overlap REPLICA: the longest time in which it and kube-apiserver may both have called one webhook, in seconds.
overlap() { curl -fsS "http://${adopt_admin[$1]}/metrics" | awk '/^gatepost_adoption_overlap_longest_seconds / { print $2 }'; }

short_overlap() {
  local seconds
  seconds="$(overlap "$1")"
  echo "$seconds s"
  awk -v "s=$seconds" 'BEGIN { exit !(s > 0 && s < 5) }'
}

# owned NAME: what the trial's config/move.yaml says of that one alone.
owned() { awk -v RS='---\n' -v "name=name: $1\n" 'index($0, name)' "$work/move.yaml"; }

# A mutating one, which its owner leaves alone.
begin_mutating() {
  owned move-first | sed 's/Validating/Mutating/; s/move-first/adopt-mutating/g; s/CREATE, UPDATE, DELETE/CREATE/' >"$work/owned-mutating.yaml"
  kubectl apply -f "$work/owned-mutating.yaml" >"$work/said" 2>&1 || broken "registering the mutating hook"
}

# mutated_all: every config map that was made was shown to it.
mutated_all() {
  sed -n 's/.*"write":"\(CREATE [^"]*\)".*"code":201.*/\1/p' "$work/adopt.writes" | sort >"$work/adopt.created"
  sed -n 's/^adopt-mutating \(CREATE .*\)/\1/p' "$work/judged" | sort -u >"$work/adopt.mutated"
  [[ -s "$work/adopt.created" ]] && [[ -z "$(comm -23 "$work/adopt.created" "$work/adopt.mutated" | tee /dev/stderr | head -n 5)" ]]
}

# The owners, each in a loop, until the file of that name is gone.
owner_applies() {
  while [[ -e "$work/owners" ]]; do
    kubectl apply --server-side --field-manager owner --force-conflicts -f "$work/owned-first.yaml" >>"$work/owners.log" 2>&1 || true
    sleep 1
  done
}

owner_replaces() {
  while [[ -e "$work/owners" ]]; do
    [[ ! -e "$work/replacing" ]] || kubectl replace -f "$work/owned-plain.yaml" >>"$work/owners.log" 2>&1 || true
    sleep 2
  done
}

owner_rotates() {
  local one other now
  one="$(base64 -w0 "$work/ca.crt")"
  other="$(cat "$work/ca.crt" "$work/other-ca.crt" | base64 -w0)"
  while [[ -e "$work/owners" ]]; do
    now="$other" other="$one" one="$now"
    kubectl patch validatingwebhookconfiguration move-third --type json \
      -p "[{\"op\": \"replace\", \"path\": \"/webhooks/0/clientConfig/caBundle\", \"value\": \"$now\"}]" >>"$work/owners.log" 2>&1 || true
    sleep 3
  done
}

begin_owners() {
  owned move-first | sed 's/^kubectl.*//' >"$work/owned-first.yaml"
  owned move-plain >"$work/owned-plain.yaml"
  : >"$work/owners"
  owner_applies &
  process[owner-first]=$!
  owner_replaces &
  process[owner-plain]=$!
  owner_rotates &
  process[owner-third]=$!
}

# kill_owners: in the middle of whatever they do.
kill_owners() {
  local owner
  for owner in owner-first owner-plain owner-third; do killed "$owner"; done
}

# ended_well PROCESS: the command of a round has ended well.
ended_well() { wait "$1" || { cat "$work/round.log"; return 1; }; }

# round SECONDS: everything is given back, and the replica that writes is killed so long after that was asked for; then
# everything is taken again, and so it goes again, and so do the owners.
round() {
  local commanded victim
  event "round: giving back, killed after $1 s"
  release --all --timeout 2m >"$work/round.log" 2>&1 &
  commanded=$!
  sleep "$1"
  victim="$(leader)"
  killed "$victim"
  begin_adopting "$victim" "$front"
  check "adopt: everything is given back although $victim was killed after $1 s" ended_well "$commanded"
  check "adopt: which is so" carries_not validating move-third
  event "round: taking over, killed after $1 s"
  adopt move-first move-third mutating/adopt-mutating --timeout 3m >"$work/round.log" 2>&1 &
  commanded=$!
  sleep "$1"
  victim="$(leader)"
  killed "$victim"
  kill_owners
  begin_adopting "$victim" "$front"
  begin_owners
  check "adopt: everything is taken again although $victim was killed after $1 s" ended_well "$commanded"
  check "adopt: which is so, too" carries validating move-third
}

end_owners() {
  rm -f "$work/owners" "$work/replacing"
  wait "${process[owner-first]}" "${process[owner-plain]}" "${process[owner-third]}" || true
  unset "process[owner-first]" "process[owner-plain]" "process[owner-third]"
}

# in_log NAME TEXT: that replica has said so.
adopt_log() { grep -qF -- "$2" "$work/$1.log"; }

either_log() { adopt_log adopt-a "$1" || adopt_log adopt-b "$1"; }

# The rights of deploy/kubernetes, the definitions, and a registration that covers the three.
prepare_adopting() {
  allows "adopt: the rights of deploy/kubernetes are granted" kubectl apply -f "$deploy/source.yaml" -f "$deploy/adopt.yaml" -f "$deploy/beside.yaml"
  allows "adopt: the definitions are applied" define
  # Replicas report in the status of such objects.
  echo '{apiVersion: gatepost.dev/v1alpha1, kind: AdmissionControlConfiguration, metadata: {name: adopt}, externalAdmissionHooks: []}' >"$work/adopt-own.yaml"
  eventually "adopt: a configuration of ours is there" kubectl apply -f "$work/adopt-own.yaml"
  kubectl --namespace gatepost create token gatepost --duration 60m >"$work/adopt.token" 2>"$work/said" || broken "no token for Gatepost"
  sed "s|user: {token: .*}|user: {tokenFile: $work/adopt.token}|" "$work/cluster/kubeconfig" >"$work/adopt.kubeconfig"
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
  check "adopt: what is wanted is taken again" adopt move-first move-third mutating/adopt-mutating
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

adopting() {
  local streaming streamed_since front admin n
  local -A adopt_admin
  echo "======== adopt: webhooks that others own are taken over and given back"
  begin_path
  begin_movers
  begin_mutating
  prepare_adopting
  begin_adopting adopt-a 127.0.0.1:0
  prints "adopt: the plan says what the registration lacks" 'there is none in this cluster' adopt --plan
  register_adopting
  prints "adopt: the plan says what can be taken" 'can be taken      validating/move-third/move-third.e2e.gatepost.dev' adopt --plan
  begin_adopting adopt-b "$front"
  begin_owners
  begin_stream adopt "${ADOPT_RATE:-50}"
  eventually "adopt: the webhooks judge, called by kube-apiserver itself" judged_by move-first move-plain move-third

  event "taken over"
  check "adopt: all three are taken over, and the mutating one" adopt move-first move-plain move-third mutating/adopt-mutating
  for hook in first plain third; do check "adopt: move-$hook carries the condition" carries validating "move-$hook"; done
  check "adopt: and so does the mutating one" carries mutating adopt-mutating
  prints "adopt: the plan says so" '4 taken' adopt --plan
  prints "adopt: and so does gatepost status" 'taken         validating/move-first/move-first.e2e.gatepost.dev' \
    "$gatepost" status --source kubernetes --kubeconfig "$work/cluster/kubeconfig"
  check "adopt: the audit log has it" grep -q '"adoption":"taken"' "$work/adopt-a.jsonl" "$work/adopt-b.jsonl"
  prints "adopt: and so have Events" WebhookTakenOver kubectl get events --namespace default
  # Long enough for the owners to write several times.
  sleep 6
  check "adopt: what is applied and patched by its owner keeps the condition" carries validating move-first
  check "adopt: and so does what is rotated" carries validating move-third

  event "fought over"
  : >"$work/replacing"
  eventually "adopt: what is replaced again and again is left to the apiserver" either_log 'its owner replaced the configuration'
  rm -f "$work/replacing"
  check "adopt: the others stay taken" carries validating move-first
  for n in a b; do check "adopt: nothing was called twice for 5 s in a row, by adopt-$n" short_overlap "adopt-$n"; done
  prints "adopt: and no replica has left out what kube-apiserver does not call" 'gatepost_adopted_webhooks_uncalled 0' \
    curl -fsS "http://$admin/metrics"
  unregistered

  event "adopt-b is killed"
  killed adopt-b
  sleep 2
  event "adopt-b starts again"
  begin_adopting adopt-b "$front"
  event "adopt-a is killed"
  killed adopt-a
  sleep 1
  begin_adopting adopt-a "$front"
  event "adopt-a starts again"
  # A replica that is killed counts as alive for half a minute.
  sleep 20
  check "adopt: the others stayed taken throughout" carries validating move-third
  for ((n = 0; n < ${ADOPT_ROUNDS:-2}; n++)); do round "$n.7"; done

  event "given back"
  check "adopt: everything is given back" release --all
  for hook in first plain third; do check "adopt: move-$hook carries no condition" carries_not validating "move-$hook"; done
  sleep 6
  end_owners
  check "adopt: the mutating one is called by kube-apiserver again" carries_not mutating adopt-mutating
  end_stream -killed
  check "adopt: the mutating one was called for every object that was made" mutated_all
  check "adopt: the audit log has that, too" grep -q '"adoption":"given_back"' "$work/adopt-a.jsonl" "$work/adopt-b.jsonl"
  grep -h '^gatepost_adopt' <(curl -fsS "http://$admin/metrics") | sed 's/^/        /'

  eventually "adopt: the registration is held no longer" unguarded validating
  not_taken
  exempt
  narrowed
  by_hand
  alone
  kubectl delete -f "$work/adopt-registration.yaml" -f "$work/move.yaml" -f "$work/owned-mutating.yaml" >"$work/said" 2>&1 || broken "unregistering"
  # The next part is to have no more rights than it grants itself.
  kubectl delete clusterrolebinding gatepost-adopt gatepost-source >"$work/said" 2>&1 || broken "taking the rights away"
  stop move-first && stop move-plain || broken "the hooks"
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
  check "adopt: the webhook was called about that" judged_by adopt-exempt
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
emergency() { sed -n '/^kubectl get validating/,/^```/p' ../../docs/adopt.md | sed '$d'; }

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
