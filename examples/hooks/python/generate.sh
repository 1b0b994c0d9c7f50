#!/usr/bin/env bash
# Generates gen/ from the repository's proto/. Needs requirements.txt installed; nothing else.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
proto=../../../proto
rm -rf gen
mkdir gen
# shellcheck disable=SC2046 # the files' names have no spaces
"${PYTHON:-python3}" -m grpc_tools.protoc -I "$proto" --python_out=gen --grpc_python_out=gen \
  $(cd "$proto" && find . -name '*.proto' | sed 's|^\./||' | sort)
# Only gatepost.v1 has a service; the others' service files are empty.
find gen/k8s -name '*_pb2_grpc.py' -delete
