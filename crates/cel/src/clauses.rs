//! Clauses: the places of a format (`%s`, `%.2f`) that `format` fills, and which types may fill them. Source: cel-go
//! `ext/formatting.go`.

use cel::{
    common::ast::{Expr, LiteralValue},
    parser::Expression,
};

use super::{
    aggregates::map_entry,
    check::{Checked, Checker},
    types::Type,
};

/// Digits behind the point, where a clause does not say how many.
const PRECISION: usize = 6;

/// One place of a format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Clause {
    pub(super) verb: Verb,
    /// Digits behind the point; upstream takes it for the width of a scientific notation.
    pub(super) precision: usize,
}

/// Notation of a clause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    String,
    Decimal,
    Fixed,
    Scientific,
    Binary,
    Hex { upper: bool },
    Octal,
}

/// Part of a format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part<'t> {
    /// Text that is not changed.
    Text(&'t str),
    Clause(Clause),
}

/// The first part of a format that is not empty, and what is behind it.
pub(super) fn first(format: &str) -> Result<(Part<'_>, &str), &'static str> {
    let Some(behind) = format.strip_prefix('%') else {
        let (text, rest) = format.split_at(format.find('%').unwrap_or(format.len()));
        return Ok((Part::Text(text), rest));
    };
    if let Some(rest) = behind.strip_prefix('%') {
        return Ok((Part::Text("%"), rest));
    }
    let (precision, behind) = match behind.strip_prefix('.') {
        None => (PRECISION, behind),
        Some(number) => {
            let (digits, behind) = number.split_at(number.bytes().take_while(u8::is_ascii_digit).count());
            (digits.parse().map_err(|_| "could not parse formatting clause: its precision is no number")?, behind)
        }
    };
    let verb = match behind.as_bytes().first() {
        None => return Err("unexpected end of string"),
        Some(b's') => Verb::String,
        Some(b'd') => Verb::Decimal,
        Some(b'f') => Verb::Fixed,
        Some(b'e') => Verb::Scientific,
        Some(b'b') => Verb::Binary,
        Some(b'x') => Verb::Hex { upper: false },
        Some(b'X') => Verb::Hex { upper: true },
        Some(b'o') => Verb::Octal,
        Some(_) => return Err("could not parse formatting clause: unrecognized formatting clause"),
    };
    Ok((Part::Clause(Clause { verb, precision }), &behind[1..]))
}

impl Verb {
    /// As upstream words it.
    pub(super) const fn misfit(self) -> &'static str {
        match self {
            Self::String => {
                "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and \
                 timestamps"
            }
            Self::Decimal => "decimal clause can only be used on integers",
            Self::Fixed => "fixed-point clause can only be used on doubles",
            Self::Scientific => "scientific clause can only be used on doubles",
            Self::Binary => "only integers and bools can be formatted as binary",
            Self::Hex { .. } => "only integers, byte buffers, and strings can be formatted as hex",
            Self::Octal => "octal clause can only be used on integers",
        }
    }

    /// May a value of this type fill it? Strings may be the names of numbers that are none.
    fn takes(self, of: &Type) -> bool {
        match (self, of) {
            (_, Type::Dyn) => true,
            (Self::String, of) => !matches!(of, Type::Struct(..) | Type::Opaque(_) | Type::Optional(_)),
            (Self::Fixed | Self::Scientific, of) => matches!(of, Type::Double | Type::String),
            (_, Type::Int | Type::Uint) => true,
            (Self::Binary, Type::Bool) | (Self::Hex { .. }, Type::String | Type::Bytes) => true,
            _ => false,
        }
    }
}

/// An argument as it was checked, and a type in it that cannot be written as text.
type Argument = (Checked, Option<Type>);

