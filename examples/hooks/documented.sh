#!/usr/bin/env bash
# Runs the commands with which the documentation generates code from proto/ and calls Gatepost over gRPC, as they stand
# there: Python's and Go's of docs/writing-a-hook.md, grpcurl's of docs/beside-an-apiserver.md, ghz's of loadtest/README.md,
# and those of README.md that serve a hook and send it a review.
# The generated code has to be usable: Python imports it, Go builds a server with it.
#
# protoc is the system's, or, as the chapter says, Python's grpc_tools; grpcurl and ghz are built with Go where they are not
# here. A tool that cannot be had is left out, loudly. GATEPOST names a binary to use instead of building one; STRICT=1
# fails when anything was left out.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

root="$PWD"
source tests/e2e/console.sh
work="$(mktemp -d)"
gatepost_pid=
left_out=()

finish() {
  [[ -z "$gatepost_pid" ]] || kill "$gatepost_pid" 2>/dev/null || true
  wait
  # Go's own folders are read-only.
  chmod -R u+w "$work"
  rm -rf "$work"
}
trap finish EXIT

fail() {
  echo "FAILED: $*" >&2
  for log in "$work"/*.log; do
    [[ -s "$log" ]] && { echo "--- $(basename "$log")"; tail -n 20 "$log"; } >&2
  done
  exit 1
}

leave_out() {
  left_out+=("$*")
  echo "################ NOT RUN: $*" >&2
}

# block FILE TEXT: the block of the file that has this text.
block() {
  local found
  found="$(awk -v "text=$2" '/^ *```/ { if (inside && index(block, text)) printf "%s", block; inside = !inside; block = ""; next }
    inside { block = block $0 "\n" }' "$root/$1")"
  [[ -n "$found" ]] || fail "$1 has no block with: $2"
  echo "$found"
}

# project NAME: a folder with a copy of proto/, as the chapter wants it.
project() {
  mkdir -p "$work/$1"
  cp -R "$root/proto" "$work/$1/"
}

# go_tool NAME PACKAGE: where the program is, built with Go where it is not in the PATH; nothing where it cannot be had.
go_tool() {
  local found
  found="$(command -v "$1" || true)"
  if [[ -z "$found" ]] && command -v go >/dev/null; then
    found="$(go env GOPATH)/bin/$1"
    [[ -x "$found" ]] || go install "$2" >"$work/$1.log" 2>&1 || found=
  fi
  echo "$found"
}

python() {
  if ! python3 -m venv "$work/venv" >"$work/venv.log" 2>&1; then
    leave_out "documented commands: Python's: python3 with venv is not here"
    return
  fi
  project python
  block docs/writing-a-hook.md 'grpc_tools.protoc -I proto' >"$work/python.commands"
  if ! (PATH="$work/venv/bin:$PATH" && pip install --quiet grpcio grpcio-tools) >"$work/pip.log" 2>&1; then
    leave_out "documented commands: Python's: pip could not install grpcio and grpcio-tools"
    return
  fi
  (cd "$work/python" && PATH="$work/venv/bin:$PATH" bash -euo pipefail "$work/python.commands") >"$work/python.log" 2>&1 ||
    fail "docs/writing-a-hook.md: Python's commands"
  (cd "$work/python" && PYTHONPATH=gen "$work/venv/bin/python" -c '
from gatepost.v1 import admission_pb2_grpc
from k8s.io.api.admission.v1 import generated_pb2
class Hook(admission_pb2_grpc.AdmissionServicer):
    def Validate(self, review, context):
        return generated_pb2.AdmissionReview(response=generated_pb2.AdmissionResponse(uid=review.request.uid, allowed=True))
answer = Hook().Validate(generated_pb2.AdmissionReview(request=generated_pb2.AdmissionRequest(uid="1")), None)
assert answer.response.allowed and answer.response.uid == "1"
') >"$work/python.log" 2>&1 || fail "what Python's commands generate cannot be used"
  echo "docs/writing-a-hook.md: Python's commands: generated, and a server is made of it"
}

in_go() {
  local tools="$work/tools"
  if ! command -v go >/dev/null; then
    leave_out "documented commands: Go's: go is not here"
    return
  fi
  mkdir -p "$tools"
  if ! command -v protoc >/dev/null; then
    if ! "$work/venv/bin/python" -m grpc_tools.protoc --version >/dev/null 2>&1; then
      leave_out "documented commands: Go's: protoc is not here, nor Python's grpc_tools"
      return
    fi
    # The chapter's other way, in protoc's place.
    printf '#!/bin/sh\nexec "%s" -m grpc_tools.protoc "$@"\n' "$work/venv/bin/python" >"$tools/protoc"
    chmod +x "$tools/protoc"
  fi
  project go
  block docs/writing-a-hook.md 'google.golang.org/protobuf/cmd/protoc-gen-go@' >"$work/go.commands"
  # The modules that are here already, and nothing left behind among the user's programs.
  (
    GOMODCACHE="$(go env GOMODCACHE)" GOPATH="$work/go-path" PATH="$tools:$PATH"
    export GOMODCACHE GOPATH
    cd "$work/go" && bash -euo pipefail "$work/go.commands"
  ) >"$work/go.log" 2>&1 || fail "docs/writing-a-hook.md: Go's commands"
  # The example's versions, which go.sum has.
  sed 's|^module .*|module example.com/my-hook|' examples/hooks/go/go.mod >"$work/go/go.mod"
  cp examples/hooks/go/go.sum "$work/go/"
  cat >"$work/go/main.go" <<'GO'
package main

import (
	"context"

	"google.golang.org/grpc"

	admissionv1 "example.com/my-hook/gen/admissionv1"
	"example.com/my-hook/gen/gatepostv1"
)

type hook struct {
	gatepostv1.UnimplementedAdmissionServer
}

func (hook) Validate(_ context.Context, review *admissionv1.AdmissionReview) (*admissionv1.AdmissionReview, error) {
	allowed := true
	return &admissionv1.AdmissionReview{Response: &admissionv1.AdmissionResponse{Uid: review.GetRequest().Uid, Allowed: &allowed}}, nil
}

func main() { gatepostv1.RegisterAdmissionServer(grpc.NewServer(), hook{}) }
GO
  (cd "$work/go" && go build -mod=mod -o /dev/null .) >"$work/go.log" 2>&1 || fail "what Go's commands generate does not build"
  echo "docs/writing-a-hook.md: Go's commands: generated, and a server is built with it ($(PATH="$tools:$PATH" protoc --version))"
}

readme() {
  local log="$work/readme.log"
  mkdir -p "$work/readme/path"
  ln -s "$(realpath "$gatepost")" "$work/readme/path/gatepost"
  ln -s "$root/examples" "$work/readme/"
  begin_console
  blocks README.md Serve yaml | at_console >"$work/readme/gatepost.yaml"
  (cd "$work/readme" && PATH="$work/readme/path:$PATH" console "$root/README.md" Serve) >"$log" 2>&1 || fail "README.md: Serve"
  echo "README.md: Serve: a hook is served, and reviews are decided as printed"
}

begin_gatepost() {
  local tries
  # There before it is looked into.
  : >"$work/gatepost.out"
  "$gatepost" serve --config examples/config/minimal --plaintext --listen 127.0.0.1:0 --admin 127.0.0.1:0 \
    >"$work/gatepost.out" 2>"$work/gatepost.log" </dev/null &
  gatepost_pid=$!
  for ((tries = 0; tries < 300; tries++)); do
    address="$(sed -n 's/^listening tcp //p' "$work/gatepost.out")"
    [[ -z "$address" ]] || return 0
    kill -0 "$gatepost_pid" 2>/dev/null || break
    sleep 0.1
  done
  fail "gatepost does not come up"
}

# The chapter's Gatepost listens on its usual port.
with_grpcurl() {
  local grpcurl
  grpcurl="$(go_tool grpcurl github.com/fullstorydev/grpcurl/cmd/grpcurl@v1.9.3)"
  if [[ -z "$grpcurl" ]]; then
    leave_out "documented commands: grpcurl is not here, and cannot be built"
    return
  fi
  block docs/beside-an-apiserver.md 'grpcurl -plaintext' | sed "s|127.0.0.1:9440|$address|" >"$work/grpcurl.commands"
  PATH="$(dirname "$grpcurl"):$PATH" bash -euo pipefail "$work/grpcurl.commands" >"$work/grpcurl.log" 2>&1 ||
    fail "docs/beside-an-apiserver.md: grpcurl"
  grep -q 'rpc Review' "$work/grpcurl.log" || fail "docs/beside-an-apiserver.md: grpcurl shows no service"
  echo "docs/beside-an-apiserver.md: grpcurl describes the service"
}

with_ghz() {
  local ghz
  block loadtest/README.md 'cmd/ghz@' | grep -q 'bojand/ghz/cmd/ghz@v0.121.0' || fail "loadtest/README.md names another ghz than this"
  ghz="$(go_tool ghz github.com/bojand/ghz/cmd/ghz@v0.121.0)"
  if [[ -z "$ghz" ]]; then
    leave_out "documented commands: ghz is not here, and cannot be built"
    return
  fi
  echo '{"request": {"uid": "1", "operation": "CREATE", "name": "a", "namespace": "b", "resource": {"version": "v1", "resource": "configmaps"},
    "kind": {"version": "v1", "kind": "ConfigMap"}, "object": {"raw": "e30="}}}' >"$work/REVIEW.json"
  block loadtest/README.md 'ghz --insecure' | sed -e "s|127.0.0.1:9440|$address|" -e "s|REVIEW.json|$work/&|" >"$work/ghz.commands"
  PATH="$(dirname "$ghz"):$PATH" bash -euo pipefail "$work/ghz.commands" >"$work/ghz.log" 2>&1 || fail "loadtest/README.md: ghz"
  grep -qE '\[OK\] +200 responses' "$work/ghz.log" || fail "loadtest/README.md: not every review that ghz sends is answered"
  echo "loadtest/README.md: ghz sends reviews, and each is answered"
}

gatepost="${GATEPOST:-}"
if [[ -z "$gatepost" ]]; then
  cargo build --quiet --bin gatepost
  gatepost="${CARGO_TARGET_DIR:-target}/debug/gatepost"
fi
readme
python
in_go
begin_gatepost
with_grpcurl
with_ghz

for what in "${left_out[@]}"; do echo "################ NOT RUN: $what"; done
if [[ "${STRICT:-}" == 1 ]] && ((${#left_out[@]} > 0)); then exit 1; fi
