//! Commands: their output and exit codes.

#[path = "../support/front.rs"]
mod front;
#[path = "../support/mod.rs"]
mod support;

mod check_connects_to_hooks;
mod check_finds_mistakes;
mod commands_end_with_their_exit_code;
mod commands_know_tls_from_plaintext;
mod demo_tells_its_story;
mod gatekeeper_policies_are_read;
mod hazards_are_found;
mod policies_are_tested_without_a_server;
