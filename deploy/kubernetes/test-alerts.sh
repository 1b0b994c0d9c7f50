#!/usr/bin/env bash
# Has each alert of alerts.yaml fire, by promtool and alerts_test.yaml; says loudly when there is no promtool.
#
# promtool is $PROMTOOL, or the one in the PATH or in Go's bin folder. With --build it is built with Go where there is none.
#
#   deploy/kubernetes/test-alerts.sh
#   deploy/kubernetes/test-alerts.sh --build
#
# Ends with 0 when every alert fires, with 77 when nothing was run, else with promtool's own.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

# The version that the rules were written with. Built from a module of our own, as its own has excludes, which
# `go install` refuses; without service discovery, which is most of it, and of which testing rules uses none.
version=v0.316.0

not_run() {
  echo "################ NOT RUN: alerts: $*"
  exit 77
}

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT

gobin() {
  command -v go >/dev/null || return 1
  echo "$(go env GOPATH)/bin"
}

build() {
  local bin
  bin="$(gobin)" || return 1
  (
    cd "$work"
    go mod init promtool >/dev/null 2>&1
    go get -tags remove_all_sd "github.com/prometheus/prometheus/cmd/promtool@$version" >get.log 2>&1 || {
      tail -3 get.log
      exit 1
    }
    mkdir -p "$bin"
    go build -tags remove_all_sd -o "$bin/promtool" github.com/prometheus/prometheus/cmd/promtool
  )
}

find_promtool() {
  if [[ -n "${PROMTOOL:-}" ]]; then
    echo "$PROMTOOL"
  elif command -v promtool >/dev/null; then
    command -v promtool
  elif bin="$(gobin)" && [[ -x "$bin/promtool" ]]; then
    echo "$bin/promtool"
  else
    return 1
  fi
}

if ! promtool="$(find_promtool)"; then
  [[ "${1:-}" == --build ]] || not_run "promtool is not here; get it from prometheus.io, or give --build"
  build || not_run "promtool is not here, and could not be built with Go"
  promtool="$(find_promtool)"
fi

# The object's spec is a rule file.
sed -e '1,/^spec:$/d' -e 's/^  //' alerts.yaml >"$work/rules.yaml"
cp alerts_test.yaml "$work"
"$promtool" check rules "$work/rules.yaml"
"$promtool" test rules "$work/alerts_test.yaml"
echo "every alert fires, and none does of a healthy replica"
