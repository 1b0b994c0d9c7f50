//! The three ways in: a review in JSON, in a gRPC message, in Kubernetes' envelope.

use bytes::Bytes;
use gatepost_api::{Review, Rope};
use gatepost_wire::{
    envelope, inbound,
    json_view::{self, ViewError},
};
use prost::Message;

use super::{
    forms, json,
    said::{Said, by_prost},
    unknown,
};

/// Bytes a piece has, for a message that arrives in pieces.
const PIECE: usize = 13;
/// Larger messages are only viewed in one piece and in two: many pieces take long.
const MANY_PIECES: usize = 8 << 10;

/// `wire::json_view::view` beside serde.
pub(crate) fn json(body: &[u8]) {
    match (json_view::view(Bytes::copy_from_slice(body)), json::read(body)) {
        (Ok(review), Ok(said)) => {
            assert_eq!(Said::by(&review), said, "the view beside serde");
            forms::check(&review, &said);
        }
        (Err(error), Err(_)) => is_one_line(&error),
        (Ok(_), Err(error)) => panic!("the view takes what serde refuses: {error}"),
        (Err(error), Ok(_)) => panic!("the view refuses what serde takes: {error}"),
    }
}

/// `wire::inbound::view` beside prost; the input is a gRPC message with its head.
pub(crate) fn protobuf(frame: &[u8]) {
    let ours = in_any_pieces(frame, inbound::view);
    let Some(message) = frame.get(inbound::FRAME_HEAD..) else {
        return assert!(ours.is_err(), "a message without a whole head is taken");
    };
    compare(ours, message);
}

/// `wire::envelope::view` beside prost.
pub(crate) fn envelope(enveloped: &[u8]) {
    let ours = in_any_pieces(enveloped, envelope::view);
    match unknown::open(enveloped) {
        Ok(opened) => {
            let versions = ["admission.k8s.io/v1", "admission.k8s.io/v1beta1"];
            if opened.kind == "AdmissionReview" && versions.contains(&&*opened.api_version) {
                compare(ours, &opened.message);
            } else {
                assert!(ours.is_err(), "the view takes another kind");
            }
        }
        Err(error) => assert!(ours.is_err(), "the view takes what prost refuses: {error}"),
    }
}

fn compare(ours: Result<Review, ViewError>, message: &[u8]) {
    let message = Bytes::copy_from_slice(message);
    match (ours, by_prost(message.clone())) {
        // Protobuf would take the last, or merge the two; nobody writes two.
        (ours, _) if is_twice(message.clone()) => {
            let error = ours.expect_err("the view takes a field that is given twice");
            is_one_line(&error);
        }
        (Ok(review), Ok(Some(said))) if said.is_a_review() => {
            assert_eq!(Said::by(&review), said, "the view beside prost");
            forms::check(&review, &said);
        }
        (Ok(_), Ok(_)) => panic!("the view takes a review without what rules look at"),
        // The view does not look into a response, nor into a user but for the name.
        (Ok(review), Err(error)) => {
            let loose = LooseReview::decode(message);
            assert!(loose.is_ok(), "the view takes what prost refuses: {error}, {loose:?}");
            forms::check(&review, &Said::by(&review));
        }
        // The oracle cannot judge a message that is cut off behind the second.
        (Err(ViewError::Twice(field)), _) if LooseReview::decode(message.clone()).is_ok() => {
            panic!("{field} is not given twice")
        }
        // Prost reads a map whatever its wire type is; Go, and prost where no map is declared, refuse that. The loose
        // oracle then sees no field twice either.
        (Err(ViewError::Undecodable(_) | ViewError::Twice(_)), Ok(_))
            if LooseReview::decode(message.clone()).is_err() => {}
        (Err(error), Ok(Some(said))) if said.is_a_review() => panic!("the view refuses what prost takes: {error}"),
        (Err(error), _) => is_one_line(&error),
    }
}

/// However a message arrives, it is the same review.
fn in_any_pieces(whole: &[u8], view: impl Fn(Rope) -> Result<Review, ViewError>) -> Result<Review, ViewError> {
    let whole = Bytes::copy_from_slice(whole);
    let ours = view(Rope::new([whole.clone()]));
    let (first, second) = (whole.slice(..whole.len() / 2), whole.slice(whole.len() / 2..));
    let mut cuts = vec![vec![first, Bytes::new(), second]];
    if whole.len() <= MANY_PIECES {
        cuts.push(whole.chunks(PIECE).map(|piece| whole.slice_ref(piece)).collect());
    }
    for pieces in cuts {
        let text = |view: &Result<Review, ViewError>| view.as_ref().map(Said::by).map_err(Clone::clone);
        let cut = view(Rope::new(pieces));
        assert_eq!(text(&cut), text(&ours), "cut in pieces it is another review");
        if let (Ok(cut), Ok(ours)) = (&cut, &ours) {
            assert_eq!(cut.user, ours.user, "cut in pieces the user lies elsewhere");
        }
    }
    ours
}

