# Who is killed at which step while webhooks are taken over, changed, fought over and given back: each of leader (the
# replica that writes), follower and owner (all of them) at each of five steps, at the moment at which the step is seen in
# the leases and in the configurations. A round has one victim at each step, so that three rounds have them all.

kill_steps=(announce take change fight release)
kill_table=(
  "leader follower owner leader follower"
  "follower owner leader follower owner"
  "owner leader follower owner leader"
)
adopt_all=(move-first move-plain move-third adopt-changing mutating/adopt-mutating)

# in_time SECONDS NAME COMMAND...: it succeeds in the end.
in_time() {
  local until=$((SECONDS + $1)) name="$2" code=1
  shift 2
  while ((code != 0 && SECONDS < until)); do
    if "$@" >"$work/said" 2>&1; then code=0; else sleep 0.3; fi
  done
  said "$name" "$code"
}

# led: the replica that writes lives.
led() {
  local holder
  holder="$(kubectl --namespace gatepost get lease gatepost-adopt -o jsonpath='{.spec.holderIdentity}')"
  [[ -n "$holder" ]] && ! grep -qF "$holder" "$work/pids/dead"
}

# carry_all, carry_none: all webhooks that are to be taken, and no other.
carry_all() { local one; for one in "${adopt_all[@]}"; do carries_as "$one" || return 1; done; }

carry_none() { local one; for one in "${adopt_all[@]}"; do ! carries_as "$one" || return 1; done; }

carries_as() { case "$1" in */*) carries "${1%/*}" "${1#*/}" ;; *) carries validating "$1" ;; esac; }

# arm CELL STEP VICTIM CONFIGURATION...: from now on somebody watches for the step, and kills the victim as it is seen.
arm() {
  local tries
  rm -f "$work/pids/armed-$2"
  start "kill-$1" "$work/replay-program" kill -cluster "$work/cluster" -step "$2" -victim "$3" -pids "$work/pids" "${@:4}"
  for ((tries = 0; tries < 100; tries++)); do
    [[ ! -e "$work/pids/armed-$2" ]] || return 0
    sleep 0.1
  done
  broken "nobody watches for the $1"
}

# has_killed CELL: the victim was killed at that step.
has_killed() {
  local code=0
  wait "${process[kill-$1]}" || code=$?
  unset "process[kill-$1]"
  cat "$work/kill-$1.log"
  return "$code"
}

# buried NAME: somebody else has killed it.
buried() {
  wait "${process[$1]}" 2>/dev/null || true
  unset "process[$1]"
}

# struck CELL VICTIM: waits until the victim is dead, and starts it again.
struck() {
  local name
  check "adopt: $2 is killed at: $1" has_killed "$1"
  sed -n 's/^.* of .* writes: killed/        &/p' "$work/said"
  event "kill $2: $1 (begins again)"
  while read -r name; do
    case "$name" in
      adopt-*)
        buried "$name"
        begin_adopting "$name" "$front"
        ;;
      *)
        buried "owner-$name"
        begin_owner "$name"
        ;;
    esac
  done <"$work/kill-$1.out"
}

# changing_to: what the next change of the webhook's address is called.
changing_to=url-back

# kill_round ROW: everything is taken, changed, dropped by an owner and given back, with somebody killed at each step.
kill_round() {
  local -a victim
  local commanded n
  read -r -a victim <<<"${kill_table[$1]}"
  for n in "${!kill_steps[@]}"; do echo "        round $1: ${victim[n]} is killed at ${kill_steps[n]}"; done
  # Taken as for the first time.
  in_time 60 "adopt: round $1: nothing holds the registration" unguarded validating
  in_time 60 "adopt: round $1: a replica writes" led
  event "round $1 begins"

  event "kill ${victim[0]}: announce"
  arm take take "${victim[1]}" "${adopt_all[@]}"
  arm announce announce "${victim[0]}" "${adopt_all[@]}"
  adopt "${adopt_all[@]}" --timeout 3m >"$work/round.log" 2>&1 &
  commanded=$!
  struck announce "${victim[0]}"
  event "kill ${victim[1]}: take"
  struck take "${victim[1]}"
  check "adopt: round $1: everything is taken all the same" ended_well "$commanded"
  check "adopt: round $1: which is so" carry_all
  in_time 60 "adopt: round $1: a replica writes, still or again" led

  event "kill ${victim[2]}: change"
  if [[ "${victim[2]}" == owner ]]; then
    arm change change owner move-third
    struck change owner
    n="$(certificates_served)"
    in_time 30 "adopt: round $1: its hook gets another certificate all the same" rotated_since "$n"
  else
    arm change change "${victim[2]}" adopt-changing
    replay change -killed -hooks "$(cat "$work/changing-ends")" "$changing_to" >"$work/round.log" 2>&1 &
    commanded=$!
    struck change "${victim[2]}"
    check "adopt: round $1: the change is in force within 5 s all the same" ended_well "$commanded"
    sed -n 's/^change /        /p' "$work/round.log" | tee -a "$work/adopt.changes"
    if [[ "$changing_to" == url ]]; then changing_to=url-back; else changing_to=url; fi
  fi
  in_time 60 "adopt: round $1: after which a replica writes" led

  event "kill ${victim[3]}: fight"
  arm fight drop "${victim[3]}" move-plain
  echo once >"$work/replacing"
  struck fight "${victim[3]}"
  in_time 90 "adopt: round $1: what its owner has replaced is taken again all the same" carries validating move-plain
  in_time 60 "adopt: round $1: a replica writes again" led

  event "kill ${victim[4]}: release"
  arm release drop "${victim[4]}" "${adopt_all[@]}"
  release --all --timeout 2m >"$work/round.log" 2>&1 &
  commanded=$!
  struck release "${victim[4]}"
  check "adopt: round $1: everything is given back all the same" ended_well "$commanded"
  check "adopt: round $1: which is so, too" carry_none
}

# kill_rounds: as many as ADOPT_ROUNDS says, from another one each day; and says which were left out.
kill_rounds() {
  local rounds="${ADOPT_ROUNDS:-1}" first n cells=$((${#kill_steps[@]} * ${#kill_table[@]}))
  first="${ADOPT_FIRST:-$((10#$(date +%j) % ${#kill_table[@]}))}"
  if ((rounds < ${#kill_table[@]})); then
    echo "################ REDUCED: adopt: $((rounds * ${#kill_steps[@]})) of the $cells kills are tried, beginning with row $first; ADOPT_ROUNDS=${#kill_table[@]} tries all"
  fi
  : >"$work/pids/dead"
  for ((n = 0; n < rounds; n++)); do kill_round $(((first + n) % ${#kill_table[@]})); done
}
