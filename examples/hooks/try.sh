#!/usr/bin/env bash
# Starts the hooks in Rust, Go and Python and a sidecar before them, sends reviews, and shows and checks what comes back:
# first over plain TCP, then over mTLS. Then each initializer of examples/initializers prepares a Pod of the demo. Uses free
# ports on loopback and ends by itself.
#
# A language whose tools are missing is left out, loudly. GATEPOST names a binary to use instead of building one;
# STRICT=1 fails when anything was left out.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

reviews=examples/reviews
work="$(mktemp -d)"
declare -A process=() left_out=()

finish() {
  for name in "${!process[@]}"; do kill "${process[$name]}" 2>/dev/null || true; done
  wait
  rm -rf "$work"
}
trap finish EXIT

fail() {
  echo "FAILED: $*" >&2
  for log in "$work"/*.log; do
    [[ -s "$log" ]] && { echo "--- $(basename "$log")"; tail -n 20 "$log"; } >&2
  done
  exit 1
}

leave_out() {
  left_out[$1]="$2"
  echo "################ NOT RUN: $1: $2" >&2
}

# start NAME COMMAND...: in the background, its stdout in NAME.out and its stderr in NAME.log.
start() {
  local name="$1"
  shift
  "$@" >"$work/$name.out" 2>"$work/$name.log" </dev/null &
  process[$name]=$!
}

# said NAME PATTERN: waits until NAME's stdout has a line like this, and prints what the pattern's group holds.
said() {
  local name="$1" pattern="$2" tries
  for ((tries = 0; tries < 300; tries++)); do
    if grep -qE "$pattern" "$work/$name.out"; then
      sed -nE "s|^.*$pattern.*$|\1|p" "$work/$name.out" | head -n 1
      return
    fi
    kill -0 "${process[$name]}" 2>/dev/null || fail "$name ended before it was up"
    sleep 0.1
  done
  fail "$name did not come up"
}

stop() {
  local name="$1" code=0
  kill "${process[$name]}" 2>/dev/null || fail "$name had ended by itself"
  wait "${process[$name]}" || code=$?
  unset "process[$name]"
  ((code == 0)) || fail "$name ended with exit code $code when asked to stop"
}

build() {
  gatepost="${GATEPOST:-}"
  if [[ -z "$gatepost" ]]; then
    cargo build --quiet --bin gatepost
    gatepost="${CARGO_TARGET_DIR:-target}/debug/gatepost"
  fi
  hooks=(rust)
  cargo build --quiet --example hook-rust --example initializer-rust
  if ! command -v go >/dev/null; then
    leave_out go "go is not here"
  else
    (cd examples/hooks/go && go build -o "$work/hook-go" . && go vet ./... && go test ./... >"$work/go-test.log") || fail "the Go hook does not build"
    (cd examples/initializers/go && go build -o "$work/initializer-go" . && go vet ./... && go test ./... >"$work/go-test.log") || fail "the Go initializer does not build"
    hooks+=(go)
  fi
  if ! python3 -m venv "$work/venv" >"$work/venv.log" 2>&1; then
    leave_out python "python3 with venv is not here"
  elif ! "$work/venv/bin/pip" install --quiet -r examples/hooks/python/requirements.txt >"$work/pip.log" 2>&1; then
    leave_out python "pip could not install requirements.txt: $(tail -n 1 "$work/pip.log")"
  else
    PYTHON="$work/venv/bin/python" examples/hooks/python/generate.sh
    (cd examples/hooks/python && "$work/venv/bin/python" -m unittest 2>"$work/unittest.log") || fail "the Python hook's test"
    (cd examples/initializers/python && "$work/venv/bin/python" -m unittest 2>"$work/unittest.log") || fail "the Python initializer's test"
    hooks+=(python)
  fi
}

# hook NAME OPTIONS...: starts this hook on a free port.
hook() {
  local name="$1"
  shift
  case "$name" in
    rust) start rust "${CARGO_TARGET_DIR:-target}/debug/examples/hook-rust" --listen 127.0.0.1:0 "$@" ;;
    go) start go "$work/hook-go" --listen 127.0.0.1:0 "$@" ;;
    python) start python "$work/venv/bin/python" examples/hooks/python/hook.py --listen 127.0.0.1:0 "$@" ;;
  esac
}

# An authority, and a certificate of each side that it vouches for.
certificates() {
  local key="-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
  # shellcheck disable=SC2086 # a list of words
  {
    openssl req -x509 $key -subj "/CN=trial authority" -keyout "$work/ca.key" -out "$work/ca.crt" \
      -addext basicConstraints=critical,CA:true -addext keyUsage=critical,keyCertSign
    for side in hook gatepost; do
      openssl req -x509 $key -CA "$work/ca.crt" -CAkey "$work/ca.key" -subj "/CN=$side" \
        -keyout "$work/$side.key" -out "$work/$side.crt" -addext basicConstraints=critical,CA:false \
        -addext subjectAltName=IP:127.0.0.1 -addext extendedKeyUsage=serverAuth,clientAuth
    done
  } >"$work/openssl.log" 2>&1
}

# configure SCHEME LINE: every hook at its address, with this further line of client configuration.
configure() {
  local scheme="$1" more="$2" name
  echo "apiVersion: gatepost.dev/v1alpha1"
  echo "kind: AdmissionControlConfiguration"
  echo "metadata: {name: trial}"
  echo "externalAdmissionHooks:"
  for name in "${hooks[@]}"; do
    cat <<YAML
- name: $name.example.com
  clientConfig: {url: "$scheme://$(said "$name" 'listening on (.*)')"$more}
  rules: [{operations: ["*"], apiGroups: ["*"], apiVersions: ["*"], resources: ["*/*"]}]
  timeout: 10s
  sideEffects: None
YAML
  done
}

