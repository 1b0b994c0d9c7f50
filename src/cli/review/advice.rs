//! Advice: hints where a review came to no verdict, since the server at that address expects something else.

use crate::model::{CallFailure, Endpoint, Step};

/// The fix for a URL that names no gRPC.
pub(super) fn of_url(url: &str, fix: String) -> String {
    match url.split_once("://") {
        Some(("https", rest)) => {
            let place = rest.split('/').next().unwrap_or(rest);
            format!(
                "this command speaks gRPC: write grpcs://{place} (and --ca FILE) for a sidecar that serves TLS; call \
                 a webhook by `curl --json @FILE {url}`, or through a sidecar that has it in its configuration"
            )
        }
        Some(("http" | "http+unix", _)) => format!(
            "this command speaks gRPC: {}; call a webhook by `curl --json @FILE URL`, or through a sidecar that has it in \
             its configuration",
            fix
        ),
        _ => fix,
    }
}

/// Advice about a call that failed, behind a semicolon; empty where the failure says it all.
pub(super) fn after(endpoint: &Endpoint, failure: &CallFailure) -> String {
    let url = endpoint.to_string();
    let place = url.split_once("://").map_or(&*url, |(_, place)| place);
    let tls = endpoint.tls.is_some();
    let fix = match failure {
        CallFailure::Connect(failed) => match failed.step {
            Step::Resolve => "correct the host in --to".to_owned(),
            Step::Connect => {
                "see that a sidecar or a gRPC hook listens there: `gatepost serve` prints its addresses".to_owned()
            }
            Step::Tls => format!(
                "where it serves plaintext, write grpc://{place}; where an authority of yours has signed its certificate, \
                 or it signs itself, name that by --ca FILE; where it has another name, --server-name NAME"
            ),
            Step::Handshake if tls => {
                "where it demands a client certificate, --client-certificate and --client-key; a webhook is \
                 not called by gRPC, but by `curl --json @FILE URL`"
                    .to_owned()
            }
            Step::Handshake => format!(
                "nothing speaks gRPC in plaintext there: where it serves TLS, as a sidecar with --tls-cert does, write \
                 grpcs://{place} and --ca FILE; the admin address takes no reviews; call a webhook by `curl --json \
                 @FILE URL`"
            ),
            Step::Health | Step::Review => return String::new(),
        },
        CallFailure::NotGrpc(_) | CallFailure::Grpc { code: "UNIMPLEMENTED", .. } => {
            "see that gatepost.v1.Admission is served there; call a webhook by `curl --json @FILE URL`".to_owned()
        }
        CallFailure::Timeout(_) => "see that it is well, or give it longer by --timeout".to_owned(),
        _ => return String::new(),
    };
    format!("; {fix}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{model::Unreachable, snapshot::parse_url};

    #[test]
    fn each_wrong_address_is_reported_with_the_right_one() {
        for (url, step, says) in [
            ("grpc://127.0.0.1:9440", Step::Handshake, "write grpcs://127.0.0.1:9440 and --ca FILE"),
            ("grpcs://127.0.0.1:9440", Step::Tls, "write grpc://127.0.0.1:9440"),
            ("grpcs://127.0.0.1:9440", Step::Handshake, "--client-certificate"),
            ("grpc://127.0.0.1:9440", Step::Connect, "gatepost serve"),
            ("grpc://nowhere.example:9440", Step::Resolve, "correct the host"),
        ] {
            let failure = CallFailure::Connect(Unreachable::at(step, "it failed"));
            let output = after(&parse_url(url).unwrap(), &failure);
            assert!(output.starts_with("; ") && output.contains(says), "{url} {step}: {output}");
        }
        let webhook = CallFailure::Grpc { code: "UNIMPLEMENTED", message: String::new() };
        assert!(after(&parse_url("grpc://127.0.0.1:1").unwrap(), &webhook).contains("curl --json @FILE"));
    }

    #[test]
    fn a_url_of_a_webhook_is_reported_with_the_way_to_ask_it() {
        for (url, says) in [
            ("https://127.0.0.1:8443/validate", "grpcs://127.0.0.1:8443 (and --ca FILE)"),
            ("https://127.0.0.1:8443/validate", "curl --json @FILE https://127.0.0.1:8443/validate"),
            ("http://127.0.0.1:8080", "curl --json"),
            ("127.0.0.1:9440", "write grpc://host:port"),
        ] {
            let output = of_url(url, parse_url(url).unwrap_err().fix);
            assert!(output.contains(says), "{url}: {output}");
        }
    }
}
