//! A sidecar in operation: changes, restarts, handovers, staleness, emergencies.

#[path = "../support/front.rs"]
mod front;
#[path = "../support/mod.rs"]
mod support;
#[path = "../support/tls.rs"]
mod tls;
#[path = "../support/webhook.rs"]
mod webhook;

mod a_handover_refuses_nothing;
mod a_restart_keeps_the_last_good;
mod admin_tells_operators;
mod break_glass_opens_and_closes;
mod broken_files_are_failed_reads;
mod certificates_are_followed;
mod config_changes_are_swapped_in;
mod http_hooks_are_probed;
mod initializers_enter_and_leave_rotation;
mod invalid_change_keeps_the_last_good;
mod open_files_are_kept_for_the_configuration;
mod replicas_are_asked;
mod shutdown_lets_calls_end;
mod stale_config_refuses;
mod what_blocks_holds_nothing_up;