# ask FILE EXPECTED: what the sidecar says of this review, for people; `gatepost review` ends with 0 (allowed) or 5 (denied).
ask() {
  local code=0
  "$gatepost" review "$1" --to "grpc://$address" 2>&1 || code=$?
  echo
  ((code == $2)) || fail "gatepost review $1 ended with $code, not $2"
}

# counted OUTCOME NAME: how often the sidecar heard this from this hook.
counted() {
  local metrics
  metrics="$(exec 3<>"/dev/tcp/${admin%:*}/${admin##*:}" && printf 'GET /metrics HTTP/1.1\r\nHost: trial\r\nConnection: close\r\n\r\n' >&3 && cat <&3)"
  awk -v name="hook=\"$2.example.com\"" -v outcome="outcome=\"$1\"" \
    '/^gatepost_hook_calls_total/ && index($0, name) && index($0, outcome) { sum += $NF } END { print sum + 0 }' <<<"$metrics"
}

# refused FILE: every hook has to refuse it, and the answer has to say why.
refused() {
  local answer name place=0 before=()
  for name in "${hooks[@]}"; do before+=("$(counted denied "$name")"); done
  answer="$(ask "$1" 5)"
  printf '%s\n\n' "$answer"
  grep -q "images need a tag" <<<"$answer" || fail "the answer to $1 does not say why"
  for name in "${hooks[@]}"; do
    (($(counted denied "$name") - before[place] == 1)) || fail "$name did not refuse $1"
    place=$((place + 1))
  done
}

# many NUMBER SIZE: so many reviews of a Pod of about so many bytes, eight at a time; each hook has to allow each.
many() {
  local number="$1" size="$2" name place=0 before=()
  for name in "${hooks[@]}"; do before+=("$(counted allowed "$name")"); done
  awk -v size="$size" '{ print } /"app.kubernetes.io\/part-of": "shop"/ && !done {
      printf "        \"annotations\": {\"example.com/pad\": \""; for (i = 0; i < size / 16; i++) printf "0123456789abcdef"; print "\"},"; done = 1
    }' "$reviews/pod-create.json" >"$work/large.json"
  (($(wc -c <"$work/large.json") > size)) || fail "$reviews/pod-create.json has no place for an annotation any more"
  seq "$number" | xargs -P 8 -I{} "$gatepost" review "$work/large.json" --to "grpc://$address" >"$work/many.log" 2>&1 || fail "a review of $size bytes"
  for name in "${hooks[@]}"; do
    (($(counted allowed "$name") - before[place] == number)) || fail "$name did not allow every review of $size bytes"
    place=$((place + 1))
  done
  echo "$number reviews of $size bytes: allowed by ${hooks[*]}"
}

