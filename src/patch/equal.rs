//! Equality as `test` has it: scalars as they are written, objects by their members, arrays by their items.

use super::{
    Fault,
    tree::{Child, Children, NodeId, Null, Piece, Tree, Value},
};

impl Tree {
    /// Is a value of the document equal to one of a patch? Containers of the document stay open, so that asking again
    /// costs what the other value is long, and not what stands in the document.
    pub(super) fn equals(&mut self, ours: Value, other: Value) -> Result<bool, Fault> {
        let mut pairs = vec![(ours, other)];
        while let Some((ours, other)) = pairs.pop() {
            let equal = match (ours, other) {
                (Value::Raw(ours), Value::Raw(other)) if self.str(ours) == self.str(other) => true,
                // So it is there: `null` that was copied is an empty object.
                (Value::Null(Null::Copied), Value::Raw(_)) => match self.opened(other)? {
                    Some(other) => self.is_empty_object(other),
                    None => false,
                },
                (Value::Null(ours), Value::Null(other)) => ours == other && ours != Null::Copied,
                (Value::Null(_), _) | (_, Value::Null(_)) => false,
                _ => match (self.opened(ours)?, self.opened(other)?) {
                    (Some(ours), Some(other)) => self.pair_children(ours, other, &mut pairs)?,
                    _ => false,
                },
            };
            if !equal {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Notes which children must be equal; false where the two cannot be.
    fn pair_children(&mut self, ours: NodeId, other: NodeId, pairs: &mut Vec<(Value, Value)>) -> Result<bool, Fault> {
        match (&self.node(ours).children, &self.node(other).children) {
            (Children::Object(_), Children::Object(_)) => self.pair_members(ours, other, pairs),
            (Children::Array(our_items), Children::Array(items)) if our_items.len() == items.len() => {
                self.separate_items(ours)?;
                self.separate_items(other)?;
                let others: Vec<_> = self.live(other).map(|(_, _, _, value)| value).collect();
                let places: Vec<_> = self.live(ours).collect();
                for ((part, piece, _, value), other) in places.into_iter().zip(others) {
                    if !self.are_written_alike(value, other) {
                        let value = self.opened_in_place(ours, (part, piece), value, other)?;
                        pairs.push((value, other));
                    }
                }
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    fn pair_members(&mut self, ours: NodeId, other: NodeId, pairs: &mut Vec<(Value, Value)>) -> Result<bool, Fault> {
        self.index_members(ours)?;
        self.index_members(other)?;
        if self.live(ours).count() != self.live(other).count() {
            return Ok(false);
        }
        let places: Vec<_> = self.live(ours).collect();
        for (part, piece, child, value) in places {
            let key = self.key(child.key).into_owned();
            let Some(found) = self.member(other, &key)? else { return Ok(false) };
            let Some(Piece::Child(Child { value: Some(other), .. })) = self.node_mut(other).piece_mut(0, found) else {
                return Ok(false);
            };
            let other = *other;
            if !self.are_written_alike(value, other) {
                let value = self.opened_in_place(ours, (part, piece), value, other)?;
                pairs.push((value, other));
            }
        }
        Ok(true)
    }

    /// Values that are equal at first sight, and not worth a note.
    fn are_written_alike(&self, ours: Value, other: Value) -> bool {
        matches!((ours, other), (Value::Raw(ours), Value::Raw(other)) if self.str(ours) == self.str(other))
    }

    /// A child's value, opened where it must be looked into, and left so.
    fn opened_in_place(
        &mut self,
        id: NodeId,
        (part, piece): (usize, usize),
        value: Value,
        other: Value,
    ) -> Result<Value, Fault> {
        let (Value::Raw(span), Value::Raw(written)) = (value, other) else { return Ok(value) };
        if !self.is_container(written) || self.str(span) == self.str(written) {
            return Ok(value);
        }
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
