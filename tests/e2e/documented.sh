# Commands and files of the documentation, as they stand there, in this trial's folders and on its ports.

# documented CHAPTER TEXT: the block of the chapter that has this text.
documented() {
  local block
  block="$(awk -v "text=$2" '/^ *```/ { if (inside && index(block, text)) printf "%s", block; inside = !inside; block = ""; next }
    inside { sub(/^   /, ""); block = block $0 "\n" }' "../../docs/$1.md" | here)"
  [[ -n "$block" ]] || broken "docs/$1.md has no block with: $2"
  echo "$block"
}

# here: the documentation's places are this trial's.
here() {
  sed -e "s|127.0.0.1:9440|${front:-}|g" -e "s|127.0.0.1:9441|${admin:-}|g" -e 's|127.0.0.1:9443|127.0.0.1:0|g' \
    -e "s|/etc/gatepost|$work/etc|g" -e "s|/var/lib/gatepost|$work/etc|g" -e "s|/etc/kubernetes/admission|$work/mutual|g" \
    -e "s|/etc/kubernetes/admin.conf|$work/cluster/kubeconfig|g" \
    -e "s|deploy/kubernetes/|$deploy/|g"
}

# follow NAME CHAPTER TEXT: runs that block, which has to succeed; what it prints is in $work/said.
follow() {
  documented "$2" "$3" >"$work/commands"
  check "$1" in_shell "$work/commands"
}

# in_shell FILE: with gatepost and kubectl in the PATH, as an administrator has them.
in_shell() { PATH="$work/path:$PATH" bash -euo pipefail "$1" </dev/null; }

# begin_path: the gatepost there may be another one later.
begin_path() {
  mkdir -p "$work/path" "$work/etc"
  ln -sf "$(realpath "${1:-$gatepost}")" "$work/path/gatepost"
  printf '#!/bin/sh\nexec "%s" --kubeconfig "%s" --cache-dir "%s" "$@"\n' "$BIN/kubectl" "$work/cluster/kubeconfig" "$work/kubectl" >"$work/path/kubectl"
  chmod +x "$work/path/kubectl"
}

# serve_documented NAME CHAPTER TEXT [FLAGS]: the Gatepost that the block starts, with the ports that this trial has.
serve_documented() {
  local name="$1"
  documented "$2" "$3" | sed -e :a -e '/\\$/N; s/ *\\\n */ /; ta' |
    sed -n "s/^gatepost serve/exec gatepost serve/; s| > .*&\$||; /^exec/s|\$| ${*:4}|p" >"$work/$name.commands"
  PATH="$work/path:$PATH" start "$name" bash -eu "$work/$name.commands"
  told "$name" '(ready generation.*)' >/dev/null
  admin="$(told "$name" 'listening admin (.*)')"
}
