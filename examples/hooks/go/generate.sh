#!/usr/bin/env bash
# Regenerates gen/ from the repository's proto/. Needs protoc, or Python with the pip package grpcio-tools; and Go.
#
# The messages are Kubernetes' own, so their .proto files name Kubernetes' Go packages. The generated code goes into this
# module instead (the M mappings): k8s.io/api has no google.golang.org/protobuf messages, and nothing here shadows it.
# A hook may import k8s.io/api beside gen/, say to unmarshal the object into corev1.Pod.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
proto=../../../proto
module=example.com/pinned-images/gen

tools="$(mktemp -d)"
trap 'rm -rf "$tools"' EXIT
GOBIN="$tools" go install google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.12
GOBIN="$tools" go install google.golang.org/grpc/cmd/protoc-gen-go-grpc@v1.6.2
if command -v protoc >/dev/null; then protoc=(protoc); else protoc=("${PYTHON:-python3}" -m grpc_tools.protoc); fi

options=()
for mapping in \
  gatepost/v1/admission.proto=gatepostv1 \
  gatepost/v1/initializers.proto=gatepostv1 \
  k8s.io/api/admission/v1/generated.proto=admissionv1 \
  k8s.io/api/authentication/v1/generated.proto=authenticationv1 \
  k8s.io/apimachinery/pkg/apis/meta/v1/generated.proto=metav1 \
  k8s.io/apimachinery/pkg/runtime/generated.proto=runtime
do
  options+=(--go_opt="M${mapping/=/=$module/}" --go-grpc_opt="M${mapping/=/=$module/}")
done
rm -rf gen
# shellcheck disable=SC2046 # the files' names have no spaces
PATH="$tools:$PATH" "${protoc[@]}" -I "$proto" \
  --go_out=. --go_opt=module=example.com/pinned-images \
  --go-grpc_out=. --go-grpc_opt=module=example.com/pinned-images \
  "${options[@]}" $(cd "$proto" && find gatepost k8s.io -name '*.proto' | sort)
# Which protoc it was is of no interest, and would differ from machine to machine.
find gen -name '*.go' -exec sed -i -E '/^\/\/ *-? *protoc +v/d' {} +
gofmt -l gen
