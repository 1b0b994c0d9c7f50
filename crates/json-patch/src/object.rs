//! Object: the members of an opened object.
//!
//! A member is found by scanning the runs, until that has cost several times what a full index costs; then every member
//! stands alone and is found by its hash.

use std::{
    collections::HashMap,
    hash::{BuildHasher, BuildHasherDefault, Hasher, RandomState},
    sync::Arc,
};

use super::{
    OperationFault,
    node::{Child, Children, Piece, Run},
    run::Walk,
    text::Span,
    tree::{NodeId, Tree},
};
use gatepost_json::{JsonReadError, JsonText};

#[derive(Clone, Debug)]
pub(super) struct Object {
    /// No two children that were found have the same key.
    pub(super) pieces: Vec<Piece>,
    /// Members that were removed, and are no pieces any more.
    pub(super) removed: Vec<Child>,
    /// Cost of finding members so far, in bytes.
    effort: usize,
    index: Option<Index>,
}

/// Effort that is spent in proportion to the size before there is an index.
const PATIENCE: usize = 8;
/// Bytes of memory for a member's place in an index, with the room that a table leaves free.
const PLACE: usize = 32;
/// No smaller object is worth an index.
const SMALL: usize = 1024;
/// Cost of looking at a child, in bytes scanned.
const LOOK: usize = 16;

impl Object {
    pub(super) fn new(pieces: Vec<Piece>) -> Self {
        Self { pieces, removed: Vec::new(), effort: 0, index: None }
    }

    /// The same members, in another place, so without those that were removed.
    pub(super) fn copied(&self) -> Self {
        let there = |piece: &&Piece| !matches!(piece, Piece::Child(Child { value: None, .. }));
        Self::new(self.pieces.iter().filter(there).copied().collect())
    }

    /// Sets aside the members that were removed, so that nothing that is done to the others passes over them.
    pub(super) fn sweep(&mut self) {
        let gone = self.pieces.extract_if(.., |piece| matches!(piece, Piece::Child(Child { value: None, .. })));
        let gone = gone.filter_map(|piece| match piece {
            Piece::Child(child) if child.was.is_some() => Some(child),
            Piece::Child(_) | Piece::Run(_) => None,
        });
        self.removed.extend(gone);
        self.index = None;
        self.effort = 0;
    }

    /// Bytes of memory that it takes besides its pieces.
    pub(super) fn held(&self) -> usize {
        let index = self.index.as_ref().map_or(0, |index| index.pieces.len() * PLACE);
        index + self.removed.len() * size_of::<Child>()
    }

    fn child(&self, at: usize) -> Option<&Child> {
        match self.pieces.get(at) {
            Some(Piece::Child(child)) => Some(child),
            _ => None,
        }
    }
}

/// Place of each key's member.
#[derive(Clone, Debug)]
struct Index {
    /// Keyed, as the keys are the sender's choice.
    hashes: Arc<RandomState>,
    /// Pieces by the hash of the key, or the next number that is free.
    pieces: HashMap<u64, u32, BuildHasherDefault<Hashed>>,
}

/// A hasher of what is a hash already.
#[derive(Clone, Debug, Default)]
struct Hashed(u64);

impl Hasher for Hashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {}

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

impl Tree {
    /// The piece of an object that is the member `key`, removed ones included. It stands alone then.
    pub(super) fn member(&mut self, id: NodeId, key: &str) -> Result<Option<usize>, OperationFault> {
        if self.object(id).index.is_none() {
            let patience = PATIENCE * (self.node(id).span.len() + SMALL);
            if self.object(id).effort > patience {
                self.index_members(id)?;
            }
        }
        if let Some(index) = &self.object(id).index {
            return Ok(self.indexed(id, index, key).ok().map(|piece| piece as usize));
        }
        let object = self.object(id);
        let found = object.pieces.iter().position(|piece| match piece {
            Piece::Child(child) => self.key_is(child.key, key),
            Piece::Run(_) => false,
        });
        let looked = LOOK * found.map_or(object.pieces.len(), |at| at + 1);
        self.object_mut(id).effort += looked;
        match found {
            Some(found) => Ok(Some(found)),
            // Had it been asked for before, it would stand alone.
            None => self.take_from_runs(id, key),
        }
    }

    /// Looks for `key` in all runs; of several members of that name the last counts, and the others go.
    fn take_from_runs(&mut self, id: NodeId, key: &str) -> Result<Option<usize>, OperationFault> {
        let mut found = None;
        let mut at = 0;
        while at < self.object(id).pieces.len() {
            let Piece::Run(run) = self.object(id).pieces[at] else {
                at += 1;
                continue;
            };
            let (parts, scanned) = self.find_in_run(self.node(id).span.text, run, key)?;
            let object = self.object_mut(id);
            object.effort += LOOK + scanned;
            let Some((parts, own)) = parts else {
                at += 1;
                continue;
            };
            self.weight.add(parts.len() * size_of::<Piece>());
            let object = self.object_mut(id);
            object.pieces.splice(at..=at, parts);
            let mut now = at + own;
            if let Some(earlier) = found {
                object.pieces.remove(earlier);
                now -= 1;
            }
            found = Some(now);
            // The rest of the run may hold the key again.
            at = now + 1;
        }
        Ok(found)
    }

