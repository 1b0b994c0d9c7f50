#!/usr/bin/env bash
# etcd and kube-apiserver on free ports of loopback, everything they write in one folder.
#
#   tests/e2e/kube/cluster.sh start DIR [kube-apiserver flags]     ready when it returns; again after stop: the same etcd data
#   tests/e2e/kube/cluster.sh stop DIR
#
# BIN names the folder that get.sh has filled; without it get.sh is asked. APISERVER is the program in it, by default
# kube-apiserver. Callers stop the cluster in a trap.
#
# In DIR afterwards: kubeconfig (user admin), url, token, ca.crt, audit.log, etcd.log, kube-apiserver.log.
# Anyone may pass --admission-control-config-file and the like: static webhook manifests are switched on.
set -euo pipefail

complain() {
  echo "tests/e2e/kube/cluster.sh: $*" >&2
  exit 1
}

# A port that nobody listens on, below those that the system hands out by itself. Someone may take it before we do:
# the callers try again.
free_port() {
  local port
  while :; do
    port=$((10000 + RANDOM % 22000))
    (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || { echo "$port"; return; }
  done
}

alive() { kill -0 "$(cat "$dir/$1.pid")" 2>/dev/null; }

# run NAME COMMAND...: in the background, in a session of its own, so that a Ctrl-C reaches the caller's trap only.
run() {
  local name="$1"
  shift
  setsid "$@" >"$dir/$name.log" 2>&1 </dev/null &
  echo $! >"$dir/$name.pid"
}

# end NAME: asks it to end, insists after ten seconds.
end() {
  local name="$1" pid tries
  [[ -s "$dir/$name.pid" ]] || return 0
  pid="$(cat "$dir/$name.pid")"
  kill "$pid" 2>/dev/null || true
  for ((tries = 0; tries < 100; tries++)); do
    kill -0 "$pid" 2>/dev/null || break
    sleep 0.1
  done
  kill -KILL "$pid" 2>/dev/null || true
  rm -f "$dir/$name.pid"
}

# An authority, the certificate that it gives the apiserver, the key that signs service accounts, and one user.
identities() {
  local key=(-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 20)
  openssl req -x509 "${key[@]}" -subj "/CN=trial cluster" -keyout "$dir/ca.key" -out "$dir/ca.crt" \
    -addext basicConstraints=critical,CA:true -addext keyUsage=critical,keyCertSign
  openssl req -x509 "${key[@]}" -CA "$dir/ca.crt" -CAkey "$dir/ca.key" -subj "/CN=kube-apiserver" \
    -keyout "$dir/serving.key" -out "$dir/serving.crt" -addext basicConstraints=critical,CA:false \
    -addext subjectAltName=IP:127.0.0.1,DNS:localhost -addext extendedKeyUsage=serverAuth
  openssl genrsa -out "$dir/service-accounts.key" 2048
  openssl rand -hex 16 >"$dir/token"
  (umask 077 && echo "$(cat "$dir/token"),admin,admin,system:masters" >"$dir/tokens.csv")
}

# Reads are left out: what hooks have to say is about writes.
audit_policy() {
  cat <<'YAML'
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  verbs: [get, list, watch]
- level: Request
  users: [admin]
- level: Metadata
YAML
}

kubeconfig() {
  cat <<YAML
apiVersion: v1
kind: Config
clusters:
- name: trial
  cluster: {server: "$(cat "$dir/url")", certificate-authority: "$dir/ca.crt"}
users:
- name: admin
  user: {token: "$(cat "$dir/token")"}
contexts:
- name: trial
  context: {cluster: trial, user: admin}
current-context: trial
YAML
}

start_etcd() {
  local tries port
  for ((tries = 0; tries < 5; tries++)); do
    port="$(free_port)"
    # Nothing here has to survive the machine, so nothing waits for its disk.
    run etcd "$bin/etcd" --data-dir "$dir/etcd" --unsafe-no-fsync --log-level warn \
      --listen-client-urls "http://127.0.0.1:$port" --advertise-client-urls "http://127.0.0.1:$port" \
      --listen-peer-urls "http://127.0.0.1:0"
    while alive etcd; do
      if curl -fs "http://127.0.0.1:$port/health" >/dev/null; then
        echo "http://127.0.0.1:$port" >"$dir/etcd.url"
        return
      fi
      sleep 0.1
    done
    grep -q 'address already in use' "$dir/etcd.log" || break
  done
  tail -n 20 "$dir/etcd.log" >&2
  complain "etcd did not start"
}

start_apiserver() {
  local tries wait port=""
  # Started again, it is where it was: its clients have its address from a file.
  [[ ! -s "$dir/url" ]] || port="$(sed 's/.*://' "$dir/url")"
  for ((tries = 0; tries < 5; tries++)); do
    port="${port:-$(free_port)}"
    echo "https://127.0.0.1:$port" >"$dir/url"
    run kube-apiserver "$bin/${APISERVER:-kube-apiserver}" --etcd-servers="$(cat "$dir/etcd.url")" \
      --bind-address=127.0.0.1 --secure-port="$port" --cert-dir="$dir/certificates" \
      --tls-cert-file="$dir/serving.crt" --tls-private-key-file="$dir/serving.key" \
      --token-auth-file="$dir/tokens.csv" --client-ca-file="$dir/ca.crt" --authorization-mode=RBAC --service-cluster-ip-range=10.0.0.0/24 \
      --service-account-issuer=https://kubernetes.default.svc --service-account-key-file="$dir/service-accounts.key" \
      --service-account-signing-key-file="$dir/service-accounts.key" --disable-admission-plugins=ServiceAccount \
      --feature-gates=ManifestBasedAdmissionControlConfig=true \
      --audit-policy-file="$dir/audit-policy.yaml" --audit-log-path="$dir/audit.log" "$@"
    for ((wait = 0; wait < 600; wait++)); do
      alive kube-apiserver || break
      if curl -fs --cacert "$dir/ca.crt" -H "Authorization: Bearer $(cat "$dir/token")" "$(cat "$dir/url")/readyz" >/dev/null; then
        return
      fi
      sleep 0.1
    done
    if alive kube-apiserver; then
      curl -s --cacert "$dir/ca.crt" -H "Authorization: Bearer $(cat "$dir/token")" "$(cat "$dir/url")/readyz?verbose" | grep -v '^\[+\]' >&2 || true
      break
    fi
    grep -q 'address already in use' "$dir/kube-apiserver.log" || break
    port=""
  done
  tail -n 20 "$dir/kube-apiserver.log" >&2
  complain "kube-apiserver did not get ready"
}

start() {
  for tool in openssl curl setsid; do command -v "$tool" >/dev/null || complain "$tool is not here"; done
  bin="${BIN:-$("$(dirname "${BASH_SOURCE[0]}")/get.sh")}"
  mkdir -p "$dir"
  [[ -s "$dir/token" ]] || identities >"$dir/openssl.log" 2>&1 || complain "openssl made no certificates: $(tail -n 3 "$dir/openssl.log")"
  audit_policy >"$dir/audit-policy.yaml"
  # Half a cluster helps nobody.
  trap 'end kube-apiserver; end etcd' ERR EXIT
  start_etcd
  start_apiserver "$@"
  kubeconfig >"$dir/kubeconfig"
  trap - ERR EXIT
}

case "${1:-}" in
  start | stop)
    action="$1"
    (($# >= 2)) || complain "$action needs a folder"
    mkdir -p "$2"
    dir="$(cd "$2" && pwd)"
    shift 2
    ;;
  *)
    sed -n 's/^# \{0,1\}//p' "${BASH_SOURCE[0]}" | sed -n 2,9p >&2
    exit 2
    ;;
esac

if [[ "$action" == start ]]; then
  start "$@"
else
  end kube-apiserver
  end etcd
fi
