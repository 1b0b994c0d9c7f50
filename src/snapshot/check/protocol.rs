//! Protocol of a hook: `protocol` and `admissionReviewVersions`.

use std::collections::HashSet;

use super::{client_config::HookLocation, names::is_dns_1035_label};
use crate::{
    model::{Endpoint, HttpForm, Protocol, ReviewVersion, Transport},
    snapshot::document::{
        node::Node,
        problem::{one_of, quoted},
    },
};

/// Values of `protocol`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Word {
    Grpc,
    Json,
    Protobuf,
    Legacy,
}

pub(crate) const WORDS: [(&str, Word); 4] =
    [("grpc", Word::Grpc), ("json", Word::Json), ("protobuf", Word::Protobuf), ("legacy", Word::Legacy)];

/// Checks what an entry of ours says of its protocol, beside how it is reached: the URL's scheme decides, and where
/// there is a service the word does.
pub(crate) fn check(at: &Node<'_>, client: HookLocation) -> Option<(Endpoint, Protocol)> {
    let HookLocation { mut endpoint, path } = client;
    let (word, versions, config) = (at.key("protocol"), at.key("admissionReviewVersions"), at.key("clientConfig"));
    let by_service = config.key("service").present();
    let chosen = match (word.present(), endpoint.transport) {
        (true, _) => word.choice(&WORDS)?,
        (false, Transport::Grpc) => Word::Grpc,
        (false, Transport::Http) => Word::Json,
    };
    let wanted = if chosen == Word::Grpc { Transport::Grpc } else { Transport::Http };
    if by_service {
        endpoint.transport = wanted;
    } else if endpoint.transport != wanted {
        let fitting = match endpoint.transport {
            Transport::Grpc => one_of(&["grpc"]),
            Transport::Http => one_of(&["json", "protobuf", "legacy"]),
        };
        word.problem(
            "is not what the scheme of clientConfig.url says",
            "and either could be the one that is meant",
            format!("write {fitting}, or change the URL"),
        );
        return None;
    }
    let service = config.key("service");
    let unused = match chosen {
        Word::Grpc => [Some(service.key("path")), Some(versions)],
        Word::Legacy => [None, Some(versions)],
        Word::Json | Word::Protobuf => [None, None],
    };
    for key in unused.iter().flatten().filter(|key| key.present()) {
        key.problem(
            "has no meaning in this hook's protocol",
            "so it would have no effect",
            "remove it, or write protocol: json or protobuf",
        );
    }
    let version = match unused[1] {
        None if versions.present() => review_versions(&versions)?,
        _ => ReviewVersion::V1,
    };
    let form = match chosen {
        Word::Grpc => return Some((endpoint, Protocol::Grpc)),
        Word::Json => HttpForm::Json(version),
        Word::Protobuf => HttpForm::Protobuf(version),
        Word::Legacy => HttpForm::Legacy,
    };
    Some((endpoint, Protocol::Http { path: path.into(), form }))
}

/// The version to send: the first of those listed that is known. Checked as upstream does,
/// `docs/reference/webhook-semantics.md` §14; versions that nobody knows yet may stand beside a known one.
pub(crate) fn review_versions(at: &Node<'_>) -> Option<ReviewVersion> {
    const FIX: &str = "list the versions of AdmissionReview that the hook reads: [v1]";
    if !at.required("so no review could be sent", FIX) {
        return None;
    }
    let texts = at.texts()?;
    if texts.is_empty() {
        at.problem("is empty", "so no review could be sent", FIX);
        return None;
    }
    let mut seen = HashSet::new();
    for (item, text) in at.items().zip(&texts) {
        if !seen.insert(*text) {
            item.problem(format!("{} is listed twice", quoted(text)), "which no apiserver accepts", "keep one of them");
        } else if !is_dns_1035_label(text) {
            item.problem(
                format!("{} is not a version", quoted(text)),
                "which no apiserver accepts",
                "write v1 or v1beta1",
            );
        }
    }
    let version = ReviewVersion::choose(&texts);
    if version.is_none() {
        at.problem("holds no version that is known here", "so no review could be sent", "list v1 or v1beta1");
    }
    version
}
