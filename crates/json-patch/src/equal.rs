//! Equality as `test` has it: scalars as they are written, objects by their members, arrays by their items.

use super::{
    OperationFault,
    node::{Child, Children, Piece},
    text::Span,
    tree::{NodeId, Null, Tree, Value},
};

/// Bytes that are compared for each byte of a test's value. Of containers that lie deep in one another, the innermost bytes
/// would be compared as often as they are deep; beyond this, containers are opened and not compared.
const PATIENCE: usize = 8;
/// Containers below so many bytes are always compared: they cannot lie deep, and opening them takes more memory.
const SMALL: usize = 128;

/// Result of comparing two values as they are written.
enum Compared {
    Equal,
    Different,
    /// Both are containers, and their children decide. The second one is a patch's.
    ByChildren(Value, Span),
}

impl Tree {
    /// Is a value of the document equal to one of a patch? Containers of the document stay open, so that asking again
    /// costs what the other value is long, and not what stands in the document.
    pub(super) fn equals(&mut self, ours: Value, other: Value) -> Result<bool, OperationFault> {
        let len = match other {
            Value::Raw(span) => span.len(),
            Value::Null(_) | Value::Open(_) => 0,
        };
        let most = self.compared.saturating_add(PATIENCE * len);
        let mut pairs = match self.compare(ours, other, most)? {
            Compared::Equal => return Ok(true),
            Compared::Different => return Ok(false),
            Compared::ByChildren(ours, other) => vec![(ours, other)],
        };
        while let Some((ours, other)) = pairs.pop() {
            let equal = match (self.opened(ours)?, self.opened(Value::Raw(other))?) {
                (Some(ours), Some(other)) => self.pair_children(ours, other, most, &mut pairs)?,
                _ => false,
            };
            if !equal {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Compares two values, large containers only until so many bytes were compared.
    fn compare(&mut self, ours: Value, other: Value, most: usize) -> Result<Compared, OperationFault> {
        let equal = match (ours, other) {
            (Value::Raw(our), Value::Raw(other)) => {
                let by_children = self.is_container(our) && self.is_container(other);
                let len = our.len();
                let affordable = !by_children || len < SMALL || self.compared.saturating_add(len) <= most;
                if len == other.len() && affordable {
                    self.compared += len;
                    if self.str(our) == self.str(other) {
                        return Ok(Compared::Equal);
                    }
                }
                if by_children {
                    return Ok(Compared::ByChildren(ours, other));
                }
                false
            }
            (Value::Open(_), Value::Raw(other)) if self.is_container(other) => {
                return Ok(Compared::ByChildren(ours, other));
            }
            // So it is there: `null` that was copied is an empty object.
            (Value::Null(Null::Copied), Value::Raw(_)) => {
                self.opened(other)?.is_some_and(|other| self.is_empty_object(other))
            }
            (Value::Null(ours), Value::Null(other)) => ours == other && ours != Null::Copied,
            _ => false,
        };
        Ok(if equal { Compared::Equal } else { Compared::Different })
    }

    /// Notes which children must be looked into; false where the two cannot be equal.
    fn pair_children(
        &mut self,
        ours: NodeId,
        other: NodeId,
        most: usize,
        pairs: &mut Vec<(Value, Span)>,
    ) -> Result<bool, OperationFault> {
        let places: Vec<_> = match (&self.node(ours).children, &self.node(other).children) {
            (Children::Object(_), Children::Object(_)) => match self.pair_members(ours, other)? {
                Some(places) => places,
                None => return Ok(false),
            },
            (Children::Array(our_items), Children::Array(items)) if our_items.len() == items.len() => {
                self.separate_items(ours)?;
                self.separate_items(other)?;
                let others = self.live(other).map(|(_, _, _, value)| value);
                self.live(ours)
                    .zip(others)
                    .map(|((part, piece, _, value), other)| (part, piece, value, other))
                    .collect()
            }
            _ => return Ok(false),
        };
        for (part, piece, value, other) in places {
            match self.compare(value, other, most)? {
                Compared::Equal => {}
                Compared::Different => return Ok(false),
                Compared::ByChildren(value, other) => {
                    pairs.push((self.opened_in_place(ours, (part, piece), value)?, other));
                }
            }
        }
        Ok(true)
    }

    /// The members of one object, each by part, piece and value, with the value that the other one has under that key.
    /// `None` where the two have not the same keys.
    #[expect(clippy::type_complexity, reason = "taken apart by the only caller")]
    fn pair_members(
        &mut self,
        ours: NodeId,
        other: NodeId,
    ) -> Result<Option<Vec<(usize, usize, Value, Value)>>, OperationFault> {
        self.index_live_members(ours)?;
        self.index_members(other)?;
        if self.live(ours).count() != self.live(other).count() {
            return Ok(None);
        }
        let members: Vec<_> = self.live(ours).collect();
        let mut pairs = Vec::with_capacity(members.len());
        for (part, piece, child, value) in members {
            let key = self.key(child.key).into_owned();
            let Some(found) = self.member(other, &key)? else { return Ok(None) };
            let Some(Piece::Child(Child { value: Some(other), .. })) = self.node_mut(other).piece_mut(0, found) else {
                return Ok(None);
            };
            pairs.push((part, piece, value, *other));
        }
        Ok(Some(pairs))
    }

    /// Indexes the members of an object of the document, without those that were removed and those that another of the
    /// same name has replaced, where they are many: the next test passes over all that are left.
    fn index_live_members(&mut self, id: NodeId) -> Result<(), OperationFault> {
        self.index_members(id)?;
        let mostly_removed = 2 * self.live(id).count() < self.node(id).all_pieces().count();
        if let Children::Object(object) = &mut self.node_mut(id).children
            && mostly_removed
        {
            object.sweep();
        }
        self.index_members(id)
    }

    /// A child's value, opened and left so.
    fn opened_in_place(
        &mut self,
        id: NodeId,
        (part, piece): (usize, usize),
        value: Value,
    ) -> Result<Value, OperationFault> {
        let Some(opened) = self.opened(value)? else { return Ok(value) };
        if let Some(Piece::Child(child)) = self.node_mut(id).piece_mut(part, piece) {
            child.value = Some(Value::Open(opened));
        }
        Ok(Value::Open(opened))
    }

    fn is_empty_object(&self, id: NodeId) -> bool {
        matches!(self.node(id).children, Children::Object(_)) && self.node(id).all_pieces().next().is_none()
    }

    /// The children that stand alone and are not removed: by part and piece, with their value.
    fn live(&self, id: NodeId) -> impl Iterator<Item = (usize, usize, Child, Value)> {
        let node = self.node(id);
        let parts = (0..).map_while(|part| Some((part, node.pieces(part)?)));
        parts.flat_map(|(part, pieces)| pieces.iter().enumerate().map(move |(at, piece)| (part, at, piece))).filter_map(
            |(part, at, piece)| match piece {
                Piece::Child(child) => Some((part, at, *child, child.value?)),
                Piece::Run(_) => None,
            },
        )
    }
}
