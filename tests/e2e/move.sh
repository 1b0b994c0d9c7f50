# Three webhooks move from an apiserver behind Gatepost, Gatepost is upgraded and restarted, and the webhooks move back: by
# the commands of the documentation as they stand there, under a stream of writes. None may come to anything else than it
# should, and every hook has to judge every write that it is for. One of the webhooks has a certificate that signs itself.
#
# For loadtest/handover: HANDOVERS says how often Gatepost hands over, QUIET how many seconds lie in between, BEFORE is the
# binary that the first of them upgrades from, and RESULTS a folder for what was found.

chapter=beside-an-apiserver

# begin_stream NAME RATE [FLAGS]: writes from now on.
begin_stream() {
  streaming="$1"
  : >"$work/judged"
  : >"$work/$streaming.events"
  start stream "$work/replay-program" stream -cluster "$work/cluster" -rate "$2" "${@:3}" -out "$work/$streaming.writes"
  streamed_since="$(now_ms)"
  eventually "$streaming: writes stream" test -s "$work/$streaming.writes"
}

# event WORDS: for whoever looks at the writes of that moment.
event() { echo "$(($(now_ms) - streamed_since)),$*" >>"$work/$streaming.events"; }

# end_stream [FLAGS]: and says what became of all of them.
end_stream() {
  check "$streaming: the stream of writes ends" stop stream
  check "$streaming: every write came to what it should, judged by every hook" \
    "$work/replay-program" judged "$@" -out "$work/$streaming.csv" "$work/$streaming.writes" "$work/judged" "$streaming"
  cp "$work/said" "$work/$streaming.found"
  head -n 1 "$work/said" | sed 's/^/        /'
}

# begin_movers: the three webhooks, registered by their owners, and where the writes go.
begin_movers() {
  local first plain
  start move-first "$work/hook" -cert "$work/hooks.crt" -key "$work/hooks.key" -judged "$work/judged"
  start move-plain "$work/hook" -cert "$work/plain/tls.crt" -key "$work/plain/tls.key" -judged "$work/judged"
  first="$(told move-first 'listening (.*)')"
  plain="$(told move-plain 'listening (.*)')"
  sed -e "s|@HOOKS@|$first|" -e "s|@PLAIN@|$plain|" -e "s|@CA@|$(base64 -w0 "$work/ca.crt")|" \
    -e "s|@PLAIN_CA@|$(base64 -w0 "$work/plain/tls.crt")|" config/move.yaml >"$work/move.yaml"
  echo '{apiVersion: v1, kind: Namespace, metadata: {name: move, labels: {team: movers}}}' >"$work/move-namespace.yaml"
  kubectl apply -f "$work/move-namespace.yaml" -f "$work/move.yaml" >"$work/said" 2>&1 || broken "registering the hooks that move"
}

# judged_by HOOK...: each has judged something in this stream.
judged_by() {
  local hook
  for hook in "$@"; do grep -q "^$hook " "$work/judged" || return 1; done
}

# gatepost_user: as kubeadm would make it, a client certificate of the cluster's authority.
gatepost_user() {
  client_certificate "$work/etc/user" "$work/cluster/ca" /CN=gatepost
  sed "s|user: {token: .*}|user: {client-certificate: $work/etc/user.crt, client-key: $work/etc/user.key}|" \
    "$work/cluster/kubeconfig" >"$work/etc/kubeconfig"
}

more_reviews_than() { (($(metric gatepost_requests_total) > $1)); }

# asked_directly HOOK: how often kube-apiserver itself has asked it.
asked_directly() {
  documented "$chapter" apiserver_admission_webhook_request_total >"$work/commands"
  in_shell "$work/commands" | awk -v "hook=\"$1.e2e.gatepost.dev\"" 'index($0, hook) { sum += $NF } END { print sum + 0 }'
}

asked_directly_again() { (($(asked_directly "$1") > $2)); }

# none_unasked: whether Gatepost calls every hook, by the command of the chapter.
none_unasked() {
  local said
  said="$("$gatepost" status --admin "$admin")" && [[ "$said" != *UNASKED* ]]
}

