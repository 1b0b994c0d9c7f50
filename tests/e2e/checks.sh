# Assertions with names, and what is printed of them.

passed=0
failed=()

# said NAME CODE: prints and counts one assertion; output that explains a failure is in $work/said.
said() {
  if (($2 == 0)); then
    passed=$((passed + 1))
    echo "ok      $1"
  else
    failed+=("$1")
    echo "FAILED  $1"
    [[ ! -s "$work/said" ]] || sed -n '1,30s/^/        /p' "$work/said"
  fi
}

# check NAME COMMAND...: the command has to succeed.
check() {
  local name="$1" code=0
  shift
  "$@" >"$work/said" 2>&1 || code=$?
  said "$name" "$code"
}

# allows NAME COMMAND...: the command has to succeed without a warning.
allows() {
  local name="$1" code=0
  shift
  "$@" >"$work/said" 2>&1 || code=$?
  ! grep -q '^Warning' "$work/said" || code=1
  said "$name" "$code"
}

# prints NAME TEXT COMMAND...: the command has to succeed and to print this text.
prints() {
  local name="$1" text="$2" code=0
  shift 2
  "$@" >"$work/said" 2>&1 || code=$?
  grep -qF -- "$text" "$work/said" || code=1
  said "$name" "$code"
}

# refuses NAME TEXT COMMAND...: the command has to fail and to print this text.
refuses() {
  local name="$1" text="$2" code=1
  shift 2
  "$@" >"$work/said" 2>&1 || code=0
  grep -qF -- "$text" "$work/said" || code=1
  said "$name" "$code"
}

# broken WHAT: the trial itself cannot go on.
broken() {
  local log
  echo "FAILED  $*" >&2
  for log in "$work"/*.log "$work"/cluster/{etcd,kube-apiserver}.log; do
    [[ -s "$log" ]] && { echo "--- ${log#"$work"/}"; tail -n 12 "$log" | cut -c 1-400; } >&2
  done
  exit 1
}

summary() {
  local name
  echo
  for name in "${failed[@]}"; do echo "FAILED  $name"; done
  echo "$passed of $((passed + ${#failed[@]})) assertions hold, after $((SECONDS - began)) s"
  ((${#failed[@]} == 0)) || exit 1
}
