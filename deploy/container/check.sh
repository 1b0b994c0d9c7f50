#!/usr/bin/env bash
# Proves, without an image registry or a container engine, what can be proved of the image: runs the Dockerfile's build
# stage, and what its final stage copies in an empty root: as nobody, read-only, in a network namespace of its own.
# Needs root, or unprivileged user namespaces.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
image="$work/image"

not_checked() { echo "################ NOT CHECKED: $*"; }

echo "==== build stage"
deploy/container/build.sh "$image"
(cd "$image" && find . -type f -exec ls -l {} +)

echo "==== final stage"
# Parts of the Dockerfile that this script leaves out must at least be there.
grep -qx 'FROM scratch' Dockerfile
grep -qx 'COPY --from=build /image/ /' Dockerfile
[[ "$(sed -n '/^FROM scratch/,$p' Dockerfile | grep -cE '^(COPY|ADD|RUN)')" == 1 ]] || { echo "the final stage does more than this script checks"; exit 1; }
if readelf --version >/dev/null 2>&1; then
  if readelf -lW "$image/gatepost" | grep -q INTERP || readelf -dW "$image/gatepost" | grep -q NEEDED; then
    echo "the binary asks for shared libraries"
    exit 1
  fi
  echo "the binary asks for no shared library"
fi

# Additions of the engine and the user at run time: how names are found, and the configuration's volume.
mkdir "$work/root"
echo '127.0.0.1 localhost' >"$work/hosts"
if command -v python3 >/dev/null; then
  # Every name is 127.0.0.1.
  cat >"$work/dns.py" <<'PYTHON'
import socket
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("127.0.0.1", 53))
while True:
    query, asker = server.recvfrom(512)
    end = query.index(b"\0", 12) + 5
    address = b"\xc0\x0c\0\x01\0\x01\0\0\0\x05\0\x04\x7f\0\0\x01" if query[end - 3] == 1 else b""
    counts = b"\0\x01" + (b"\0\x01" if address else b"\0\0") + b"\0\0\0\0"
    server.sendto(query[:2] + b"\x81\x80" + counts + query[12:end] + address, asker)
PYTHON
else
  not_checked "names over DNS: python3 is not here to answer"
  echo '127.0.0.1 hook.example.com' >>"$work/hosts"
fi
sed 's|grpc://127.0.0.1:9001|grpc://hook.example.com:9001|' examples/config/minimal/gatepost.yaml >"$work/gatepost.yaml"
grep -q hook.example.com "$work/gatepost.yaml"
cp examples/reviews/pod-create.json "$work/review.json"

# Inside namespaces of mount, network and processes: when the script ends, everything in it ends.
cat >"$work/inside.sh" <<'INSIDE'
set -euo pipefail
work="$1"
fail() { echo "FAILED: $*"; cat "$work"/*.log; exit 1; }
ip link set lo up 2>/dev/null || python3 -c '
import fcntl, socket, struct
fcntl.ioctl(socket.socket(), 0x8914, struct.pack("16sh", b"lo", 0x41))'
cp "$work/hosts" "$work/image/etc/hosts"
if [[ -e "$work/dns.py" ]]; then
  echo 'nameserver 127.0.0.1' >"$work/image/etc/resolv.conf"
  python3 "$work/dns.py" 2>"$work/dns.log" &
fi
cp "$work/gatepost.yaml" "$work/image/etc/gatepost/"
cp "$work/review.json" "$work/image/review.json"
mount --bind "$work/image" "$work/root"
mount -o remount,bind,ro "$work/root"
touch "$work/root/written" 2>/dev/null && fail "the root is not read-only"
# The image holds no file that another file could be: nothing but the binary can be run.
[[ "$(find "$work/root" -type f -perm /111 | wc -l)" == 1 ]] || fail "more than one program in the image"

if ((${AS_ROOT:-0})); then run=(chroot --userspec=65532:65532 --groups=65532 "$work/root"); else run=(chroot "$work/root"); fi
run+=(/gatepost)
"${run[@]}" --version
"${run[@]}" check /etc/gatepost
"${run[@]}" health 2>"$work/early.log" && fail "health without a sidecar must say no"
"${run[@]}" serve --config /etc/gatepost --plaintext >"$work/serve.out" 2>"$work/serve.log" &
serve=$!
for ((tries = 0; tries < 100; tries++)); do
  "${run[@]}" health --admin 127.0.0.1:9441 2>"$work/health.log" && break
  kill -0 "$serve" 2>/dev/null || fail "serve ended"
  sleep 0.1
done
"${run[@]}" health --admin 127.0.0.1:9441 || fail "the sidecar is not healthy"
echo "serve and health: good, as user $(awk '/^Uid/ { print $2 }' "/proc/$serve/status")"
"${run[@]}" hook --listen 127.0.0.1:9001 >"$work/hook.out" 2>"$work/hook.log" &
for ((tries = 0; tries < 100; tries++)); do
  "${run[@]}" review /review.json --to grpc://127.0.0.1:9440 >"$work/review.log" 2>&1 && break
  sleep 0.1
done
"${run[@]}" review /review.json --to grpc://127.0.0.1:9440 || fail "no verdict through a hook found by name"
echo "review through a hook found by its name ($([[ -e "$work/dns.py" ]] && echo over DNS || echo in /etc/hosts)): good"
kill -TERM "$serve"
wait "$serve" || fail "serve ended with $? when asked to stop"
INSIDE

namespaces=(--mount --net --pid --fork --mount-proc --kill-child)
if [[ "$(id -u)" == 0 ]] && unshare "${namespaces[@]}" true 2>"$work/unshare"; then
  AS_ROOT=1 unshare "${namespaces[@]}" bash "$work/inside.sh" "$work"
elif unshare --user --map-root-user "${namespaces[@]}" true 2>"$work/unshare"; then
  unshare --user --map-root-user "${namespaces[@]}" bash "$work/inside.sh" "$work"
  not_checked "the user 65532: without root, only the own user can be taken"
else
  not_checked "running in an empty root: no namespaces here ($(head -n 1 "$work/unshare"))"
fi

not_checked "the Dockerfile with a container engine: its base image comes from a registry"
not_checked "TLS to public authorities: the bundle is copied, nothing outside this machine is asked"
