#!/bin/sh
# The build stage of the Dockerfile: puts all that the final image holds into the folder named by the argument.
#
# The binary is linked statically against glibc, which needs no target beyond the compiler's own. Since 2.34, glibc has
# /etc/hosts and DNS built in, so that names resolve without NSS modules; only "files" and "dns" are to be had.
# `--target` is named so that the flag does not reach procedural macros, which have to be shared libraries.
set -eu
out="${1:?usage: build.sh FOLDER}"
cd "$(dirname "$0")/../.."

host="$(rustc -vV | sed -n 's/^host: //p')"
RUSTFLAGS="${RUSTFLAGS:-} -C target-feature=+crt-static" CARGO_PROFILE_RELEASE_STRIP=debuginfo \
  cargo build --release --locked --bin gatepost --target "$host"

rm -rf "$out"
mkdir -p "$out/etc/ssl/certs" "$out/etc/gatepost"
cp "${CARGO_TARGET_DIR:-target}/$host/release/gatepost" "$out/gatepost"
# The authorities that grpcs:// and https:// hooks are checked against, where their configuration names none.
cp /etc/ssl/certs/ca-certificates.crt "$out/etc/ssl/certs/ca-certificates.crt"
echo 'gatepost:x:65532:65532:gatepost:/:/gatepost' >"$out/etc/passwd"
echo 'gatepost:x:65532:' >"$out/etc/group"
chmod -R a+rX,go-w "$out"
