#!/usr/bin/env bash
# Makes new conditions and objects of those in tests/cel, has kube-apiserver's own code (k8s.io/apiserver with cel-go)
# evaluate them, and compares: value or error, cost, and whether a condition is refused. What depends on the order of a
# map is left out. Ends with 77 where Go or its modules cannot be had.
#
#   fuzz/cel-go.sh                          5,000 of seed 1, as CI does
#   fuzz/cel-go.sh --seed 7 --count 50000
#   fuzz/cel-go.sh --versions               of each version that tests/cel/generate/versions.sh knows
#   fuzz/cel-go.sh --merges --count 20000   instead, new objects and apply configurations, as upstream's
#                                           structured-merge-diff merges them; Go builds much of Kubernetes for that
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

seed=1
count=5000
versions=
merges=
while (($# > 0)); do
  case "$1" in
    --seed) seed="${2:-}"; shift ;;
    --count) count="${2:-}"; shift ;;
    --versions) versions=1 ;;
    --merges) merges=1 ;;
    *)
      echo "fuzz/cel-go.sh: there is no $1" >&2
      exit 2
      ;;
  esac
  shift "$(($# > 0))"
done
[[ "$seed" =~ ^[0-9]{1,18}$ && "$count" =~ ^[1-9][0-9]{0,8}$ ]] || {
  echo "fuzz/cel-go.sh: --seed and --count take whole numbers, and at least one condition is compared" >&2
  exit 2
}

not_run() {
  echo "################ NOT RUN: expressions beside cel-go: $*"
  exit 77
}

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
export GOTOOLCHAIN=go1.27.3+auto
command -v go >/dev/null || not_run "Go is not here"
generate=tests/cel/generate
if [[ -n "$merges" ]]; then generate=tests/policies/generate; fi
(cd "$generate" && go list -deps .) >"$work/log" 2>&1 || {
  tail -3 "$work/log"
  not_run "Go's toolchain or modules cannot be had"
}
if [[ -n "$merges" ]]; then
  (cd tests/policies/generate && go run . --merge "$seed" "$count" "$work/merges")
  GATEPOST_GENERATED_MERGES="$work/merges" cargo test --locked -p gatepost-policy --lib generated_configurations
  exit
fi
if [[ -n "$versions" ]]; then
  tests/cel/generate/versions.sh --splice "$seed" "$count" "$work/cases"
else
  (cd tests/cel/generate && go run . -splice "$seed" "$count" ../cases.json ../expressions.json "$work/cases")
fi
GATEPOST_CEL_GENERATED="$work/cases" cargo test --locked -p gatepost-cel --lib expressions_have_the_values