    /// The parts of a run of which one is the first member with that key, and which; and how many bytes were scanned.
    #[expect(clippy::type_complexity, reason = "taken apart by the only caller")]
    fn find_in_run(
        &self,
        text: u32,
        run: Run,
        key: &str,
    ) -> Result<(Option<(Vec<Piece>, usize)>, usize), JsonReadError> {
        let mut walk = Walk::of(&self.texts[text as usize], run, true);
        let mut before: Option<Run> = None;
        let mut scanned = 0;
        while let Some((spot, written)) = walk.next()? {
            scanned = (spot.value - run.start) as usize;
            if written.is_some_and(|written| written.plain() == key) {
                let before = before.map(Piece::Run).into_iter().collect();
                return Ok((Some(walk.split(self, text, before, spot)), scanned));
            }
            before = Some(Run { end: spot.end, count: spot.ordinal() - run.ordinal + 1, ..run });
        }
        Ok((None, scanned))
    }

    /// Lets every member stand alone and notes where it is. Of several members of one name, the last counts.
    pub(super) fn index_members(&mut self, id: NodeId) -> Result<(), OperationFault> {
        if self.object(id).index.is_some() {
            return Ok(());
        }
        let members = |piece: &Piece| match piece {
            Piece::Run(run) => run.count as usize,
            Piece::Child(_) => 1,
        };
        let members: usize = self.object(id).pieces.iter().map(members).sum();
        // A row that grows has room for as much again.
        self.weight.take(members * (2 * size_of::<Piece>() + PLACE))?;
        let text = self.node(id).span.text;
        let mut index = Index { hashes: Arc::default(), pieces: HashMap::default() };
        let before = std::mem::take(&mut self.object_mut(id).pieces);
        let mut after: Vec<Piece> = Vec::new();
        for piece in before {
            let run = match piece {
                Piece::Run(run) => run,
                Piece::Child(child) => {
                    after.push(piece);
                    // A member found by itself is in no run any more.
                    let _ = self.note(&mut index, &after, child.key, after.len() - 1);
                    continue;
                }
            };
            let mut walk = Walk::of(&self.texts[text as usize], run, true);
            while let Some((spot, _)) = walk.next()? {
                let child = spot.alone(self, text);
                after.push(Piece::Child(child));
                if let Some(earlier) = self.note(&mut index, &after, child.key, after.len() - 1) {
                    after[earlier as usize] = Piece::Child(Child { value: None, was: None, ..child });
                }
            }
        }
        let object = self.object_mut(id);
        object.pieces = after;
        object.index = Some(index);
        Ok(())
    }

    /// Notes that the member with this key is piece `at`; says which it was before.
    fn note(&self, index: &mut Index, pieces: &[Piece], key: Span, at: usize) -> Option<u32> {
        let plain = self.key(key);
        let mut hash = index.hashes.hash_one(&*plain);
        loop {
            match index.pieces.insert(hash, at as u32) {
                None => return None,
                Some(earlier) => match pieces[earlier as usize] {
                    Piece::Child(child) if self.key_is(child.key, &plain) => return Some(earlier),
                    // Another key with the same hash.
                    _ => {
                        index.pieces.insert(hash, earlier);
                        hash = hash.wrapping_add(1);
                    }
                },
            }
        }
    }

    /// The piece that an index has for a key, or the hash under which it would have it.
    fn indexed(&self, id: NodeId, index: &Index, key: &str) -> Result<u32, u64> {
        let mut hash = index.hashes.hash_one(key);
        while let Some(piece) = index.pieces.get(&hash) {
            if self.object(id).child(*piece as usize).is_some_and(|child| self.key_is(child.key, key)) {
                return Ok(*piece);
            }
            hash = hash.wrapping_add(1);
        }
        Err(hash)
    }

    /// Adds a member that is not there.
    pub(super) fn push_member(&mut self, id: NodeId, child: Child) {
        let free = match &self.object(id).index {
            Some(index) => self.indexed(id, index, &self.key(child.key)).err(),
            None => None,
        };
        let object = self.object_mut(id);
        let at = object.pieces.len() as u32;
        if let (Some(index), Some(hash)) = (&mut object.index, free) {
            index.pieces.insert(hash, at);
        }
        object.pieces.push(Piece::Child(child));
    }

    /// A key as it reads.
    pub(super) fn key(&self, key: Span) -> std::borrow::Cow<'_, str> {
        let written = self.str(key);
        match JsonText::read(written, 0) {
            Ok((text, _)) => text.plain(),
            Err(_) => written.into(),
        }
    }

    fn key_is(&self, key: Span, wanted: &str) -> bool {
        let written = self.str(key);
        let raw = &written[1..written.len() - 1];
        if raw.contains('\\') { self.key(key) == wanted } else { raw == wanted }
    }

    fn object(&self, id: NodeId) -> &Object {
        match &self.node(id).children {
            Children::Object(object) => object,
            Children::Array(_) => unreachable!("only objects are asked for members"),
        }
    }

    fn object_mut(&mut self, id: NodeId) -> &mut Object {
        match &mut self.node_mut(id).children {
            Children::Object(object) => object,
            Children::Array(_) => unreachable!("only objects are asked for members"),
        }
    }
}
