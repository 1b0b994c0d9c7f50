//! The table of every metric: name, kind, labels and help. `docs/metrics.md` is printed from it.

use std::fmt::Write;

/// What a metric's value does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows; its name ends in `_total`.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Durations by bucket; see [`BOUNDS_NANOS`].
    Histogram,
}

/// One metric family, by the name it is exposed under.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Family {
    /// The full name, unit and `_total` included.
    pub name: &'static str,
    /// What its value does.
    pub kind: Kind,
    /// Label names, in order.
    pub labels: &'static [&'static str],
    /// One sentence.
    pub help: &'static str,
}

/// Upper bounds of the histograms' buckets, in nanoseconds: 50 us to 30 s.
pub const BOUNDS_NANOS: [u64; 18] = [
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    100_000_000,
    250_000_000,
    500_000_000,
    1_000_000_000,
    2_500_000_000,
    5_000_000_000,
    10_000_000_000,
    30_000_000_000,
];

macro_rules! families {
    ($($id:ident = $kind:ident $name:literal [$($label:literal),*] $help:literal;)*) => {
        $(#[doc = $help] pub const $id: Family =
            Family { name: $name, kind: Kind::$kind, labels: &[$($label),*], help: $help };)*
        /// Every family, in the order they are exposed.
        pub const ALL: &[Family] = &[$($id),*];
    };
}

