//! Metrics of a read proxy, which is a separate process.

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
