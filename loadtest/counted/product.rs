//! The one place that calls the product's command line.

use std::process::ExitCode;

/// The product, with this process's arguments.
pub(super) fn main() -> ExitCode {
    gatepost::commands::main()
}
