#!/usr/bin/env bash
# Gatepost before the hooks of a real kube-apiserver, end to end: kubectl, kube-apiserver, Gatepost, hooks, all over TLS on
# free ports of loopback. Then the same requests with the hooks registered directly, and every difference in a table.
#
#   tests/e2e/run.sh                     everything; half an hour, and ten minutes more the first time for building Kubernetes
#   tests/e2e/run.sh --first-half        the story, the configuration in the cluster, moving in and out, and mTLS
#   tests/e2e/run.sh --second-half       the rest; it may run beside the first half
#   tests/e2e/run.sh --direct-only       only the hooks registered directly: is the trial itself sound?
#   tests/e2e/run.sh --definitions-only  only what kube-apiserver makes of `gatepost crd`
#   tests/e2e/run.sh --source-only       only Gatepost with its configuration in the cluster
#   tests/e2e/run.sh --replicas-only     only two of those, and what they tell of themselves there
#   tests/e2e/run.sh --mutual-only       only kube-apiserver that shows Gatepost a client certificate
#   tests/e2e/run.sh --plugin-only       only kube-apiserver with the admission plugin compiled in, beside hooks asked directly
#   tests/e2e/run.sh --aggregated-only   only sample-apiserver behind such a kube-apiserver, both with the plugin
#   tests/e2e/run.sh --mutating-only    only hooks that change objects, directly and behind Gatepost
#   tests/e2e/run.sh --conditions-only   only match conditions that ask the authorizer, directly and behind Gatepost
#   tests/e2e/run.sh --policies-only     only policies, as objects of the API and in Gatepost's configuration
#   tests/e2e/run.sh --policies-by-plugin-only   the same policies, asked for by the admission plugin
#   tests/e2e/run.sh --initializers-only  only initializers of new Pods, built in and processes
#   tests/e2e/run.sh --adopt-only        only webhooks of others that are taken over and given back
#   tests/e2e/run.sh --adopt-policies-only   only policies of the cluster that are taken over and given back
#   tests/e2e/run.sh --in-cluster-only   only Gatepost behind a Service: a rollout and a renewal under load
#   tests/e2e/run.sh --wildcards-only    only a hook for everything behind a registration for everything
#   tests/e2e/run.sh --stored-only      only an apiserver that stores unfinished objects; needs etcd and kubectl alone
#   tests/e2e/run.sh --stored-plugin-only   only a Go server with the plugin that stores unfinished objects
#   tests/e2e/run.sh --label-only       only objects that a stock apiserver stores unfinished, marked by a label
#   tests/e2e/run.sh --read-proxy-only   only unfinished objects hidden by `gatepost read-proxy`
#   tests/e2e/run.sh --move-only         only webhooks that move behind Gatepost, a restart, an upgrade, and the way back
#
# BIN names a folder with kube-apiserver, kubectl and etcd; GATEPOST a binary to use instead of building one; KEEP=1 keeps
# the folder with every log. Ends with 77, loudly, when this machine has no way to get what it takes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
# All files share their names: one that is defined twice would be the later one for everybody.
doubled="$(sed -nE 's/^([a-z_]+)\(\).*/\1/p' ./*.sh | sort | uniq -d)"
[[ -z "$doubled" ]] || { echo "tests/e2e: defined twice: $doubled" >&2; exit 1; }
source ./checks.sh
source ./stage.sh
source ./story.sh
source ./changes.sh
source ./following.sh
source ./definitions.sh
source ./sourcing.sh
source ./replicas.sh
source ./runlevels.sh
source ./documented.sh
source ./console.sh
source ./mutual.sh
source ./plugin.sh
source ./aggregated.sh
source ./move.sh
source ./manifests.sh
source ./mutating.sh
source ./initializers.sh
source ./conditions.sh
source ./policies.sh
source ./adopt_owners.sh
source ./adopt_kills.sh
source ./adopt.sh
source ./adopt_policies.sh
source ./in_cluster.sh
source ./stored.sh
source ./stored_plugin.sh
source ./wildcards.sh
source ./label.sh
source ./read_proxy.sh

modes=(api static)
[[ "${1:-}" == --direct-only ]] && modes=()
# Policies come first: kube-apiserver stops reading params of a built-in kind when no policy uses them, and never begins
# again.
second_half() { policies; adopting; adopting_policies; mutating; conditions; initializers; stored; stored_by_plugin; labelled; read_proxied; in_cluster; }
work="$(mktemp -d)"
trap finish EXIT
trap 'exit 130' INT TERM

