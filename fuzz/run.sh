#!/usr/bin/env bash
# Fuzzes: each target for so many seconds, from the committed seeds and finds and from what earlier runs have kept in
# fuzz/corpus/. Ends with 1 where one crashed; its input is then in fuzz/artifacts/<target>/.
#
#   fuzz/run.sh                       every target for 20 s
#   fuzz/run.sh --seconds 600 json_view envelope
#   fuzz/run.sh --repeatable          the same inputs in the same order at every run, as CI does: a fixed seed, and a
#                                     fixed number of inputs, whatever the machine's speed. What it finds was brought by
#                                     the change at hand. New inputs are the longer runs' work.
#
# No sanitizer: nothing here is unsafe, and so the stable toolchain will do. Optimized a little, with overflow checks and
# debug assertions: see the profile in Cargo.toml.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

seconds=20
repeatable=
while [[ "${1:-}" == --* ]]; do
  case "$1" in
    --seconds) seconds="$2"; shift ;;
    --repeatable) repeatable=1 ;;
    *)
      echo "fuzz/run.sh: there is no $1" >&2
      exit 2
      ;;
  esac
  shift
done
targets=("$@")
if ((${#targets[@]} == 0)); then targets=(json_view protobuf_view envelope configuration hook_answer json_patch match_condition http1_reader http2_frames hpack); fi

declare -A dictionary=(
  [json_view]=json [protobuf_view]=protobuf [envelope]=protobuf [configuration]=yaml [hook_answer]=json
  [json_patch]=json [match_condition]=cel [http1_reader]=http1 [http2_frames]=http2 [hpack]=http2
)
# Inputs of a repeatable run: some 15 seconds of an idle core each.
declare -A inputs=(
  [json_view]=200000 [protobuf_view]=200000 [envelope]=200000 [configuration]=7000 [hook_answer]=9000
  [json_patch]=120000 [match_condition]=70000 [http1_reader]=60000 [http2_frames]=35000 [hpack]=170000
)
# tell_crash LOG: what matters of it, which the stack below would push out of sight: the panic with its place, libFuzzer's
# word for it, and the input in full, as its file may go with the machine.
tell_crash() {
  local input
  awk '
    /panicked at / { left = 20 }
    /^(note: |stack backtrace:|==[0-9]+==)/ { left = 0 }
    left-- > 0 || /^==[0-9]+== ?ERROR: / || /^SUMMARY: / || /Test unit written to / { print substr($0, 1, 2000) }
  ' "$1"
  sed -n 's/.*Test unit written to //p' "$1" | while read -r input; do
    # libFuzzer says this of small ones only.
    echo "Base64: $(base64 <"$input" | tr -d '\n')"
  done
}

failed=()
for target in "${targets[@]}"; do
  corpus="corpus/$target"
  mkdir -p "$corpus"
  folders=("$corpus" "seeds/$target")
  if [[ -d "found/$target" ]]; then folders+=("found/$target"); fi
  if [[ -n "$repeatable" ]]; then
    # libFuzzer takes 1 for a seed, and 0 for a new one each time.
    limit=(-seed=1 "-runs=${inputs[$target]}")
    # What earlier runs have kept is left out; the first folder gets what this one keeps.
    rm -rf "$corpus.repeatable"
    mkdir "$corpus.repeatable"
    folders[0]="$corpus.repeatable"
    echo "==== $target, ${inputs[$target]} inputs"
  else
    limit=(-seed=0 "-max_total_time=$seconds")
    echo "==== $target, $seconds s"
  fi
  # An input takes some milliseconds at most: ten seconds are a hang.
  if ! cargo fuzz run --dev --sanitizer none "$target" "${folders[@]}" -- \
    "${limit[@]}" -timeout=10 -rss_limit_mb=2048 -max_len=16384 -print_final_stats=1 \
    "-dict=dictionaries/${dictionary[$target]}.dict" >"$corpus.log" 2>&1; then
    failed+=("$target")
    tell_crash "$corpus.log"
    echo "---- the end of $corpus.log"
    tail -n 40 "$corpus.log"
  fi
  grep -E '^stat::(number_of_executed_units|average_exec_per_sec|peak_rss_mb)' "$corpus.log" || true
done
if ((${#failed[@]} > 0)); then
  echo "crashed: ${failed[*]}; CONTRIBUTING.md says what to do with the inputs in fuzz/artifacts/" >&2
  exit 1
fi
