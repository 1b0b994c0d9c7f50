//! Range: content of a prefix, or a glance at it.

use bytes::Bytes;

use super::{
    EtcdError,
    pb::{
        etcdserverpb::{
            RangeRequest, RangeResponse,
            range_request::{SortOrder, SortTarget},
        },
        mvccpb::KeyValue,
    },
};

/// A key and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pair {
    /// The whole key.
    pub key: Bytes,
    /// Its value.
    pub value: Bytes,
    /// The store's revision when it was last put.
    pub mod_revision: u64,
}

/// Everything below a prefix, at one revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ranged {
    /// Which cluster has answered.
    pub cluster_id: u64,
    /// Raft term: grows with each election of a leader.
    pub raft_term: u64,
    /// The store's revision at which this is all there is.
    pub revision: u64,
    /// The pairs, by key.
    pub pairs: Vec<Pair>,
}

impl Ranged {
    /// Glance of the same moment.
    pub fn glance(&self) -> Glance {
        let newest_mod = self.pairs.iter().map(|pair| pair.mod_revision).max().unwrap_or(0);
        let &Self { cluster_id, raft_term, revision, ref pairs } = self;
        Glance { cluster_id, raft_term, revision, newest_mod, count: pairs.len() as u64 }
    }
}

/// State of a prefix in a hundred bytes: enough to see whether anything below it has moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Glance {
    /// Which cluster has answered.
    pub cluster_id: u64,
    /// Raft term: grows with each election of a leader.
    pub raft_term: u64,
    /// The store's revision at which this was so.
    pub revision: u64,
    /// The largest `mod_revision` of a key below the prefix; 0 where there is none.
    pub newest_mod: u64,
    /// Number of keys.
    pub count: u64,
}

impl Glance {
    /// Does the prefix hold the same as at that other glance? No false yes, given one store that only goes forward:
    ///
    /// Revisions only grow, and a put gives its key the newest. Had any key that is there now been put since, the
    /// largest `mod_revision` would have grown with it. As it has not, every key that is there now was there before,
    /// with the same value; whatever else has happened, keys were only taken away. Then the count has fallen. As it has
    /// not, none was. (A key deleted and put again is one that was put since.)
    ///
    /// A store restored from a backup goes back, and may come to the same two numbers by another way while nobody
    /// looks. Its members start anew then and choose a leader, so another `raft_term` is never the same: a change of
    /// leader costs one whole read.
    pub fn holds_the_same_as(&self, other: &Self) -> bool {
        (self.cluster_id, self.raft_term) == (other.cluster_id, other.raft_term)
            && (self.newest_mod, self.count) == (other.newest_mod, other.count)
    }
}

/// The question for everything below a prefix.
pub(super) fn whole(prefix: &[u8]) -> RangeRequest {
    let (key, range_end) = below(prefix);
    RangeRequest { key, range_end, ..RangeRequest::default() }
}

/// The question for the key that was put last, without its value.
pub(super) fn newest(prefix: &[u8]) -> RangeRequest {
    let by_mod = (SortTarget::Mod as i32, SortOrder::Descend as i32);
    RangeRequest { limit: 1, keys_only: true, sort_target: by_mod.0, sort_order: by_mod.1, ..whole(prefix) }
}

/// Result of `whole`.
pub(super) fn ranged(endpoint: &str, prefix: &[u8], answer: RangeResponse) -> Result<Ranged, EtcdError> {
    let wrong = |cause: &str| EtcdError::nonsense(endpoint, cause);
    let head = Head::of(endpoint, prefix, &answer)?;
    if answer.more || head.count != answer.kvs.len() as u64 {
        return Err(wrong("it is only a part of what the prefix holds"));
    }
    let mut pairs = Vec::with_capacity(answer.kvs.len());
    for pair in answer.kvs {
        let mod_revision = u64::try_from(pair.mod_revision).map_err(|_| wrong("a revision is negative"))?;
        pairs.push(Pair { key: pair.key, value: pair.value, mod_revision });
    }
    pairs.sort_by(|one, other| one.key.cmp(&other.key));
    if pairs.windows(2).any(|pair| matches!(pair, [one, other] if one.key == other.key)) {
        return Err(wrong("a key is there twice"));
    }
    let Head { cluster_id, raft_term, revision, .. } = head;
    Ok(Ranged { cluster_id, raft_term, revision, pairs })
}

/// Result of `newest`.
pub(super) fn glance(endpoint: &str, prefix: &[u8], answer: &RangeResponse) -> Result<Glance, EtcdError> {
    let wrong = |cause: &str| Err(EtcdError::nonsense(endpoint, cause));
    let Head { cluster_id, raft_term, revision, count } = Head::of(endpoint, prefix, answer)?;
    let newest_mod = match (&*answer.kvs, count) {
        ([], 0) => 0,
        ([newest], 1..) => newest.mod_revision as u64,
        _ => return wrong("count and keys contradict each other"),
    };
    Ok(Glance { cluster_id, raft_term, revision, newest_mod, count })
}

/// Fields on the store that every answer has.
struct Head {
    cluster_id: u64,
    raft_term: u64,
    revision: u64,
    count: u64,
}

impl Head {
    fn of(endpoint: &str, prefix: &[u8], answer: &RangeResponse) -> Result<Self, EtcdError> {
        let wrong = |cause: &str| EtcdError::nonsense(endpoint, cause);
        let header = answer.header.as_ref().ok_or_else(|| wrong("it says nothing of the store"))?;
        let revision = u64::try_from(header.revision).ok().filter(|revision| *revision > 0);
        let revision = revision.ok_or_else(|| wrong("it has no revision"))?;
        let count = u64::try_from(answer.count).map_err(|_| wrong("its count is negative"))?;
        let sound =
            |pair: &KeyValue| pair.key.starts_with(prefix) && (1..=header.revision).contains(&pair.mod_revision);
        if !answer.kvs.iter().all(sound) {
            return Err(wrong("it holds a key outside of the requested range, or of a later revision"));
        }
        Ok(Self { cluster_id: header.cluster_id, raft_term: header.raft_term, revision, count })
    }
}

/// The range of all keys that begin with `prefix`: up to the prefix plus one.
fn below(prefix: &[u8]) -> (Bytes, Bytes) {
    /// To etcd: the first key there can be, and an end behind the last.
    const ZERO: &[u8] = &[0];
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if let Some(next) = last.checked_add(1) {
            end.push(next);
            return (Bytes::copy_from_slice(prefix), end.into());
        }
    }
    let key = if prefix.is_empty() { ZERO } else { prefix };
    (Bytes::copy_from_slice(key), Bytes::from_static(ZERO))
}

#[cfg(test)]
mod tests;