impl Checker {
    /// A call of `format`. Where the format and the list of its arguments are spelled out, they must fit each other.
    pub(super) fn format(&mut self, target: &Expression, items: &Expression) -> Result<Checked, String> {
        self.formats += 1;
        let format = self.expression(target)?;
        let items = match &items.expr {
            Expr::List(list) => {
                self.enter()?;
                let mut arguments = Vec::with_capacity(list.elements.len());
                for element in &list.elements {
                    arguments.push(self.argument(element)?);
                }
                if let Expr::Literal(LiteralValue::String(format)) = &target.expr {
                    self.filled(format.inner(), &arguments)?;
                }
                let items = arguments.into_iter().map(|(checked, _)| checked).collect();
                let items = self.list_of(items, &list.optional_indices)?;
                self.leave();
                items
            }
            _ => self.expression(items)?,
        };
        self.formats -= 1;
        self.resolved("format", true, vec![format, items])
    }

    /// One argument; in lists and maps that are spelled out every value is looked at.
    fn argument(&mut self, tree: &Expression) -> Result<Argument, String> {
        let mut odd = None;
        let mut note = |checker: &Self, (checked, inner): Argument| {
            let of = checker.unknowns.known(&checked.1);
            odd = odd.take().or(inner).or((!Verb::String.takes(&of)).then_some(of));
            checked
        };
        let checked = match &tree.expr {
            Expr::List(list) => {
                self.enter()?;
                let mut items = Vec::with_capacity(list.elements.len());
                for element in &list.elements {
                    let argument = self.argument(element)?;
                    items.push(note(self, argument));
                }
                let checked = self.list_of(items, &list.optional_indices)?;
                self.leave();
                checked
            }
            Expr::Map(map) => {
                self.enter()?;
                let mut entries = Vec::with_capacity(map.entries.len());
                for entry in &map.entries {
                    let entry = map_entry(&entry.expr)?;
                    let (key, value) = (self.argument(&entry.key)?, self.argument(&entry.value)?);
                    entries.push((note(self, key), note(self, value), entry.optional));
                }
                let checked = self.map_of(entries)?;
                self.leave();
                checked
            }
            _ => {
                let checked = self.expression(tree)?;
                note(self, (checked, None))
            }
        };
        Ok((checked, odd))
    }

    /// Checks that the arguments are as many as the clauses, and of their types.
    fn filled(&self, format: &str, arguments: &[Argument]) -> Result<(), String> {
        let (mut rest, mut clauses) = (format, 0);
        while !rest.is_empty() {
            let (part, behind) = first(rest)?;
            rest = behind;
            let Part::Clause(Clause { verb, .. }) = part else { continue };
            let Some(((_, of), odd)) = arguments.get(clauses) else {
                return Err(format!("index {clauses} out of range"));
            };
            let of = self.unknowns.known(of);
            let odd = odd.as_ref().filter(|_| verb == Verb::String).or((!verb.takes(&of)).then_some(&of));
            if let Some(odd) = odd {
                return Err(format!("error during formatting: {}, was given {odd}", verb.misfit()));
            }
            clauses += 1;
        }
        if arguments.len() > clauses {
            let given = arguments.len();
            return Err(format!("too many arguments supplied to string.format (expected {clauses}, got {given})"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_format_is_read_part_by_part() {
        let parts = |mut rest: &'static str| {
            let mut parts = Vec::new();
            while !rest.is_empty() {
                let (part, behind) = first(rest)?;
                parts.push(part);
                rest = behind;
            }
            Ok::<_, &str>(parts)
        };
        let clause = |verb, precision| Part::Clause(Clause { verb, precision });
        assert_eq!(
            parts("é%%%s%.2f%X"),
            Ok(vec![
                Part::Text("é"),
                Part::Text("%"),
                clause(Verb::String, 6),
                clause(Verb::Fixed, 2),
                clause(Verb::Hex { upper: true }, 6),
            ])
        );
        for wrong in ["%", "a%", "%.", "%.2", "%.d", "%é", "%99999999999999999999d", "%.99999999999999999999f", "%-d"]
        {
            assert!(parts(wrong).is_err(), "{wrong}");
        }
    }
}
