//! Aggregates: types of lists and maps that an expression spells out.

use std::sync::Arc;

use cel::{
    common::ast::{EntryExpr, MapEntryExpr},
    parser::Expression,
};

use super::{
    check::{Checked, Checker},
    program::Node,
    types::Type,
    value::Literal,
};

impl Checker {
    /// A list, whose items are all of one type.
    pub(super) fn list(&mut self, elements: &[Expression], optional: &[usize]) -> Result<Checked, String> {
        let mut checked = Vec::with_capacity(elements.len());
        for element in elements {
            checked.push(self.expression(element)?);
        }
        self.list_of(checked, optional)
    }

    /// The same of items that were checked.
    pub(super) fn list_of(&mut self, elements: Vec<Checked>, optional: &[usize]) -> Result<Checked, String> {
        // The second of each says whether the item is left out where it is missing.
        let mut items = Vec::with_capacity(elements.len());
        let mut common: Option<Type> = None;
        for (at, (node, mut found)) in elements.into_iter().enumerate() {
            let is_optional = optional.contains(&at);
            if is_optional {
                found = self.inside_optional(found)?;
            }
            common = Some(self.homogeneous(common, found)?);
            items.push((node, is_optional));
        }
        let item = common.unwrap_or_else(|| Type::Var(self.unknowns.add(1)));
        let node = match literals(&items) {
            Some(literals) => Node::Literal(Literal::List(literals)),
            None => Node::List(items.into()),
        };
        Ok((node, Type::List(item.into())))
    }

    pub(super) fn map<'t>(&mut self, entries: impl Iterator<Item = &'t EntryExpr>) -> Result<Checked, String> {
        let mut checked = Vec::new();
        for entry in entries {
            let entry = map_entry(entry)?;
            checked.push((self.expression(&entry.key)?, self.expression(&entry.value)?, entry.optional));
        }
        self.map_of(checked)
    }

    /// The same of entries that were checked.
    pub(super) fn map_of(&mut self, entries: Vec<(Checked, Checked, bool)>) -> Result<Checked, String> {
        let (mut nodes, mut keys, mut values) = (Vec::new(), None, None);
        for ((key, key_type), (value, mut value_type), optional) in entries {
            if optional {
                value_type = self.inside_optional(value_type)?;
            }
            keys = Some(self.homogeneous(keys, key_type)?);
            values = Some(self.homogeneous(values, value_type)?);
            nodes.push((key, value, optional));
        }
        let first = self.unknowns.add(2);
        let (key, value) = (keys.unwrap_or(Type::Var(first)), values.unwrap_or(Type::Var(first + 1)));
        // Nothing could be looked up by another one; and a type that is in another one twice could grow without end.
        match self.unknowns.known(&key) {
            Type::Bool | Type::Int | Type::Uint | Type::String | Type::Dyn => {}
            odd => return Err(format!("a map has no keys of type '{odd}' here")),
        }
        let literal = |(key, value, optional): &(Node, Node, bool)| match (key, value) {
            (Node::Literal(key), Node::Literal(value)) if !optional => Some((key.clone(), value.clone())),
            _ => None,
        };
        let node = match nodes.iter().map(literal).collect() {
            Some(literals) => Node::Literal(Literal::Map(literals)),
            None => Node::Map(nodes.into()),
        };
        Ok((node, Type::Map(Arc::new(key), Arc::new(value))))
    }

    fn inside_optional(&self, found: Type) -> Result<Type, String> {
        match self.unknowns.seen(&found) {
            Type::Optional(inner) => Ok(Type::clone(&inner)),
            Type::Dyn => Ok(Type::Dyn),
            other => Err(format!("expected type 'optional_type' but found '{}'", self.unknowns.known(&other))),
        }
    }

    fn homogeneous(&mut self, common: Option<Type>, found: Type) -> Result<Type, String> {
        let Some(common) = common else { return Ok(found) };
        let fits = self.unknowns.fits(&common, &found);
        let (wanted, got) = (self.unknowns.known(&common), self.unknowns.known(&found));
        match (fits, self.formats) {
            (true, 0) if wanted != got => Err(format!("expected type '{wanted}' but found '{got}'")),
            (false, 0) => Err(format!("expected type '{wanted}' but found '{got}'")),
            (true, _) => Ok(common.or_more_general(&found).clone()),
            (false, _) => Ok(Type::Dyn),
        }
    }
}

pub(super) fn map_entry(entry: &EntryExpr) -> Result<&MapEntryExpr, String> {
    match entry {
        EntryExpr::MapEntry(entry) => Ok(entry),
        EntryExpr::StructField(_) => Err("a map has keys and values".to_owned()),
    }
}

/// The items, where all of them are literals.
fn literals(items: &[(Node, bool)]) -> Option<Box<[Literal]>> {
    let literal = |(node, optional): &(Node, bool)| match node {
        Node::Literal(literal) if !optional => Some(literal.clone()),
        _ => None,
    };
    items.iter().map(literal).collect()
}
