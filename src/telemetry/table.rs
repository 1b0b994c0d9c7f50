//! Table of all metrics: name, kind, labels and help. `docs/metrics.md` is generated from it.

use std::fmt::Write;

/// Defines families, and the list of them.
macro_rules! families {
    ($($id:ident = $kind:ident $name:literal [$($label:literal),*] $help:literal;)*) => {
        $(#[doc = $help] pub const $id: Family =
            Family { name: $name, kind: MetricKind::$kind, labels: &[$($label),*], help: $help };)*
        /// Every family, in the order of the exposition.
        pub const ALL: &[Family] = &[$($id),*];
    };
}

/// Type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// A value that only grows; its name ends in `_total`.
    Counter,
    /// A value that grows and shrinks.
    Gauge,
    /// Durations by bucket; see [`BOUNDS_NANOS`].
    Histogram,
}

/// Metric family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Family {
    /// Full name, including unit and `_total`.
    pub name: &'static str,
    /// Type of the metric.
    pub kind: MetricKind,
    /// Label names, in order.
    pub labels: &'static [&'static str],
    /// Help text, one sentence.
    pub help: &'static str,
}

/// Upper bounds of the buckets of histograms, in nanoseconds: 50 us to 30 s.
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

families! {
    REQUESTS = Counter "gatepost_requests_total" ["outcome"]
        "Reviews decided, by outcome: allowed, denied (a hook or an initializer said no), failed (a call failure under Fail or Retry, or Gatepost could not match the request), stale (the configuration is too old), wrong_encoding (the plugin sends it again, in JSON), internal (a bug), bypassed (allowed without asking a hook, by a bypass rule or break-glass).";
    REQUEST_DURATION = Histogram "gatepost_request_duration_seconds" []
        "Time from a complete review message to its verdict.";
    REFUSED = Counter "gatepost_refused_total" ["reason"]
        "Calls and connections that ended without a verdict, before any hook was asked or because the caller went away, by reason.";
    HOOK_CALLS = Counter "gatepost_hook_calls_total" ["hook", "type", "outcome"]
        "Calls of a hook, by outcome: allowed, denied, failed_open, failed_closed, would_deny (its denial had no effect, by its enforcement), or cancelled (the review was decided without it). Without calls in shadow.";
    HOOK_CALL_FAILURES = Counter "gatepost_hook_call_failures_total" ["hook", "type", "kind", "policy"]
        "Calls without a usable answer, by kind and by the policy that decided: Ignore skips the hook, Fail rejects the request.";
    HOOK_REJECTIONS = Counter "gatepost_hook_rejections_total" ["hook", "type", "operation", "cause", "code"]
        "Rejections of requests by a hook, by operation, code and cause: denied (it said no), failed_closed (its call failed, and its failure policy rejects) or patch_refused (its patch cannot be applied). Codes above 600 count as 600. Beyond 64 combinations of a hook, the code of a further denial is \"other\".";
    HOOK_FAIL_OPEN = Counter "gatepost_hook_fail_open_total" ["hook", "type"]
        "Reviews that skipped this hook because its call failed.";
    HOOK_UNASKED = Counter "gatepost_hook_unasked_total" ["hook", "type"]
        "Reviews that matched this hook and were decided without it, because it has not passed its probe yet.";
    HOOK_CALLS_IN_VAIN = Counter "gatepost_hook_calls_in_vain_total" ["hook", "type"]
        "Calls of a mutating hook ahead of its turn that did not count, because a hook before it changed the object or ended the request. gatepost_hook_calls_total counts them as cancelled.";
    HOOK_SHADOW_CALLS = Counter "gatepost_hook_shadow_calls_total" ["hook", "type", "outcome"]
        "Calls of a hook in shadow, after the verdict, by outcome: allowed, would_patch, would_deny, failed, or abandoned (the process stopped before, or had no memory or thread to spare). Absent for a hook that never was in shadow.";
    HOOK_CONDITION_EXCLUSIONS = Counter "gatepost_hook_match_condition_exclusions_total" ["hook", "type"]
        "Reviews that matched this hook and did not call it, because one of its match conditions is false.";
    HOOK_CONDITION_ERRORS = Counter "gatepost_hook_match_condition_errors_total" ["hook", "type"]
        "Reviews that matched this hook and for which its match conditions could not be evaluated: Ignore skips the hook, Fail rejects the request.";
    HOOK_CONDITION_DURATION = Histogram "gatepost_hook_match_condition_duration_seconds" ["hook", "type"]
        "Duration of one evaluation of all match conditions of a hook, without the access reviews that they wait for. Absent for hooks whose conditions were never evaluated.";
    HOOK_REPEATED_CALLS = Counter "gatepost_hook_repeated_calls_total" ["hook", "type", "cause"]
        "Repeated calls of a hook about one review, by cause: retry_after (it answered 429 or 5xx with Retry-After) or policy (its failure policy is Retry). gatepost_hook_calls_total counts a call once, however often it was repeated.";
    HOOK_ANNOTATIONS_DROPPED = Counter "gatepost_hook_annotations_dropped_total" ["hook", "type", "cause"]
        "Audit annotations in a hook's answers that were dropped, by cause: key (not a qualified name), value (the key already has another value) or limit (more than 1,000, or 256 KiB, in one answer).";
    HOOK_DURATION = Histogram "gatepost_hook_duration_seconds" ["hook", "type"]
        "Duration of a hook's calls, without cancelled ones.";
    HOOK_TIMEOUT = Gauge "gatepost_hook_timeout_seconds" ["hook", "type"]
        "Timeout of one call of the hook; the shortest where several hooks have this name. Absent while no hook of that name is in force.";
    MUTATION_DURATION = Histogram "gatepost_mutation_duration_seconds" []
        "Duration of the mutating phase, of reviews that match the rules of a mutating hook.";
    HOOK_WORKER_PANICS = Counter "gatepost_hook_worker_panics_total" []
        "Panics of the task that carries a worker's calls to a hook; it restarts by itself. Each is a bug in Gatepost.";
    HOOK_STARVED_CONNECTIONS = Counter "gatepost_hook_starved_connections_total" []
        "HTTP/2 connections to hooks that were replaced because the hook's flow control left no room for calls that waited. It grows where a hook, or a proxy before it, does not give back the window of calls that are reset.";
    POLICY_DECISIONS = Counter "gatepost_policy_decisions_total" ["policy", "type", "outcome"]
        "Decisions of an admission policy about requests that it matches, by outcome: allowed, denied, excluded (a match condition is false), would_deny (its denial had no effect, by its enforcement), failed_open (it could not be evaluated, and the request passed) or failed_closed (the same, and the request was rejected). Without decisions in shadow.";
    POLICY_DURATION = Histogram "gatepost_policy_duration_seconds" ["policy", "type"]
        "Duration of a policy's evaluation, without waits for params and namespaces.";
    POLICY_SHADOW_DECISIONS = Counter "gatepost_policy_shadow_decisions_total" ["policy", "type", "outcome"]
        "Decisions of a policy in shadow, after the verdict, by outcome as of gatepost_hook_shadow_calls_total. Absent for a policy that never was in shadow.";
    CANARY_COMPARISONS = Counter "gatepost_canary_comparisons_total" ["canary", "kind", "type", "result"]
        "Requests that a canary (a hook or a policy) and the one that it is to replace have both decided, one of them in shadow, by result: same or different. Absent for one that never was a canary.";
    SHADOW_DROPPED = Counter "gatepost_shadow_dropped_total" ["reason"]
        "Allowed requests that hooks or policies in shadow would have decided and did not, or not all of them, by reason: slots (64 requests were being decided in shadow), memory (the memory budget was in use) or threads (other work was running beside the workers, or time ran out while waiting for a turn).";
    INITIALIZER_RUNS = Counter "gatepost_initializer_runs_total" ["initializer", "outcome"]
        "Turns of an initializer at a new object, by outcome: changed, unchanged, rejected (it refused the object), failed_open (it did not act in time, or could not, and was skipped), failed_closed (the same, or there was no memory, and the request was rejected) or shed (too many objects waited already: 429).";
    INITIALIZER_DURATION = Histogram "gatepost_initializer_duration_seconds" ["initializer"]
        "Duration of an initializer's turns.";
    INITIALIZER_INSTANCES = Gauge "gatepost_initializer_instances" ["initializer"]
        "Instances that are attached, of each initializer that a process acts for.";
    INITIALIZER_HOLDS = Gauge "gatepost_initializer_holds" ["initializer"]
        "New objects that wait for the initializer. At 1,000, or 4,000 of all initializers, further ones get 429.";
    INITIALIZER_OLDEST_HOLD = Gauge "gatepost_initializer_oldest_hold_seconds" ["initializer"]
        "How long the oldest of these objects has waited; 0 while none does.";
    INITIALIZER_UNATTENDED = Gauge "gatepost_initializer_unattended_seconds" ["initializer"]
        "For how long no instance has been attached; 0 while one is. From 10 s on, objects do not wait: the failure policy decides at once. A name that is new, and has had no instance yet, is skipped.";
    STORED_REPORTS_DROPPED = Counter "gatepost_stored_reports_dropped_total" ["reason"]
        "Reports on Follow streams that were dropped, by reason. message (longer than 256 KiB), names (more than 1,024), causes (more than 1,000) and text (a name, uid or version of more than 253 bytes): the object is not corrected; above 16 MiB the stream ends. unknown_object: initialized or gone, and neither reported as unfinished nor waited for; harmless. unreadable and no_room: the stream ends.";
    ACCESS_REVIEWS = Counter "gatepost_access_reviews_total" ["outcome"]
        "Access checks that the cluster's authorizer was asked to decide, by outcome: allowed, denied, failed (no answer, or no right to ask: the failure policy decides) or abandoned (the request ended before).";
    ACCESS_REVIEW_DURATION = Histogram "gatepost_access_review_duration_seconds" []
        "Duration of these access reviews, without abandoned ones.";
    BYPASSED_REQUESTS = Counter "gatepost_bypassed_requests_total" ["bypass", "effect"]
        "Reviews that a bypass rule applied to, by its name and effect. own-configuration counts requests about Gatepost's own configuration, which skip all hooks.";
    BREAK_GLASS_REQUESTS = Counter "gatepost_break_glass_requests_total" []
        "Reviews that skipped a hook, or all hooks, because break-glass is open.";
    HELD_REQUESTS = Counter "gatepost_held_requests_total" ["outcome"]
        "Reviews that waited for a change of the configuration (--acknowledge hold), by outcome: in_force or timeout (after 1 s they went on without it).";
    OBJECT_BYTES_COPIED = Counter "gatepost_object_bytes_copied_total" []
        "Object bytes copied after they were read: 0 for protobuf in frames of 4 KiB or more; JSON in several frames is joined once.";
    BREAK_GLASS_OPEN = Gauge "gatepost_break_glass_open" []
        "Break-glass documents that are open. While it is not 0, requests pass without being checked.";
    HOOKS = Gauge "gatepost_hooks" []
        "Hooks in force, whether they are called or not.";
    HOOKS_BY_STATE = Gauge "gatepost_hooks_by_state" ["state"]
        "Hooks by state: active (called), unproven (called although no probe has passed in time), moving (called at the former endpoint until the new one passes its probe), probing (not called until a probe passes), draining (no longer in force; reviews in flight may still use it).";
    HOOKS_UNASKED = Gauge "gatepost_hooks_unasked" []
        "Hooks that are configured and not called, because their endpoint has not passed a probe yet.";
    HOOKS_OVERDUE = Gauge "gatepost_hooks_overdue" []
        "Hooks that have passed no probe within rollout.probeWithin: not called; or, with onProbeFailure: Enforce, called unproven; or, where they move, still called at the former endpoint.";
    REGISTRATION_UNCOVERED = Gauge "gatepost_registration_uncovered_hooks" []
        "Hooks, and resources with initializers, for which the registration with the apiserver does not send every request that they want, so that writes pass them unseen. Absent without --registration, and after it could not be read for five minutes.";
    STORED_UNFINISHED = Gauge "gatepost_stored_unfinished_objects" []
        "Objects that apiservers report as stored and not initialized; one that two apiservers report counts twice.";
    STORED_HOLDS = Gauge "gatepost_stored_holds" []
        "CREATEs that apiservers hold until a stored object is initialized.";
    INDEX_FOLLOWERS = Gauge "gatepost_rule_index_followers" []
        "Plugins of apiservers that follow the rule index. They send no request that no rule of it matches: such requests are in no other metric, and not in the audit log.";
    INDEX_ACKNOWLEDGEMENT = Gauge "gatepost_rule_index_acknowledgement_seconds" []
        "Time that the slowest of these plugins took to acknowledge the newest rule index, or has taken so far; absent if none was attached when it changed. Until then, or for 1 s, the generation does not count as in force.";
    INFLIGHT_REQUESTS = Gauge "gatepost_inflight_requests" []
        "Reviews being read or decided.";
    INFLIGHT_LIMIT = Gauge "gatepost_inflight_limit_bytes" []
        "Memory budget, over all purposes of gatepost_inflight_bytes: --max-inflight-bytes, or less where the process has less memory.";
    OPEN_CONNECTIONS = Gauge "gatepost_open_connections" []
        "Connections of callers.";
    HOOK_CONNECTIONS = Gauge "gatepost_hook_connections" []
        "Connections to hooks, including those being opened.";
    HOOK_CONNECTIONS_LIMIT = Gauge "gatepost_hook_connections_limit" []
        "Most connections to hooks, by the limit of open files.";
    NAMESPACES = Gauge "gatepost_namespaces" []
        "Namespaces known from the apiserver; absent without --namespaces-from.";
    NAMESPACES_AGE = Gauge "gatepost_namespaces_age_seconds" []
        "Time since the apiserver last sent anything about namespaces. From 90 s on, each request that needs the labels of a namespace asks for that namespace alone.";
    ENDPOINTS_AGE = Gauge "gatepost_endpoints_age_seconds" []
        "Time since the apiserver last confirmed the endpoints of Services that hooks name, or since hooks name any; absent while they name none, and without --resolve-services endpoints. At 90 s the names are looked up.";
    CONFIG_AGE = Gauge "gatepost_config_age_seconds" []
        "Time since the start of the last successful read of the configuration; absent before the first. At 5 s requests are rejected, unless a bypass rule or break-glass applies.";
    CONFIG_GENERATION = Gauge "gatepost_config_generation" []
        "Number of the configuration in force.";
    CONFIG_REJECTED = Gauge "gatepost_config_rejected" []
        "1 while the newest configuration is not in force as it was written: all of it is invalid, or some of its documents are held back or left out.";
    BINDINGS_AWAITING_PARAMS = Gauge "gatepost_policy_bindings_awaiting_params" []
        "New bindings of policies that are not evaluated yet, as their params were never read; 1024 at most.";
    DOCUMENTS_HELD_BACK = Gauge "gatepost_config_documents_held_back" []
        "Documents whose newest state is invalid; their last good state is in force.";
    DOCUMENTS_LEFT_OUT = Gauge "gatepost_config_documents_left_out" []
        "Invalid documents that never had a good state; nothing of them is in force.";
    CONFIG_FROM_LAST_GOOD = Gauge "gatepost_config_from_last_good" []
        "1 while the last good configuration on disk, or a document of it, has been in force since the start; absent without --last-good.";
    LAST_GOOD_UNWRITTEN = Gauge "gatepost_last_good_unwritten" []
        "1 while the configuration in force cannot be written to disk; absent without --last-good.";
    UNREADABLE_OBJECTS = Counter "gatepost_unreadable_objects_total" ["objects"]
        "Objects of the cluster that were skipped because they cannot be read, each time they are met: namespaces (their labels are looked up when they are needed), endpointslices, and stored_unfinished (an object nested too deep to be initialized: the failure policy of the initializer decides).";
    ADOPTED = Gauge "gatepost_adopted_webhooks" []
        "Webhooks that carry the condition gatepost.dev/served and that this replica calls in the apiserver's place; absent without --adopt.";
    ADOPTED_UNCALLED = Gauge "gatepost_adopted_webhooks_uncalled" []
        "Webhooks that carry the condition gatepost.dev/served and that this replica does not call. The replica that writes gives them back.";
    NOT_ADOPTED = Gauge "gatepost_webhooks_left" ["reason"]
        "Webhooks that are left to the apiserver, by reason; only on the replica that writes.";
    ADOPTED_POLICIES = Gauge "gatepost_adopted_policies" []
        "Bindings of policies that are parked and that this replica evaluates in the apiserver's place; absent without --adopt.";
    ADOPTED_POLICIES_UNUSED = Gauge "gatepost_adopted_policies_unused" []
        "Bindings of policies that are parked and that this replica does not evaluate, but for those of a policy that is not in the cluster. The replica that writes gives them back.";
    NOT_ADOPTED_POLICIES = Gauge "gatepost_policies_left" ["reason"]
        "Bindings of policies that are left to the apiserver, by reason; only on the replica that writes.";
    ADOPTION_OVERLAP = Counter "gatepost_adoption_overlap_seconds_total" []
        "Time in which this replica used webhooks and bindings of policies that the apiserver may have used too, added up over all of them.";
    ADOPTION_OVERLAP_LONGEST = Gauge "gatepost_adoption_overlap_longest_seconds" []
        "Longest time in a row, since the start, in which this replica used one webhook or binding that the apiserver may have used too.";
    ADOPTION_DROPS = Counter "gatepost_adoption_fights_total" []
        "Times that an owner dropped the condition gatepost.dev/served of a webhook, or named the policy of a parked binding again, as this replica saw them while it wrote.";
    INFLIGHT_BYTES = Gauge "gatepost_inflight_bytes" ["purpose"]
        "Bytes held in the memory budget, by purpose: review (being read or decided), answer (of hooks), queue (towards hooks, of calls already given up), verdict (not read by the caller yet).";
    CONFIG_READS = Counter "gatepost_config_reads_total" ["outcome"]
        "Reads of the configuration, by outcome: unchanged, changed, held_back (changed, except documents that are invalid), unconfirmed (enforces less, and waits for a second read to confirm that), rejected (invalid), or failed_ and the reason.";
    CONFIG_READ_DURATION = Histogram "gatepost_config_read_duration_seconds" []
        "Duration of successful reads of the configuration.";
    TLS_RELOADS = Counter "gatepost_tls_reloads_total" ["outcome"]
        "Changes of our own TLS files (those of hooks are part of the configuration): replaced (new connections use them) or rejected (the last good ones stay).";
    CERTIFICATE_EXPIRY = Gauge "gatepost_certificate_expiry_seconds" ["certificate"]
        "Time until a certificate expires, negative afterwards: server (our own), client-ca (the callers' authority), hook:<name> (one that the configuration holds for a hook).";
    AUDIT_LOST = Counter "gatepost_audit_lost_total" []
        "Audit lines that were lost because the queue was full or the write failed.";
    BUILD_INFO = Gauge "gatepost_build_info" ["version", "arch", "os"]
        "Always 1; the labels identify the build.";
    PROCESS_CPU = Counter "process_cpu_seconds_total" []
        "CPU time of the process, user and system.";
    PROCESS_RESIDENT = Gauge "process_resident_memory_bytes" []
        "Resident memory of the process.";
    PROCESS_VIRTUAL = Gauge "process_virtual_memory_bytes" []
        "Virtual memory of the process.";
    PROCESS_OPEN_FDS = Gauge "process_open_fds" []
        "Open file descriptors, connections included.";
    PROCESS_MAX_FDS = Gauge "process_max_fds" []
        "Limit of open file descriptors.";
    PROCESS_START = Gauge "process_start_time_seconds" []
        "Start time of the process, in seconds since 1970.";
    LOG_LOST = Counter "gatepost_log_lost_total" []
        "Log lines that were lost because stderr did not take them.";
}

