# Blocks of README.md that show a terminal: commands behind `$ `, and under each what it prints. They are run as they stand
# there, in one shell, with ports and a gatepost that are the trial's.

# free_port: one that nobody listens on, below those that the system hands out by itself.
free_port() {
  local port
  while :; do
    port=$((10000 + RANDOM % 22000))
    (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || { echo "$port"; return; }
  done
}

# begin_console: ports of its own for a hook, for Gatepost and for its admin pages.
begin_console() {
  console_hook="127.0.0.1:$(free_port)" console_front="127.0.0.1:$(free_port)" console_admin="127.0.0.1:$(free_port)"
}

# at_console: README's addresses are these, in commands, files and what is printed. Commands that do not name their address
# are told.
at_console() {
  sed -E -e "s|^(\\$ gatepost hook)|\1 --listen $console_hook|" -e "s|^(\\$ gatepost review)|\1 --to grpc://$console_front|" \
    -e "s|^(\\$ gatepost serve)|\1 --listen $console_front --admin $console_admin|" \
    -e "s|127.0.0.1:9001|$console_hook|g" -e "s|127.0.0.1:9440|$console_front|g" -e "s|127.0.0.1:9441|$console_admin|g"
}

# blocks README HEADING LANGUAGE: every block in this language below the heading.
blocks() {
  awk -v "heading=## $2" -v "fence=\`\`\`$3" '/^## / { below = $0 == heading } /^```/ { inside = below && $0 == fence; next }
    inside { print; found = 1 } END { exit !found }' "$1"
}

# prints_all WANTED PRINTED: is each line there? A line that ends with … begins so, and how long something took is not compared.
prints_all() {
  local line timeless='s/[0-9.]+ (µs|ms|s)$/TIME/'
  while IFS= read -r line; do
    if [[ "$line" == *" …" ]]; then
      grep -qF -- "${line% …}" "$2" || return 1
    else
      sed -E "$timeless" "$2" | grep -qxF -- "$(sed -E "$timeless" <<<"$line")" || return 1
    fi
  done <"$1"
}

# console README HEADING: runs the terminals below this heading, in the current folder. A command has to print what stands under
# it, and to succeed unless that is a refusal; it is repeated until a refusal is there, as a registration takes its time.
# Installing is left out: the gatepost in the PATH is the one to be tried.
console() (
  set +e
  trap '[[ -z "$(jobs -p)" ]] || kill $(jobs -p) 2>/dev/null; wait' EXIT
  blocks "$1" "$2" console >console.documented || { echo "$1 has no terminal below: $2"; exit 1; }
  at_console <console.documented | sed -e :a -e '/\\$/N; s/ *\\\n */ /; ta' >console.block
  count="$(grep -c '^\$ ' console.block)"
  for ((number = 1; number <= count; number++)); do
    awk -v "number=$number" '/^\$ / { at++; next } at == number' console.block >console.wanted
    command="$(awk -v "number=$number" '/^\$ / { at++; if (at == number) print substr($0, 3) }' console.block)"
    [[ "$command" != "cargo install "* ]] || continue
    refused=0
    ! grep -qE '^(DENIED|Error)' console.wanted || refused=1
    for ((tries = 0; tries < 100; tries++)); do
      # What runs in the background goes on writing.
      if ((tries == 0 || refused)); then eval "$command" >console.printed 2>&1; code=$?; fi
      if ((refused == (code != 0))) && prints_all console.wanted console.printed; then continue 2; fi
      [[ "$command" == *"&" ]] || ((refused)) || break
      sleep 0.1
    done
    echo "$ $command"
    echo "printed (and ended with $code):"
    cat console.printed
    echo "and not:"
    cat console.wanted
    exit 1
  done
)
