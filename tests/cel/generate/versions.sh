#!/usr/bin/env bash
# Writes answers.json and trees.json by the version of k8s.io/apiserver that go.mod names, and changed.json: each case
# that another version below answers otherwise.
#
#   tests/cel/generate/versions.sh      Go and the module proxy; a minute for each version the first time
#   tests/cel/generate/versions.sh --splice SEED COUNT FOLDER      new cases and answers of each version instead
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

others=(v0.36.3 v0.38.0-alpha.2)

export GOTOOLCHAIN=go1.27.3+auto
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT

splice=()
if [[ "${1:-}" == --splice ]]; then splice=(-splice "$2" "$3" ../cases.json ../expressions.json "$4"); fi

# modules VERSION: writes the go.mod by which everything is of that version.
modules() {
  # From nothing, so that it has the modules that this version names, and none of a later one's.
  printf 'module gatepost.dev/cel\n\ngo 1.26.0\n' >"$work/go.mod"
  : >"$work/go.sum"
  go mod edit -require "k8s.io/api@$1" -require "k8s.io/apimachinery@$1" -require "k8s.io/apiserver@$1" "$work/go.mod"
  # It names a kube-openapi that cannot be had; nothing of that is evaluated here.
  [[ "$1" != v0.38.0-alpha.2 ]] ||
    go mod edit -replace k8s.io/kube-openapi=k8s.io/kube-openapi@v0.0.0-20260721132016-d427ff9ee9ad "$work/go.mod"
  go mod tidy -modfile="$work/go.mod" 2>"$work/log" || { cat "$work/log" >&2; exit 1; }
}

if ((${#splice[@]} > 0)); then
  go run . "${splice[@]}"
  for version in "${others[@]}"; do
    modules "$version"
    go run -modfile="$work/go.mod" . "${splice[@]}"
  done
  exit
fi
go run . ../cases.json >"$work/answers.json"
celgo="$(go list -m -f '{{.Dir}}' github.com/google/cel-go)"
celspec="$(go list -m -f '{{.Dir}}' cel.dev/expr)"
go run . -trees "$celgo" "$celspec" ../expressions.json >"$work/trees.json"
answers=()
for version in "${others[@]}"; do
  modules "$version"
  go run -modfile="$work/go.mod" . ../cases.json >"$work/$version"
  answers+=("$version=$work/$version")
done
mv "$work/answers.json" ../answers.json
mv "$work/trees.json" ../trees.json
go run . -changed ../answers.json "${answers[@]}" >../changed.json
