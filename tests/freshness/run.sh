#!/usr/bin/env bash
# Proves the bound: three sidecars over one etcd, 100 changes, reviews without end; then the same over three nodes whose
# leader is killed, and which are all stopped for 8 s; one sidecar is, too. Each run ends with
#
#   verdicts N, older than the bound M, slowest adoption T ms
#
# and with 0 only where M is 0 and every change was taken up by every sidecar. With arguments: one run, as they say
# (`tests/freshness/run.sh --help`). Ends with 77 where there is no etcd.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

# Words of the build go to standard error.
cargo build --locked --quiet --bin gatepost --example freshness
built="${CARGO_TARGET_DIR:-target}/debug"
prove=("$built/examples/freshness" --gatepost "$built/gatepost")

if (($# > 0)); then
  exec "${prove[@]}" "$@"
fi
"${prove[@]}" --nodes 3 --kill-leader --stop-sidecar 7s --stop-etcd 8s
"${prove[@]}"
