//! Numbered: one review as that of many requests, which differ in their uids alone.
//!
//! An initializer is not asked again about a request that it has answered.

use std::{
    borrow::Cow,
    sync::atomic::{AtomicU64, Ordering},
    time::{SystemTime, UNIX_EPOCH},
};

use bytes::{Bytes, BytesMut};

use crate::{Fallible, review::UID};

/// Hexadecimal digits at the end of the uid that are the number.
const DIGITS: usize = 12;

/// One review, and the number of its next request.
#[derive(Debug)]
pub(super) struct Numbered {
    framed: Bytes,
    /// Place of the uid.
    at: usize,
    next: AtomicU64,
}

impl Numbered {
    /// The review in this message. Numbers begin at the time in nanoseconds, so that those of two runs differ.
    pub(super) fn new(framed: &Bytes) -> Fallible<Self> {
        let uids = framed.windows(UID.len()).position(|bytes| bytes == UID.as_bytes());
        let at = uids.ok_or("the review has no uid")?;
        let since = SystemTime::now().duration_since(UNIX_EPOCH)?;
        let next = AtomicU64::new(u64::try_from(since.as_nanos())?);
        Ok(Self { framed: framed.clone(), at, next })
    }

    /// The message of the next request, and its uid.
    pub(super) fn next(&self) -> (Bytes, Cow<'static, str>) {
        let number = self.next.fetch_add(1, Ordering::Relaxed) & ((1 << (4 * DIGITS)) - 1);
        let uid = format!("{}{number:012x}", &UID[..UID.len() - DIGITS]);
        let mut framed = BytesMut::from(&*self.framed);
        framed[self.at..self.at + uid.len()].copy_from_slice(uid.as_bytes());
        (framed.freeze(), uid.into())
    }
}

#[cfg(test)]
mod tests {
    use gatepost_wire::pb::k8s::io::api::admission::v1::AdmissionReview;
    use prost::Message;

    use super::*;
    use crate::{
        review::{Subject, framed},
        size::Size,
    };

    #[test]
    fn requests_differ_in_their_uids_alone() {
        let same = framed(Subject::Pod, Size(2 << 10));
        let numbered = Numbered::new(&same).unwrap();
        let request = |framed: &Bytes| AdmissionReview::decode(&framed[5..]).unwrap().request.unwrap();
        let (first, second) = (numbered.next(), numbered.next());
        assert_ne!(first.1, second.1);
        for (framed, uid) in [first, second] {
            assert_eq!(request(&framed).uid.as_deref(), Some(&*uid));
            let mut other = request(&framed);
            other.uid = Some(UID.to_owned());
            assert_eq!(other, request(&same));
        }
    }
}