not_run() {
  echo "################ NOT RUN: end to end: $*"
  exit 77
}

began=$SECONDS
for tool in go openssl curl; do command -v "$tool" >/dev/null || not_run "$tool is not here"; done
bin="${BIN:-$(kube/get.sh)}" || { (($? == 77)) && not_run "kube-apiserver cannot be built here"; broken "building kube-apiserver"; }
export BIN="$bin"
build
[[ "${1:-}" != --stored-only ]] || { stored; summary; exit; }
certificates || broken "openssl made no certificates"
begin_hooks
begin_cluster

[[ "${1:-}" != --source-only ]] || { sourcing; summary; exit; }
[[ "${1:-}" != --replicas-only ]] || { replicated; summary; exit; }
[[ "${1:-}" != --wildcards-only ]] || { wildcards; summary; exit; }
[[ "${1:-}" != --mutating-only ]] || { mutating; summary; exit; }
[[ "${1:-}" != --conditions-only ]] || { conditions; summary; exit; }
[[ "${1:-}" != --policies-only ]] || { policies; summary; exit; }
[[ "${1:-}" != --policies-by-plugin-only ]] || { policies_by_plugin; summary; exit; }
[[ "${1:-}" != --initializers-only ]] || { initializers; summary; exit; }
[[ "${1:-}" != --adopt-only ]] || { adopting; summary; exit; }
[[ "${1:-}" != --adopt-policies-only ]] || { adopting_policies; summary; exit; }
[[ "${1:-}" != --in-cluster-only ]] || { in_cluster; summary; exit; }
[[ "${1:-}" != --stored-plugin-only ]] || { stored_by_plugin; summary; exit; }
[[ "${1:-}" != --label-only ]] || { labelled; summary; exit; }
[[ "${1:-}" != --read-proxy-only ]] || { read_proxied; summary; exit; }
[[ "${1:-}" != --move-only ]] || { move; summary; exit; }
[[ "${1:-}" != --aggregated-only ]] || { aggregated; summary; exit; }
[[ "${1:-}" != --mutual-only ]] || { mutual; summary; exit; }
[[ "${1:-}" != --second-half ]] || { second_half; summary; exit; }
((${#modes[@]} == 0)) || [[ "${1:-}" == --plugin-only ]] || definitions
[[ "${1:-}" != --definitions-only ]] || { summary; exit; }

echo "======== direct: kube-apiserver asks the hooks itself"
register direct
story direct
replay cases -hooks "$hooks" -out "$work/direct.jsonl" 2>"$work/replay.log" || broken "replaying with the hooks registered directly"
if ((${#modes[@]} == 0)); then
  replay clean || broken "cleaning up"
  replay cases -hooks "$hooks" -out "$work/again.jsonl" 2>"$work/replay.log" || broken "replaying once more"
  check "direct: the same requests come to the same once more" "$work/replay-program" compare -expected /dev/null "$work/direct.jsonl" again="$work/again.jsonl"
fi
unregister direct
[[ "${1:-}" != --plugin-only ]] || { plugin; summary; exit; }

if ((${#modes[@]} > 0)); then
  echo "======== runlevels"
  runlevels
fi

for mode in "${modes[@]}"; do
  echo "======== $mode: kube-apiserver asks Gatepost, registered as $(described "$mode")"
  begin_gatepost "$mode"
  register "$mode"
  story "$mode"
  replay cases -hooks "$hooks" -out "$work/$mode.jsonl" 2>"$work/replay.log" || broken "replaying through Gatepost"
  following
  if [[ "$mode" == api ]]; then
    changes
    blind
  else
    restart
  fi
  end_gatepost
  refuses "$mode: without Gatepost a write is refused" 'failed calling webhook "gatepost.' asking nobody anything
  unregister "$mode"
done

if ((${#modes[@]} > 0)); then
  sourcing; replicated; wildcards; move
  [[ "${1:-}" == --first-half ]] || second_half
  mutual
  plugin
  aggregated
  policies_by_plugin
fi

if ((${#modes[@]} > 0)); then
  echo "======== differences"
  check "no difference between direct and through Gatepost but those in expected.tsv" differences
  sed '1,/^$/d' "$work/differences.md"
  cat mutating.md >>"$work/differences.md"
  check "differences.md is what this run found (it was written anew: commit it)" \
    diff --unified=0 differences.md "$work/differences.md"
  cp "$work/differences.md" differences.md
fi
summary