# forward: the webhooks go behind Gatepost, which is the process $serving from then on.
forward() {
  follow "move: the rights are granted" "$chapter" 'kubectl apply -f deploy/kubernetes/beside.yaml'
  gatepost_user
  follow "move: 1. the webhooks are imported" "$chapter" 'gatepost import --kubeconfig'
  grep 'park the originals' "$work/said" >"$work/originals" || broken "import does not say what to park"
  prints "move: which says that these three are to be parked" '(move-first, move-plain, move-third)' cat "$work/originals"
  follow "move: 2. each hook answers" "$chapter" 'gatepost check --connect'
  follow "move: 3. a certificate is made" "$chapter" '-keyout /etc/gatepost/tls/tls.key'
  serving=served
  serve_documented served "$chapter" 'gatepost serve' --listen 127.0.0.1:0 --admin 127.0.0.1:0
  front="$(told served 'listening tcp (.*)')"
  check "move: it is ready" "$gatepost" health --admin "$admin"
  event served
  follow "move: 4. Gatepost is registered" "$chapter" 'gatepost register --form api'
  prints "move: hooks that two entries would ask are left to the first" matchConditions cat "$work/etc/register.yaml"
  eventually "move: and asked" more_reviews_than 0
  follow "move: as the number says that the chapter names" "$chapter" 'grep ^gatepost_requests_total'
  check "move: and no hook is unasked" none_unasked
  event registered
  follow "move: 5. the originals are parked" "$chapter" 'gatepost import --park'
  event "originals parked"
  eventually "move: Gatepost goes on deciding" more_reviews_than "$(($(metric gatepost_requests_total) + 50))"
}

# handovers: an upgrade, and then restarts.
handovers() {
  local n next
  begin_path
  for ((n = 1; n <= ${HANDOVERS:-2}; n++)); do
    sleep "${QUIET:-3}"
    next="served-$n"
    event "handover $n: the new instance starts"
    serve_documented "$next" operating "kill -TERM" --listen "$front"
    event "handover $n: it is ready, and the old one is told to stop"
    check "handover: $n. the old instance ends, and has cut nothing" stop "$serving"
    event "handover $n: the old one has ended"
    serving="$next"
    eventually "handover: $n. the new one decides" more_reviews_than 50
  done
}

# back: as it was.
back() {
  local hook
  declare -A before
  for hook in first plain third; do before[$hook]="$(asked_directly "move-$hook")"; done
  follow "back: 1. the originals are given back" "$chapter" 'gatepost import --give-back'
  event "originals given back"
  for hook in first plain third; do
    eventually "back: 2. move-$hook is asked by kube-apiserver itself" asked_directly_again "move-$hook" "${before[$hook]}"
  done
  follow "back: 3. Gatepost's registration is deleted" "$chapter" 'kubectl delete validatingwebhookconfiguration gatepost'
  event "registration deleted"
  eventually "back: Gatepost is not asked any more" not_asked
  check "back: 4. gatepost ends well when asked to" stop "$serving"
}

not_asked() {
  local before
  before="$(metric gatepost_requests_total)"
  sleep 0.5
  ! more_reviews_than "$before"
}

keep_results() {
  local stream
  mkdir -p "$RESULTS/raw"
  for stream in move handover back; do
    cp "$work/$stream.events" "$RESULTS/raw/$stream-events.csv"
    gzip -9n <"$work/$stream.csv" >"$RESULTS/raw/$stream-writes.csv.gz"
    cat "$work/$stream.found"
  done >"$RESULTS/found.txt"
}

move() {
  local streaming streamed_since serving
  echo "======== move: three webhooks from kube-apiserver to Gatepost and back"
  begin_path "${BEFORE:-$gatepost}"
  begin_movers
  begin_stream move 50
  eventually "move: the webhooks judge, asked by kube-apiserver itself" judged_by move-first move-plain move-third
  forward
  end_stream
  echo "======== handover: Gatepost is upgraded and restarted under 200 writes a second"
  begin_stream handover 200
  handovers
  end_stream -once
  echo "======== back: the webhooks return"
  begin_stream back 50
  back
  end_stream
  [[ -z "${RESULTS:-}" ]] || keep_results
  manifests
  kubectl delete -f "$work/move.yaml" >"$work/said" 2>&1 || broken "unregistering the hooks that moved"
  stop move-first && stop move-plain || broken "the hooks that moved"
}
