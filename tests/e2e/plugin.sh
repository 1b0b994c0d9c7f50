# kube-apiserver with the admission plugin of go/admission compiled in: no webhook is registered at all. The same story, and
# the same requests as with the hooks registered directly, field by field; requests that no rule matches, for which nobody is
# asked; then Gatepost away, back, and replaced.

# The labels of namespaces come with each review: this Gatepost knows no cluster.
begin_gatepost_of_plugin() {
  start "$1" "$gatepost" serve --config "$work/folder" --uds "$work/gatepost.sock" --plaintext --reuse-port --admin 127.0.0.1:0 \
    --audit-log "$work/$1-audit.jsonl"
  told "$1" '(ready generation.*)' >/dev/null
  admin="$(told "$1" 'listening admin (.*)')"
}

# plugin_configuration POLICY [FILE]
plugin_configuration() {
  cat >"${2:-$work/admission.yaml}" <<YAML
apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: Gatepost
  configuration:
    apiVersion: plugin.gatepost.dev/v1
    kind: GatepostConfiguration
    address: unix://$work/gatepost.sock
    timeout: 30s
    failurePolicy: $1
YAML
}

# account LABEL VALUE: a service account, which no rule of hooks.yaml matches; a dry run.
account() {
  echo "{\"apiVersion\": \"v1\", \"kind\": \"ServiceAccount\", \"metadata\": {\"name\": \"account\", \"labels\": {\"$1\": \"$2\"}}}" |
    in_e2e create --dry-run=server --filename -
}

# makes_no_call COMMAND...: it succeeds, and Gatepost decides no review meanwhile. Tried again where one of kube-apiserver's own
# writes is counted; a call for the command would be seen each time.
makes_no_call() {
  local before
  before="$(metric gatepost_requests_total)"
  "$@" && metric_is gatepost_requests_total "$before"
}

# makes_calls COMMAND...: it succeeds, and Gatepost decides reviews meanwhile.
makes_calls() {
  local before
  before="$(metric gatepost_requests_total)"
  "$@" && (($(metric gatepost_requests_total) > before))
}

# What counts as in force: the plugin has acknowledged it.
generation_in_force() { "$gatepost" status --admin "http://$admin" --json | sed -nE 's/^ *"generation": ([0-9]+),$/\1/p' | head -n 1; }

is_in_force_after() { (($(generation_in_force) > $1)); }

# The index is followed; what it lacks makes no call; and what is added to it is asked about from when it is in force.
rule_index() {
  local generation address
  eventually "plugin: it follows the rule index" metric_is gatepost_rule_index_followers 1
  eventually "plugin: a write that no rule matches makes no call" makes_no_call account accounts no
  check "plugin: a write that a rule matches makes calls" makes_calls asking canary yes

  start accounts "$gatepost" hook --listen 127.0.0.1:0 --deny-if /metadata/labels/accounts=no
  address="$(told accounts 'listening (grpc://.*)')"
  generation="$(generation_in_force)"
  own accounts "{url: \"$address\"}" | sed 's/configmaps/serviceaccounts/' | put accounts.yaml
  eventually "plugin: a rule more is in force" is_in_force_after "$generation"
  check "plugin: the next write that it matches makes calls" makes_calls account accounts yes
  eventually "plugin: and its hook refuses" refused_for 'accounts.e2e.gatepost.dev' account accounts no
  prints "plugin: status tells of the plugin" '1 plugin follows the rule index' "$gatepost" status --admin "http://$admin"

  rm "$work/folder/accounts.yaml"
  eventually "plugin: without the rule the write makes no call" makes_no_call account accounts no
  stop accounts || true
}

# The hook says in which encoding it has read the object. Its objectSelector is of Gatepost, which reads the labels.
objects_in_protobuf() {
  local generation address
  start protobuf-hook "$work/protobuf-hook"
  address="$(told protobuf-hook 'listening (grpc://.*)')"
  generation="$(generation_in_force)"
  own example "{url: \"$address\"}" 'objectEncoding: Protobuf' | sed 's/configmaps/serviceaccounts/' | put example.yaml
  eventually "plugin: a hook that takes objects in protobuf is in force" is_in_force_after "$generation"
  check "plugin: the next write is judged by the object in protobuf" refused_for 'read in protobuf' account example deny
  check "plugin: what its objectSelector selects is allowed" makes_calls account example allow
  check "plugin: and nothing had to be sent again" metric_is 'gatepost_requests_total{outcome="wrong_encoding"}' 0

  start encoding "$gatepost" hook --listen 127.0.0.1:0 --deny-if /metadata/labels/encoding=no
  address="$(told encoding 'listening (grpc://.*)')"
  generation="$(generation_in_force)"
  own encoding "{url: \"$address\"}" | sed 's/configmaps/serviceaccounts/' | put encoding.yaml
  eventually "plugin: another hook, which takes JSON alone, is in force" is_in_force_after "$generation"
  check "plugin: both hooks get JSON" refused_for 'read in JSON' account example deny
  check "plugin: the second one judges" refused_for 'encoding.e2e.gatepost.dev' account encoding no
  generation="$(generation_in_force)"
  rm "$work/folder/encoding.yaml"
  eventually "plugin: it is removed" is_in_force_after "$generation"
  check "plugin: and the first gets protobuf again" refused_for 'read in protobuf' account example deny
  rm "$work/folder/example.yaml"
  eventually "plugin: without both hooks a write makes no call" makes_no_call account example deny
  stop encoding || true
  stop protobuf-hook || true
}