/// Metrics of a read proxy, which is a separate process.
pub mod read_proxy {
    use super::{Family, MetricKind};

    families! {
        REQUESTS = Counter "gatepost_read_proxy_requests_total" ["outcome"]
            "Requests answered, by outcome: passed (as they are: nothing is hidden from them), filtered (LIST or WATCH with the selector that hides), shown (GET of an object that was looked at), hidden (GET of an object that is not initialized), written (a write of such a resource whose answer was not held), held (a CREATE whose answer was), refused (by the proxy itself), abandoned (the client left before).";
        REFUSED = Counter "gatepost_read_proxy_refused_total" ["reason"]
            "Requests that the proxy refused or could not pass, by reason. holds, memory and questions (429): all of it is in use. unreachable (503) and lost (502): the apiserver. unanswered (503): a question of the proxy had no answer.";
        HOLDS = Gauge "gatepost_read_proxy_holds" []
            "Writes of the named resources under way: from their arrival to their answer, whether or not their object has to wait. At the limit further ones get 429.";
        HOLDS_LIMIT = Gauge "gatepost_read_proxy_holds_limit" []
            "Most such writes: --max-holds.";
        OLDEST_HOLD = Gauge "gatepost_read_proxy_oldest_hold_seconds" []
            "How long the oldest of these writes has been under way; 0 while there is none.";
        HOLD_ENDS = Counter "gatepost_read_proxy_hold_ends_total" ["end"]
            "Answers to CREATE that were held, by the end of the hold: completed (the object is initialized), failed (an initializer has refused it), deleted, timed_out (504), abandoned (the creator left).";
        INSPECTED = Gauge "gatepost_read_proxy_inspected_bytes" ["purpose"]
            "Memory taken for objects that the proxy looks at, until their clients have them, by purpose: read (GET) or write (CREATE). At the limit further ones get 429.";
        INSPECTED_LIMIT = Gauge "gatepost_read_proxy_inspected_limit_bytes" ["purpose"]
            "Most memory for these objects.";
        QUESTIONS = Counter "gatepost_read_proxy_questions_total" ["question", "outcome"]
            "Questions to the apiserver about users, by what was asked: token (whose is it) or access (may the user initialize); and by outcome: yes, no, failed (the apiserver gave no answer), busy (no turn within 5 s: 429), abandoned (the request ended meanwhile). Answers that were kept are not counted.";
        QUESTIONS_ASKED = Gauge "gatepost_read_proxy_questions_asked" []
            "Such questions that are being asked.";
        QUESTIONS_WAITING = Gauge "gatepost_read_proxy_questions_waiting" []
            "Requests that wait for their turn to ask one.";
        QUESTIONS_LIMIT = Gauge "gatepost_read_proxy_questions_limit" []
            "Most such questions at the same time.";
        CONNECTIONS = Gauge "gatepost_read_proxy_open_connections" []
            "Connections of clients, those that have become another protocol included. At the limit further clients wait to be accepted.";
        CONNECTIONS_LIMIT = Gauge "gatepost_read_proxy_connections_limit" []
            "Most connections of clients: --max-connections, or less where the process may open few files.";
        HANDSHAKE_FAILURES = Counter "gatepost_read_proxy_handshake_failures_total" []
            "Connections of clients that ended in their TLS handshake.";
        UPSTREAM_FAILURES = Counter "gatepost_read_proxy_upstream_failures_total" ["kind"]
            "Failures of the apiserver, by kind: connect (no connection for a client's request), lost (the connection broke before the answer), own (a question, read or watch of the proxy itself failed, or was refused).";
        BUILD_INFO = Gauge "gatepost_read_proxy_build_info" ["version", "arch", "os"]
            "Always 1; the labels identify the build.";
    }
}

