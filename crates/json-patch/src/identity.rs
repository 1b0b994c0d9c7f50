//! Identity: the fields by which an object is known, and whether patches have changed them.
//!
//! kube-apiserver's webhook code compares none of them; its next steps, decoding the object and validating its
//! metadata, refuse most such changes for everybody. Here the hook that made the change is known.

use std::fmt;

use super::{
    node::{Child, Children, Piece},
    run::Walk,
    text::Span,
    tree::{NodeId, Tree, Value},
};
use gatepost_json::{Cursor, JsonReadError};

/// A field by which an object is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdentityField {
    /// The object itself is no JSON object any more.
    Root,
    /// `apiVersion`
    ApiVersion,
    /// `kind`
    Kind,
    /// `metadata.name`
    Name,
    /// `metadata.namespace`
    Namespace,
    /// `metadata.uid`
    Uid,
}

impl IdentityField {
    const ALL: [Self; 5] = [Self::ApiVersion, Self::Kind, Self::Name, Self::Namespace, Self::Uid];

    fn path(self) -> &'static [&'static str] {
        match self {
            Self::Root => &[],
            Self::ApiVersion => &["apiVersion"],
            Self::Kind => &["kind"],
            Self::Name => &["metadata", "name"],
            Self::Namespace => &["metadata", "namespace"],
            Self::Uid => &["metadata", "uid"],
        }
    }
}

impl fmt::Display for IdentityField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => f.write_str("the object as a whole"),
            field => f.write_str(&field.path().join(".")),
        }
    }
}

/// The first node of every tree is its first root.
const ROOT: NodeId = 0;

pub(super) fn changed(tree: &Tree) -> Vec<IdentityField> {
    if !tree.node(tree.root).is_object() {
        return vec![IdentityField::Root];
    }
    let changed = |field: &IdentityField| {
        let path = field.path();
        let before = tree.node(ROOT).span;
        match tree.root {
            ROOT => tree.differs(ROOT, path),
            root => tree.said_in(before, path) != tree.said(Value::Open(root), path),
        }
    };
    IdentityField::ALL.into_iter().filter(changed).collect()
}

impl Tree {
    /// Does what stands at `path` differ in a container that stands where it was?
    fn differs(&self, id: NodeId, path: &[&str]) -> bool {
        let (Some((key, rest)), Children::Object(_)) = (path.split_first(), &self.node(id).children) else {
            return false;
        };
        let Some(child) = self.touched(id, key) else {
            // In a run, and so not touched; or removed, and set aside.
            return self.untouched(id, key).is_none() && self.said_in(self.node(id).span, path).is_some();
        };
        let text = self.node(id).span.text;
        let before = self.said_in(self.node(id).span, path);
        match (child.value, child.was) {
            (Some(Value::Open(inner)), Some(was)) if self.is_as_it_was(text, Value::Open(inner), was) => {
                if rest.is_empty() { false } else { self.differs(inner, rest) }
            }
            (Some(value), _) => before != self.said(value, rest),
            (None, _) => before.is_some(),
        }
    }

    /// Text at `path` in a value, as it is written; `None` where nothing or `null` stands there.
    fn said(&self, value: Value, path: &[&str]) -> Option<String> {
        let id = match value {
            Value::Null(_) => return None,
            Value::Raw(span) => return self.said_in(span, path),
            Value::Open(id) => id,
        };
        let Some((key, rest)) = path.split_first() else { return Some("a container".into()) };
        if !self.node(id).is_object() {
            return None;
        }
        match self.touched(id, key) {
            Some(child) => self.said(child.value?, rest),
            None => self.said_in(self.untouched(id, key)?, rest),
        }
    }

    /// Text at `path` in a slice of a text.
    fn said_in(&self, span: Span, path: &[&str]) -> Option<String> {
        said_in(self.str(span), path).ok().flatten()
    }

    /// The value of the member of that key, if it is in a run.
    fn untouched(&self, id: NodeId, key: &str) -> Option<Span> {
        let text = self.node(id).span.text;
        let mut found = None;
        for piece in self.node(id).all_pieces() {
            let Piece::Run(run) = piece else { continue };
            let mut walk = Walk::of(&self.texts[text as usize], *run, true);
            while let Ok(Some((spot, written))) = walk.next() {
                if written.is_some_and(|written| written.plain() == key) {
                    found = Some(Span { text, start: spot.value, end: spot.end });
                }
            }
        }
        found
    }

    /// The member of that key, if it stands alone.
    fn touched(&self, id: NodeId, key: &str) -> Option<&Child> {
        let is_it = |child: &&Child| (child.value.is_some() || child.was.is_some()) && self.key(child.key) == key;
        let children = self.node(id).all_pieces().filter_map(|piece| match piece {
            Piece::Child(child) => Some(child),
            Piece::Run(_) => None,
        });
        children.filter(is_it).last()
    }
}

/// Text at `path` in a text. Strings as they read, anything else as it is written.
fn said_in(mut text: &str, path: &[&str]) -> Result<Option<String>, JsonReadError> {
    for part in path {
        let mut cursor = Cursor::new(text);
        if !text.starts_with('{') || !cursor.object("")? {
            return Ok(None);
        }
        let mut found = None;
        while let Some(key) = cursor.key()? {
            let place = cursor.place()?;
            if key.plain() == *part {
                found = Some(&text[place]);
            }
        }
        match found {
            Some(inner) => text = inner,
            None => return Ok(None),
        }
    }
    if text.starts_with('"') {
        return Ok(Cursor::new(text).string("")?.map(|text| text.plain().into_owned()));
    }
    Ok((text != "null").then(|| text.to_owned()))
}
