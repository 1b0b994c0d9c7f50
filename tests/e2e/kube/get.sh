#!/usr/bin/env bash
# Builds kube-apiserver, kubectl and etcd from their Go modules. Instant once they are there; some minutes the first time.
#
#   tests/e2e/kube/get.sh [BIN]     prints BIN, by default ${XDG_CACHE_HOME:-~/.cache}/gatepost/kube-v$KUBERNETES
#
# PLUGIN=1 also builds kube-apiserver-gatepost and sample-apiserver-gatepost, which have the admission plugin of go/admission
# compiled in, and PLUGIN=stored stored-apiserver-gatepost; always anew, as that is part of this repository.
#
# KUBERNETES is the version, by default the newest that the trials follow; the trials work with 1.36.3 too.
# Ends with 77 when this machine cannot get them at all (no Go, no modules), and with 1 when it could and something broke.
set -euo pipefail

# 1.36 is the first with static webhook manifests. Staging modules carry the same version with another first number.
kubernetes="${KUBERNETES:-1.37.2}"
etcd=3.6.8
# The least that 1.37 is built with; an older Go gets it as a module.
export GOTOOLCHAIN=go1.27.3+auto

go="$(cd "$(dirname "${BASH_SOURCE[0]}")/../../../go" && pwd)"
bin="${1:-${XDG_CACHE_HOME:-$HOME/.cache}/gatepost/kube-v$kubernetes}"

cannot() {
  echo "tests/e2e/kube/get.sh: $*" >&2
  exit 77
}

missing() {
  local name
  for name in "$@"; do [[ -x "$bin/$name" ]] || return 0; done
  return 1
}

# build NAME PACKAGE [FLAGS]: in the module of the current folder. A file that is not whole never has the name.
build() {
  local name="$1" package="$2"
  shift 2
  echo "building $name" >&2
  go build -trimpath "$@" -o "$bin/.$name.$$" "$package"
  mv -f "$bin/.$name.$$" "$bin/$name"
}

# fetch MODULE: its description as JSON; says where Go looks for modules when there is none to be had.
fetch() {
  go mod download -json "$1" 2>"$work/fetch.log" || {
    cat "$work/fetch.log" >&2
    cannot "the Go module $1 cannot be had. Go asks what \`go env GOPROXY\` names: is that reachable from here?"
  }
}

# module PACKAGES...: a tools file, so that Go resolves what these need.
module() {
  echo '//go:build tools'
  echo
  echo 'package tools'
  printf '\nimport _ "%s"\n' "$@"
}

# tidy WHAT: resolves the module of the current folder.
tidy() {
  go mod tidy >"$work/tidy.log" 2>&1 || {
    tail -n 20 "$work/tidy.log" >&2
    cannot "the modules that $1 needs cannot be had"
  }
}

kube() {
  local go_mod package=k8s.io/kubernetes/cmd version=k8s.io/component-base/version
  mkdir "$work/kube" && cd "$work/kube"
  go mod init gatepost.dev/kube >"$work/init.log" 2>&1
  go_mod="$(fetch "k8s.io/kubernetes@v$kubernetes" | sed -n 's/^\t"GoMod": "\(.*\)",$/\1/p')"
  # Its staging modules are folders of its own repository; outside of that they are published modules.
  {
    echo 'module gatepost.dev/kube'
    grep -m1 '^go ' "$go_mod"
    echo "require k8s.io/kubernetes v$kubernetes"
    sed -n "s|^[[:space:]]*\(k8s.io/[a-z0-9.-]*\) => \./staging.*|replace \1 => \1 v0.${kubernetes#1.}|p" "$go_mod"
  } >go.mod
  module "$package/kube-apiserver" "$package/kubectl" >tools.go
  if [[ -n "${PLUGIN:-}" ]]; then
    {
      echo "require gatepost.dev/admission v0.0.0"
      echo "replace gatepost.dev/admission => $go/admission"
    } >>go.mod
    local server
    for server in kube sample stored; do
      mkdir "$server"
      cp "$go/$server-apiserver/main.go" "$server/"
    done
  fi
  tidy "Kubernetes"
  local stamp="-s -w -X $version.gitVersion=v$kubernetes -X $version.gitMajor=1 -X $version.gitMinor=${kubernetes:2:2}"
  missing kube-apiserver && build kube-apiserver "$package/kube-apiserver" -ldflags "$stamp"
  missing kubectl && build kubectl "$package/kubectl" -ldflags "$stamp"
  case "${PLUGIN:-}" in
    1)
      build kube-apiserver-gatepost ./kube -ldflags "$stamp"
      build sample-apiserver-gatepost ./sample -ldflags "-s -w"
      ;;
    stored) build stored-apiserver-gatepost ./stored -ldflags "-s -w" ;;
  esac
  return 0
}

etcd() {
  local go_mod
  mkdir "$work/etcd" && cd "$work/etcd"
  go mod init gatepost.dev/etcd >"$work/init.log" 2>&1
  go_mod="$(fetch "go.etcd.io/etcd/server/v3@v$etcd" | sed -n 's/^\t"GoMod": "\(.*\)",$/\1/p')"
  {
    echo 'module gatepost.dev/etcd'
    grep -m1 '^go ' "$go_mod"
    echo "require go.etcd.io/etcd/server/v3 v$etcd"
  } >go.mod
  module go.etcd.io/etcd/server/v3 >tools.go
  tidy etcd
  build etcd go.etcd.io/etcd/server/v3 -ldflags "-s -w"
}

if [[ -n "${PLUGIN:-}" ]] || missing kube-apiserver kubectl etcd; then
  command -v go >/dev/null || cannot "go is not here, and it takes Go to build kube-apiserver, kubectl and etcd"
  mkdir -p "$bin"
  bin="$(cd "$bin" && pwd)"
  work="$(mktemp -d)"
  trap 'rm -rf "$work" "$bin"/.*."$$"' EXIT
  # Each in a shell of its own, for the folder that it goes to.
  if [[ -n "${PLUGIN:-}" ]] || missing kube-apiserver kubectl; then (kube); fi
  if missing etcd; then (etcd); fi
fi
echo "$bin"
