//! A sidecar in operation: changes, restarts, handovers, staleness, emergencies.

#[path = "../support/front.rs"]
mod front;
#[path = "../support/mod.rs"]
mod support;
#[path = "../support/tls.rs"]
mod tls;
#[path = "../support/webhook.rs"]
mod webhook;

mod admin_pages_inform_operators;
mod blocking_io_holds_nothing_up;
mod break_glass_opens_and_closes;
mod broken_files_are_failed_reads;
mod certificates_are_followed;
mod config_changes_are_swapped_in;
mod handover_refuses_nothing;
mod http_hooks_are_probed;
mod initializers_enter_and_leave_rotation;
mod invalid_change_keeps_the_last_good;
mod open_files_are_kept_for_the_configuration;
mod replicas_report_and_drain;
mod restart_keeps_the_last_good;
mod shutdown_lets_calls_end;
mod stale_config_rejects_requests;
