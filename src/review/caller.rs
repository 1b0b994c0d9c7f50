//! Caller: facts of one call that the front knows besides the review.

use bytes::Bytes;

use crate::model::{Deadline, Hops, Labels, Phase, registration::Segment};

/// Treatment of hooks that want a review's object in a version other than the one it is in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OtherVersions {
    /// Their call fails: nobody else will ask them, and they must not be passed over in silence.
    #[default]
    Fail,
    /// They are passed over: the caller asks about each version in a review of its own.
    AskedApart,
}

/// Facts of one call that the front knows besides the review.
#[derive(Clone, Debug)]
pub struct Caller {
    /// Which of the service's calls was made.
    pub phase: Phase,
    /// Latest time for the verdict.
    pub deadline: Deadline,
    /// The worker (0..n) on whose thread this runs; it picks the worker's client of each hook.
    pub worker: usize,
    /// Hooks that want the object in another version.
    pub other_versions: OtherVersions,
    /// The mutating hooks that are asked, where not all are.
    pub segment: Option<Segment>,
    /// The Gateposts that the review has passed through before.
    pub hops: Hops,
    /// The caller stores new objects before they are initialized, and hides them until they are.
    pub stores_unfinished: bool,
    /// Labels of the request's namespace, where the caller sent them.
    pub namespace_labels: Option<Labels>,
    /// The same as they came (base64), passed on to the hooks so that sidecars chain.
    pub namespace_labels_text: Option<Bytes>,
    /// Identifier of the client's request in the caller's audit log, short and of plain characters: for our own.
    pub audit_id: Option<Box<str>>,
}