# Writes a dry run again and again until told to end; counts those that failed.
writing() {
  until [[ -e "$work/enough" ]]; do
    asking handover yes >"$work/writing.said" 2>&1 || echo "failed: $(date +%T.%N)" >>"$work/writing.failed"
    echo one >>"$work/writing.done"
  done
}

# more_written COUNT
more_written() { test "$(wc -l <"$work/writing.done")" -gt $(($1 + 3)); }

plugin_differences() {
  "$work/replay-program" compare -expected expected-plugin.tsv -out "$work/plugin-differences.md" "$work/direct.jsonl" plugin="$work/plugin.jsonl"
}

# Its own tests, against the oldest k8s.io/apiserver that it supports, which its go.mod names, and the newest.
plugin_tests() {
  local newest="$work/newest.mod" module
  (
    # Without it, the tests of the storage are skipped.
    export ETCD="$BIN/etcd"
    cd ../../go/admission
    go vet ./...
    go test ./...
    export GOTOOLCHAIN=go1.27.3+auto
    cp go.sum "$work/newest.sum"
    cp go.mod "$newest"
    for module in api apimachinery apiserver client-go; do go mod edit -require="k8s.io/$module@v0.37.2" "$newest"; done
    go mod tidy -modfile="$newest"
    # As get.sh builds, so that nothing is compiled twice.
    go test -trimpath -tags kubernetes_1_37 -modfile="$newest" ./...
  )
}

# Both servers with the plugin; once, as it takes a while.
build_plugged() {
  [[ -z "${plugged:-}" ]] || return 0
  PLUGIN=1 kube/get.sh "$BIN" >"$work/plugin-build.log" 2>&1 || broken "building the servers with the plugin"
  (cd ../../go/admission && go build -o "$work/protobuf-hook" ./internal/protobufhook) || broken "building the hook that takes protobuf"
  plugged=1
}

plugin() {
  echo "======== plugin: kube-apiserver asks Gatepost by the compiled-in plugin, in protobuf over a unix socket"
  build_plugged
  check "plugin: its own tests pass" plugin_tests
  rm -rf "$work/folder"
  mkdir "$work/folder"
  cp "$work/hooks.yaml" "$work/folder/"
  begin_gatepost_of_plugin plugged
  check "plugin: kube-apiserver stops" kube/cluster.sh stop "$work/cluster"
  plugin_configuration Fail
  APISERVER=kube-apiserver-gatepost start_cluster
  check "plugin: hooks are asked" replay await no
  story plugin
  replay cases -hooks "$hooks" -out "$work/plugin.jsonl" 2>"$work/replay.log" || broken "replaying through the plugin"
  check "plugin: no difference to hooks registered directly but those in expected-plugin.tsv" plugin_differences

  rule_index
  objects_in_protobuf

  # A new Gatepost takes the path of the socket over; the old one ends what it has begun.
  : >"$work/writing.done"
  writing &
  process[writing]=$!
  begin_gatepost_of_plugin successor
  written="$(wc -l <"$work/writing.done")"
  check "plugin: the old Gatepost ends well" stop plugged
  eventually "plugin: writes go on" more_written "$written"
  touch "$work/enough"
  wait "${process[writing]}"
  unset "process[writing]"
  check "plugin: no write failed while Gatepost was replaced" test ! -s "$work/writing.failed"
  eventually "plugin: it follows the rule index of the new one" metric_is gatepost_rule_index_followers 1
  eventually "plugin: and makes no call for a write that no rule of it matches" makes_no_call account accounts no

  check "plugin: Gatepost ends well" stop successor
  refuses "plugin: without Gatepost a write is refused" 'failed calling Gatepost (gatepost.v1.Admission/Mutate): no connection to Gatepost' asking nobody anything
  begin_gatepost_of_plugin third
  eventually "plugin: with Gatepost back it is allowed" asking canary yes
  killed third
  kube/cluster.sh stop "$work/cluster"
  plugin_configuration Ignore
  APISERVER=kube-apiserver-gatepost start_cluster
  allows "plugin: under Ignore a write passes without Gatepost" asking nobody anything
  begin_gatepost_of_plugin fourth
  check "plugin: and Gatepost is asked as soon as it is there" replay await no
  refuses "plugin: what a hook denies is refused, under Ignore too" 'canary.e2e.gatepost.dev' asking canary yes 'canary={"allowed": false}'
  kube/cluster.sh stop "$work/cluster"
  start_cluster_unplugged
  allows "plugin: switched off, a write passes, and nobody is asked" asking nobody anything
  check "plugin: the last Gatepost ends well" stop fourth
}

start_cluster_unplugged() {
  APISERVER=kube-apiserver-gatepost kube/cluster.sh start "$work/cluster" --disable-admission-plugins=ServiceAccount,Gatepost ||
    broken "the cluster does not start"
}