fn is_one_line(error: &ViewError) {
    let text = error.to_string();
    assert!(text.len() < 200 && !text.contains(char::is_control), "{text:?} is no short line");
}

/// AdmissionReview as far as the view looks into it, every field as often as it is there.
#[derive(Clone, PartialEq, Message)]
struct LooseReview {
    #[prost(message, repeated, tag = "1")]
    request: Vec<LooseRequest>,
    #[prost(bytes = "bytes", tag = "2")]
    response: Bytes,
}

#[derive(Clone, PartialEq, Message)]
struct LooseRequest {
    #[prost(string, repeated, tag = "1")]
    uid: Vec<String>,
    #[prost(message, repeated, tag = "2")]
    kind: Vec<LooseThree>,
    #[prost(message, repeated, tag = "3")]
    resource: Vec<LooseThree>,
    #[prost(string, repeated, tag = "4")]
    sub_resource: Vec<String>,
    #[prost(string, repeated, tag = "5")]
    name: Vec<String>,
    #[prost(string, repeated, tag = "6")]
    namespace: Vec<String>,
    #[prost(string, repeated, tag = "7")]
    operation: Vec<String>,
    #[prost(message, repeated, tag = "8")]
    user: Vec<LooseUser>,
    #[prost(message, repeated, tag = "9")]
    object: Vec<LooseRaw>,
    #[prost(message, repeated, tag = "10")]
    old_object: Vec<LooseRaw>,
    #[prost(bool, repeated, packed = "false", tag = "11")]
    dry_run: Vec<bool>,
    #[prost(message, repeated, tag = "12")]
    options: Vec<LooseRaw>,
    #[prost(message, repeated, tag = "13")]
    request_kind: Vec<LooseThree>,
    #[prost(message, repeated, tag = "14")]
    request_resource: Vec<LooseThree>,
    #[prost(string, repeated, tag = "15")]
    request_sub_resource: Vec<String>,
}

/// GroupVersionKind, or GroupVersionResource.
#[derive(Clone, PartialEq, Message)]
struct LooseThree {
    #[prost(string, repeated, tag = "1")]
    group: Vec<String>,
    #[prost(string, repeated, tag = "2")]
    version: Vec<String>,
    #[prost(string, repeated, tag = "3")]
    third: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
struct LooseRaw {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    raw: Vec<Bytes>,
}

#[derive(Clone, PartialEq, Message)]
struct LooseUser {
    #[prost(string, repeated, tag = "1")]
    username: Vec<String>,
    #[prost(bytes = "bytes", repeated, tag = "2")]
    uid: Vec<Bytes>,
    #[prost(bytes = "bytes", repeated, tag = "3")]
    groups: Vec<Bytes>,
    #[prost(bytes = "bytes", repeated, tag = "4")]
    extra: Vec<Bytes>,
}

/// Is a field that may be there once there twice?
fn is_twice(message: Bytes) -> bool {
    let Ok(review) = LooseReview::decode(message) else { return false };
    review.request.len() > 1 || review.request.iter().any(LooseRequest::is_twice)
}

impl LooseRequest {
    fn is_twice(&self) -> bool {
        let threes = [&self.kind, &self.resource, &self.request_kind, &self.request_resource];
        let raws = [&self.object, &self.old_object, &self.options];
        let texts =
            [&self.uid, &self.sub_resource, &self.name, &self.namespace, &self.operation, &self.request_sub_resource];
        texts.iter().any(|all| all.len() > 1)
            || self.dry_run.len() > 1
            || self.user.len() > 1
            || self.user.iter().any(|user| user.username.len() > 1 || user.uid.len() > 1)
            || threes.iter().any(|all| all.len() > 1 || all.iter().any(LooseThree::is_twice))
            || raws.iter().any(|all| all.len() > 1 || all.iter().any(|raw| raw.raw.len() > 1))
    }
}

impl LooseThree {
    fn is_twice(&self) -> bool {
        [&self.group, &self.version, &self.third].iter().any(|all| all.len() > 1)
    }
}