families! {
    REQUESTS = Counter "gatepost_requests_total" ["outcome"]
        "Reviews that reached the gate: allowed, denied by a hook, failed by a closed call failure, refused as stale, internal, or bypassed: allowed without asking a hook, as a bypass rule or break-glass says.";
    REQUEST_DURATION = Histogram "gatepost_request_duration_seconds" []
        "Time from a review's message being complete to its verdict.";
    REFUSED = Counter "gatepost_refused_total" ["reason"]
        "Calls and connections that ended at the front, before any hook was asked or because the caller went away.";
    HOOK_CALLS = Counter "gatepost_hook_calls_total" ["hook", "outcome"]
        "Calls of a hook: allowed, denied, failed_open, failed_closed, or cancelled because the review was decided without it.";
    HOOK_CALL_FAILURES = Counter "gatepost_hook_call_failures_total" ["hook", "kind", "policy"]
        "Calls without a usable answer, by what went wrong and the policy that decided (Ignore lets the write pass, Fail does not).";
    HOOK_FAIL_OPEN = Counter "gatepost_hook_fail_open_total" ["hook"]
        "Reviews that passed although this hook did not answer.";
    HOOK_UNASKED = Counter "gatepost_hook_unasked_total" ["hook"]
        "Reviews that meant this hook and were decided without it, as it is still being probed.";
    HOOK_REPEATED_CALLS = Counter "gatepost_hook_repeated_calls_total" ["hook", "cause"]
        "Calls of a hook that were made anew about the same review: retry_after (it answered 429 or 5xx with Retry-After) or policy (its failure policy is Retry). gatepost_hook_calls_total counts a call once, however often it was made.";
    HOOK_ANNOTATIONS_DROPPED = Counter "gatepost_hook_annotations_dropped_total" ["hook", "cause"]
        "Audit annotations of a hook's answers that are left out: key (no qualified name), value (the key has another value already) or limit (beyond 1,000, or 256 KiB, of one answer).";
    HOOK_DURATION = Histogram "gatepost_hook_duration_seconds" ["hook"]
        "Duration of a hook's calls; cancelled calls are left out.";
    HOOK_TIMEOUT = Gauge "gatepost_hook_timeout_seconds" ["hook"]
        "The longest that one call of the hook may take, of namesakes the shortest; absent while no hook of that name is in force.";
    HOOK_LANE_PANICS = Counter "gatepost_hook_lane_panics_total" []
        "Times that the task which carries a worker's calls to a hook panicked and was started anew; each is a bug in gatepost.";
    BYPASSED_REQUESTS = Counter "gatepost_bypassed_requests_total" ["bypass", "effect"]
        "Reviews that a bypass rule applied to, by its name and effect; own-configuration is requests about Gatepost's own configuration, which no hook may hold up.";
    BREAK_GLASS_REQUESTS = Counter "gatepost_break_glass_requests_total" []
        "Reviews that break-glass let past every hook, or past a hook that meant them.";
    OBJECT_BYTES_COPIED = Counter "gatepost_object_bytes_copied_total" []
        "Object bytes copied in user space after they were read: 0 for protobuf in frames of 4 KiB or more; JSON in several frames is joined once.";
    BREAK_GLASS_OPEN = Gauge "gatepost_break_glass_open" []
        "Break-glass documents that are open: while it is not 0, requests pass without being checked.";
    HOOKS = Gauge "gatepost_hooks" []
        "Hooks in force, asked or not.";
    HOOKS_BY_STATE = Gauge "gatepost_hooks_by_state" ["state"]
        "Hooks by where they stand in rotation: active (asked), unproven (asked although no probe has passed in time), moving (asked at the former endpoint until the new one passes its probe), probing (not asked before a probe has passed), and draining (no longer in force, and asked by reviews under way only).";
    HOOKS_UNASKED = Gauge "gatepost_hooks_unasked" []
        "Hooks that are configured and not asked, as their endpoints have passed no probe yet.";
    HOOKS_OVERDUE = Gauge "gatepost_hooks_overdue" []
        "Hooks that have passed no probe within rollout.probeWithin: not asked; or asked unproven, with onProbeFailure: Enforce; or, where they move, still asked at their former endpoint.";
    REGISTRATION_UNCOVERED = Gauge "gatepost_registration_uncovered_hooks" []
        "Hooks of which the registration with the apiserver does not send everything, so that writes pass them unseen; absent without --registration, and where that could not be read for five minutes.";
    INFLIGHT_REQUESTS = Gauge "gatepost_inflight_requests" []
        "Reviews being read or decided.";
    INFLIGHT_LIMIT = Gauge "gatepost_inflight_limit_bytes" []
        "The most bytes that may be held for all purposes of gatepost_inflight_bytes: --max-inflight-bytes, or less where the process was given less memory.";
    OPEN_CONNECTIONS = Gauge "gatepost_open_connections" []
        "Callers' connections.";
    HOOK_CONNECTIONS = Gauge "gatepost_hook_connections" []
        "Connections to hooks, those that are being made included.";
    HOOK_CONNECTIONS_LIMIT = Gauge "gatepost_hook_connections_limit" []
        "The most connections to hooks that there may be, by the open files that the process may have.";
    NAMESPACES = Gauge "gatepost_namespaces" []
        "Namespaces whose labels are known from the apiserver; absent where no cluster is followed.";
    NAMESPACES_AGE = Gauge "gatepost_namespaces_age_seconds" []
        "Time since the apiserver last spoke of its namespaces; at 90 s, requests that need them are rejected.";
    CONFIG_AGE = Gauge "gatepost_config_age_seconds" []
        "Time since the start of the last good read of the configuration; absent before the first.";
    CONFIG_GENERATION = Gauge "gatepost_config_generation" []
        "Number of the configuration in force.";
    CONFIG_REJECTED = Gauge "gatepost_config_rejected" []
        "1 while the newest configuration is invalid: all of it, and an older one is in force, or none; or some of its documents, which are held back or left out.";
    DOCUMENTS_HELD_BACK = Gauge "gatepost_config_documents_held_back" []
        "Documents whose newest state cannot be served, and whose last good state is in force.";
    DOCUMENTS_LEFT_OUT = Gauge "gatepost_config_documents_left_out" []
        "Documents that cannot be served and never could, of which nothing is in force.";
    CONFIG_FROM_LAST_GOOD = Gauge "gatepost_config_from_last_good" []
        "1 while the last good configuration on disk, or a document of it, is in force since the start; absent without --last-good.";
    LAST_GOOD_UNWRITTEN = Gauge "gatepost_last_good_unwritten" []
        "1 while the configuration in force cannot be kept on disk; absent without --last-good.";
    INFLIGHT_BYTES = Gauge "gatepost_inflight_bytes" ["purpose"]
        "Bytes held in the memory budget, by what for: reviews being read or decided, hooks' answers, queues towards hooks of calls that nobody waits for any more, and verdicts that their callers have not read yet.";
    CONFIG_READS = Counter "gatepost_config_reads_total" ["outcome"]
        "Reads of the configuration since the start: unchanged, changed, held_back (changed, but for documents that cannot be served), unconfirmed (enforces less, and waits for a second read that lets the same go), rejected as invalid, or failed_ and why.";
    CONFIG_READ_DURATION = Histogram "gatepost_config_read_duration_seconds" []
        "Duration of the reads that did not fail.";
    TLS_RELOADS = Counter "gatepost_tls_reloads_total" ["outcome"]
        "Changes of the TLS files: replaced for new connections, or rejected, which leaves the last good ones in force.";
    CERTIFICATE_EXPIRY = Gauge "gatepost_certificate_expiry_seconds" ["certificate"]
        "Time until a certificate ends, negative afterwards: our own (server), the callers' authority (client-ca), and what the configuration holds for a hook (hook:<name>).";
    AUDIT_LOST = Counter "gatepost_audit_lost_total" []
        "Audit lines that were not written because the queue was full or the write failed.";
    BUILD_INFO = Gauge "gatepost_build_info" ["version", "arch", "os"]
        "Always 1; the labels say which build of Gatepost this is.";
    PROCESS_CPU = Counter "process_cpu_seconds_total" []
        "Processor time that the process has used, in user and system mode.";
    PROCESS_RESIDENT = Gauge "process_resident_memory_bytes" []
        "Memory of the process that is in use.";
    PROCESS_VIRTUAL = Gauge "process_virtual_memory_bytes" []
        "Address space of the process.";
    PROCESS_OPEN_FDS = Gauge "process_open_fds" []
        "Files that the process has open, connections included.";
    PROCESS_MAX_FDS = Gauge "process_max_fds" []
        "The most files that the process may have open.";
    PROCESS_START = Gauge "process_start_time_seconds" []
        "When the process was started, in seconds since 1970.";
    LOG_LOST = Counter "gatepost_log_lost_total" []
        "Log lines that were not written because stderr did not take them.";
}

/// The table as a Markdown page.
pub fn markdown() -> String {
    let mut page = String::from(
        "# Metrics\n\n\
         Served as OpenMetrics text at `/metrics` on the admin address. \
         This page is printed from the table in `src/telemetry/table.rs`.\n\n\
         | name | kind | labels | meaning |\n| --- | --- | --- | --- |\n",
    );
    for family in ALL {
        let kind = match family.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        let _ = writeln!(page, "| `{}` | {kind} | {} | {} |", family.name, family.labels.join(", "), family.help);
    }
    page.push_str("\nHistograms have these upper bounds, in seconds: ");
    let bounds: Vec<String> = BOUNDS_NANOS.iter().map(|nanos| (*nanos as f64 / 1e9).to_string()).collect();
    let _ = writeln!(page, "{}.", bounds.join(", "));
    page
}
