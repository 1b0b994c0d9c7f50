//! Depth: check that patches cannot make a document nest deeper than JSON may.

use super::{
    node::{Child, Piece},
    tree::{NodeId, Tree, Value},
};
use gatepost_json::MAX_DEPTH;

impl Tree {
    /// False where it certainly does not nest too deep. A value of `n` bytes nests at most `n / 2` deep, and one that
    /// stands where it stood is as deep as it was; `lengths` are those of the nodes.
    pub(super) fn may_nest_too_deep(&self, lengths: &[usize]) -> bool {
        let mut reached: Vec<(NodeId, usize)> = vec![(self.root, 1)];
        while let Some((id, depth)) = reached.pop() {
            let node = self.node(id);
            for piece in node.all_pieces() {
                let Piece::Child(Child { value: Some(value), was, .. }) = piece else { continue };
                let len = match value {
                    Value::Null(_) => continue,
                    Value::Raw(span) => span.len(),
                    Value::Open(inner) => {
                        reached.push((*inner, depth + 1));
                        lengths[*inner as usize]
                    }
                };
                let stayed = was.is_some_and(|was| self.is_as_it_was(node.span.text, *value, was));
                if !stayed && depth + len / 2 > MAX_DEPTH {
                    return true;
                }
            }
        }
        false
    }
}
