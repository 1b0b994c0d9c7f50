# The owners of the webhooks that are taken over: small operators, as replay/own.go has them. One applies its registration
# every second, one reads, changes and updates its own every two, one has its hook serve certificates of one authority and
# then another, and the mutating one applies as well. One more changes what it likes, on request: see owners_change.

adopt_owners=(first plain third mutating)

# owned NAME: what the trial's config/move.yaml says of that one alone.
owned() { awk -v RS='---\n' -v "name=name: $1\n" 'index($0, name)' "$work/move.yaml"; }

# rotating_authority NAME: an authority, and a certificate of its with the key in the same file.
rotating_authority() {
  authority "$work/$1-ca" "/CN=rotating $1"
  server_certificate "$work/$1" "$work/$1-ca" "/CN=$1" IP:127.0.0.1
  cat "$work/$1.crt" "$work/$1.key" >"$work/$1.pem"
}

# begin_third: the hook whose certificate changes, in a process of its own.
begin_third() {
  local third
  rotating_authority third-one
  rotating_authority third-two
  cp "$work/third-one.pem" "$work/third.pem"
  start move-third "$work/hook" -cert "$work/third.pem" -key "$work/third.pem" -reload -judged "$work/judged"
  third="$(told move-third 'listening (.*)')"
  # Under Ignore a review that takes too long is a judgement missing. That is not what this trial is about.
  owned move-third | sed -e "s|https://[^/]*/|https://$third/|" -e 's|timeoutSeconds: 3|timeoutSeconds: 20|' \
    -e "s|caBundle: \"[^\"]*\"|caBundle: \"$(base64 -w0 "$work/third-one-ca.crt")\"|" >"$work/owned-third.yaml"
  kubectl apply -f "$work/owned-third.yaml" >"$work/said" 2>&1 || broken "registering the hook whose certificate changes"
}

# certificates_served: how many the hook has had so far.
certificates_served() { echo $((1 + $(grep -c '^certificate' "$work/move-third.out"))); }

rotated_since() { (($(certificates_served) > $1)); }

# begin_mutating: a mutating one.
begin_mutating() {
  owned move-first | sed 's/Validating/Mutating/; s/move-first/adopt-mutating/g; s/CREATE, UPDATE, DELETE/CREATE/' >"$work/owned-mutating.yaml"
  kubectl apply -f "$work/owned-mutating.yaml" >"$work/said" 2>&1 || broken "registering the mutating hook"
}

# begin_changing: one that its owner changes. It leads to one hook at first, and to another one later.
begin_changing() {
  local here there
  here="$(told move-first 'listening (.*)')"
  there="$(told move-plain 'listening (.*)')"
  sed -e "s|@HOOKS@|$here|" -e "s|@CA@|$(base64 -w0 "$work/ca.crt")|" config/adopt.yaml >"$work/owned-changing.yaml"
  printf '[{"url": "https://%s/json/changing-here", "caBundle": "%s"}, {"url": "https://%s/json/changing-there", "caBundle": "%s"}]' \
    "$here" "$(base64 -w0 "$work/ca.crt")" "$there" "$(base64 -w0 "$work/plain/tls.crt")" >"$work/changing-ends"
  echo '{apiVersion: v1, kind: Namespace, metadata: {name: changes, labels: {team: changers}}}' >"$work/changes-namespace.yaml"
  kubectl apply -f "$work/changes-namespace.yaml" -f "$work/owned-changing.yaml" >"$work/said" 2>&1 || broken "registering the hook that is changed"
}

# owners_change CHANGE [FLAGS]: it is made, and has to be in force within the freshness bound; says after how long it was.
owners_change() {
  check "adopt: a change of $1 is in force in time" replay change -hooks "$(cat "$work/changing-ends")" "${@:2}" "$1"
  sed -n 's/^change /        /p' "$work/said" | tee -a "$work/adopt.changes"
}

# conditions_of NAME: how many webhooks of a configuration kube-apiserver does not call.
conditions_of() { kubectl get validatingwebhookconfigurations "$1" -o jsonpath='{.webhooks[*].matchConditions[*].name}' | wc -w; }

both_carry() { (($(conditions_of "$1") == 2)); }

# begin_owner NAME: under a process ID that replay/kill.go finds.
begin_owner() {
  local how
  case "$1" in
    first) how=(applies validating move-first "$work/owned-first.yaml") ;;
    plain) how=(updates validating move-plain "$work/owned-plain.json" "$work/replacing") ;;
    third) how=(rotates validating move-third "$work/third.pem" "$work/third-one.pem,$work/third-one-ca.crt" "$work/third-two.pem,$work/third-two-ca.crt") ;;
    mutating) how=(applies mutating adopt-mutating "$work/owned-mutating.yaml") ;;
  esac
  [[ ! -s "$work/owner-$1.out" ]] || cat "$work/owner-$1.out" >>"$work/owners.log"
  start "owner-$1" "$work/replay-program" own -cluster "$work/cluster" "${how[@]}"
  echo "${process[owner-$1]}" >"$work/pids/owner-$1"
}

begin_owners() {
  local owner
  owned move-first >"$work/owned-first.yaml"
  owned move-plain >"$work/owned-plain.yaml"
  kubectl create --dry-run=client -o json -f "$work/owned-plain.yaml" >"$work/owned-plain.json" || broken "a registration in JSON"
  for owner in "${adopt_owners[@]}"; do begin_owner "$owner"; done
}

end_owners() {
  local owner
  rm -f "$work/replacing"
  for owner in "${adopt_owners[@]}"; do
    killed "owner-$owner"
    rm -f "$work/pids/owner-$owner"
  done
}
