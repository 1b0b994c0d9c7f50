#!/usr/bin/env bash
# Builds Kyverno and Gatekeeper from their Go modules, and takes the manifests of their installation from there. Instant
# once they are there; a quarter of an hour the first time.
#
#   loadtest/peers/get.sh [FOLDER]     prints FOLDER, by default ${XDG_CACHE_HOME:-~/.cache}/gatepost/peers
#
# Ends with 77 when this machine cannot get them at all (no Go, no modules), and with 1 when it could and something broke.
set -euo pipefail

kyverno=1.19.1
gatekeeper=3.23.1

folder="${1:-${XDG_CACHE_HOME:-$HOME/.cache}/gatepost/peers}"

cannot() {
  echo "loadtest/peers/get.sh: $*" >&2
  exit 77
}

# peer NAME MODULE VERSION PACKAGE MANIFEST STAMP: a copy of the module is built, for its own go.mod to be in force: another
# module that requires it would leave out its replacements.
peer() {
  local name="$1" module="$2" version="$3" package="$4" manifest="$5" stamp="$6" source
  [[ ! -x "$folder/$name-$version" || ! -s "$folder/$name-$version.yaml" ]] || return 0
  source="$(go mod download -json "$module@v$version" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')"
  [[ -d "$source" ]] || cannot "the Go module $module@v$version cannot be had"
  cp -r --no-preserve=mode "$source" "$work/$name"
  echo "building $name $version" >&2
  (cd "$work/$name" && CGO_ENABLED=0 nice go build -trimpath -ldflags "-s -w -X $stamp=v$version" \
    -o "$folder/.$name" "$package") >&2
  cp "$work/$name/$manifest" "$folder/$name-$version.yaml"
  mv -f "$folder/.$name" "$folder/$name-$version"
}

command -v go >/dev/null || cannot "go is not here"
export GOTOOLCHAIN=auto
mkdir -p "$folder"
folder="$(cd "$folder" && pwd)"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
cd "$work"
peer gatekeeper github.com/open-policy-agent/gatekeeper/v3 "$gatekeeper" . deploy/gatekeeper.yaml \
  github.com/open-policy-agent/gatekeeper/v3/pkg/version.Version
peer kyverno github.com/kyverno/kyverno "$kyverno" ./cmd/kyverno config/install-latest-testing.yaml \
  github.com/kyverno/kyverno/pkg/version.BuildVersion
ln -sf "kyverno-$kyverno" "$folder/kyverno"
ln -sf "kyverno-$kyverno.yaml" "$folder/kyverno.yaml"
ln -sf "gatekeeper-$gatekeeper" "$folder/gatekeeper"
ln -sf "gatekeeper-$gatekeeper.yaml" "$folder/gatekeeper.yaml"
echo "$folder"