/// Families of any process that a read proxy has, too. Without [`BUILD_INFO`], so that an alert on its absence, if no
/// sidecar is scraped, does not take a proxy for one.
pub const SHARED_WITH_THE_PROXY: [Family; 9] = [
    TLS_RELOADS,
    CERTIFICATE_EXPIRY,
    PROCESS_CPU,
    PROCESS_RESIDENT,
    PROCESS_VIRTUAL,
    PROCESS_OPEN_FDS,
    PROCESS_MAX_FDS,
    PROCESS_START,
    LOG_LOST,
];

/// Returns the table as a Markdown page, with lines of at most 100 characters.
pub fn markdown() -> String {
    let mut page = String::from(
        "# Metrics\n\n\
         Served as OpenMetrics text at `/metrics` on the admin address. Labels are in braces.\n\
         This page is printed from the table in `src/telemetry/table.rs`.\n\n",
    );
    list(ALL, &mut page);
    let bounds: Vec<String> = BOUNDS_NANOS.iter().map(|nanos| (*nanos as f64 / 1e9).to_string()).collect();
    page.push('\n');
    wrap(&format!("Histograms have these upper bounds, in seconds: {}.", bounds.join(", ")), &mut page);
    page.push_str("\n## The read proxy\n\n");
    let beside: Vec<_> = SHARED_WITH_THE_PROXY.iter().map(|family| format!("`{}`", family.name)).collect();
    let about = "[`gatepost read-proxy`](read-proxy.md#watching-it) serves these on its own admin address, and of \
                 those above:";
    wrap(&format!("{about} {}.", beside.join(", ")), &mut page);
    page.push('\n');
    list(read_proxy::ALL, &mut page);
    page
}

/// Appends an item for each family.
fn list(families: &[Family], page: &mut String) {
    for family in families {
        let kind = match family.kind {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
        };
        let labels = match family.labels {
            [] => String::new(),
            labels => format!("{{{}}}", labels.join(",")),
        };
        wrap(&format!("- `{}{labels}`, {kind}: {}", family.name, family.help), page);
    }
}

/// Appends a paragraph or list item in lines of at most 100 characters.
fn wrap(text: &str, page: &mut String) {
    const WIDTH: usize = 100;
    let indent = if text.starts_with("- ") { "  " } else { "" };
    let mut width = 0;
    for word in text.split(' ') {
        let long = word.chars().count();
        if width > 0 && width + 1 + long > WIDTH {
            let _ = write!(page, "\n{indent}");
            width = indent.len();
        } else if width > 0 {
            page.push(' ');
            width += 1;
        }
        page.push_str(word);
        width += long;
    }
    page.push('\n');
}