round() {
  local what="$1" scheme="$2" more="$3" name
  shift 3
  echo "======== ${hooks[*]} over $what"
  for name in "${hooks[@]}"; do hook "$name" "$@"; done
  configure "$scheme" "$more" >"$work/gatepost.yaml"
  start sidecar "$gatepost" serve --config "$work/gatepost.yaml" --plaintext --listen 127.0.0.1:0 --admin 127.0.0.1:0 --reasons all
  said sidecar '(ready generation.*)' >/dev/null
  address="$(said sidecar 'listening tcp (.*)')"
  admin="$(said sidecar 'listening admin (.*)')"
  "$gatepost" health --admin "$admin" || fail "the sidecar is not healthy"

  ask "$reviews/pod-create.json" 0
  refused "$reviews/pod-create-latest.json"
  for name in "${hooks[@]}"; do
    (($(counted allowed "$name") == 1)) || fail "$name did not allow $reviews/pod-create.json"
  done
  many 40 2048
  many 40 102400
  many 16 1048576
  for name in "${hooks[@]}"; do
    (($(counted failed_closed "$name") == 0)) || fail "calls of $name failed"
  done

  stop sidecar
  for name in "${hooks[@]}"; do stop "$name"; done
}

# initializer NAME: starts this one, as the demo says.
initializer() {
  case "$1" in
    rust) start initializer "${CARGO_TARGET_DIR:-target}/debug/examples/initializer-rust" --to "http://$address" "$image" ;;
    go) start initializer "$work/initializer-go" -to "$address" "$image" ;;
    python) start initializer "$work/venv/bin/python" examples/initializers/python/initializer.py --to "$address" "$image" ;;
  esac
}

# shows NUMBER PATTERN: waits until the demo has printed so many lines like this.
shows() {
  local tries
  for ((tries = 0; tries < 300; tries++)); do
    (($(grep -cE "$2" "$work/demo.out" || true) >= $1)) && return
    kill -0 "${process[demo]}" 2>/dev/null || fail "the demo has ended"
    sleep 0.1
  done
  tail -n 20 "$work/demo.out" >&2
  fail "the demo has not printed \"$2\" so often: $1"
}

# initializers: one after the other they attach to the demo, and each gives its Pod an image by digest.
initializers() {
  local name number=0 code=0
  echo "======== initializers in ${hooks[*]}"
  start demo "$gatepost" demo --initializers --stay
  TOKEN="$(said demo 'export TOKEN=([^ ]*)')"
  export TOKEN
  address="$(said demo 'initializer-rust -- --to http://([^ ]*) .*')"
  image="$(said demo 'initializer-rust -- --to http://[^ ]* (.*)')"
  for name in "${hooks[@]}"; do
    number=$((number + 1))
    initializer "$name"
    shows "$number" 'it is +prepared'
    kill "${process[initializer]}" 2>/dev/null || fail "the initializer in $name had ended by itself"
    wait "${process[initializer]}" || true
    unset "process[initializer]"
    shows "$number" '^0 attached'
    echo "$name: a Pod was prepared"
  done
  # As Ctrl-C.
  kill -INT "${process[demo]}"
  wait "${process[demo]}" || code=$?
  unset "process[demo]"
  ((code == 0)) || fail "the demo ended with exit code $code when asked to stop"
}

build
initializers
round "plain TCP" grpc ""
if ! command -v openssl >/dev/null; then
  leave_out mTLS "openssl is not here"
else
  certificates || fail "openssl made no certificates"
  round mTLS grpcs ", caFile: $work/ca.crt, clientCertificateFile: $work/gatepost.crt, clientKeyFile: $work/gatepost.key" \
    --tls-cert "$work/hook.crt" --tls-key "$work/hook.key" --client-ca "$work/ca.crt"
fi

echo
echo "hooks and initializers tried: ${hooks[*]}"
for name in "${!left_out[@]}"; do echo "################ NOT RUN: $name: ${left_out[$name]}"; done
if [[ "${STRICT:-}" == 1 ]] && ((${#left_out[@]} > 0)); then exit 1; fi
