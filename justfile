# `just --list` says what there is. CI runs `.ci/run`.

# Builds the product.
build:
    cargo build --release

# Runs all tests, or those of one crate: `just test -p gatepost-cel`.
test *arguments:
    cargo test {{arguments}}

# Runs one test of one area of `tests/`: `just one serving failure_policies`.
one area name:
    cargo test --test {{area}} {{name}}

# Checks format and lints.
lint:
    cargo fmt --all --check
    cargo clippy --workspace --all-targets -- -D warnings

# Runs one bench: `just bench matching`.
bench name:
    cargo bench --bench {{name}}

# Tries the product beside a real kube-apiserver.
e2e *arguments:
    tests/e2e/run.sh {{arguments}}

# Opens the documentation of the crates.
docs:
    cargo doc --workspace --no-deps --open

# Does what CI does.
ci *steps:
    .ci/run {{steps}}
