#!/usr/bin/env bash
# Drives a release sidecar and trial hooks with ghz and writes a dated folder. `--quick` takes a minute or two. PROFILE=dev
# takes the builds of the tests instead: that all of it works, without any figure worth keeping.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

ghz="$(command -v ghz || true)"
if [[ -z "$ghz" ]] && command -v go >/dev/null; then
  ghz="$(go env GOPATH)/bin/ghz"
fi
if [[ ! -x "$ghz" ]]; then
  echo "loadtest/run.sh: ghz is not here. Get it with" >&2
  echo "    go install github.com/bojand/ghz/cmd/ghz@v0.121.0" >&2
  echo "and see to it that \$(go env GOPATH)/bin is in PATH." >&2
  exit 3
fi

profile="${PROFILE:-release}"
folder="$profile"
if [[ "$profile" == dev ]]; then folder=debug; fi

# Two builds on purpose: the product must not inherit features that only the measuring programs ask for.
cargo build --profile "$profile" --quiet --bin gatepost
cargo build --profile "$profile" --quiet --example compare

exec "${CARGO_TARGET_DIR:-target}/$folder/examples/compare" ghz --ghz "$ghz" "$@"
