//! Fault: reason why an expression has no value.

use std::borrow::Cow;

use super::authorization::AccessCheck;

/// Reason why an evaluation ended without a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// An error as the language has them: `&&`, `||` and some macros may make do without the value.
    Error(Cow<'static, str>),
    /// The evaluation is over.
    Stop(Stop),
}

/// Reason that ends an evaluation, whatever the expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// It costs more than one expression may.
    Cost,
    /// The request's time is over.
    Deadline,
    /// It takes longer than the caller's thread can be kept, and is to be begun anew elsewhere.
    TooLong,
    /// This access check has no decision yet.
    Undecided(Box<AccessCheck>),
}

impl Stop {
    /// As upstream words it.
    pub(super) const fn text(&self) -> &'static str {
        match self {
            Self::Cost => "operation cancelled: actual cost limit exceeded",
            Self::Deadline => "operation interrupted",
            Self::TooLong => "evaluation takes too long here",
            Self::Undecided(_) => "the authorizer was not asked",
        }
    }
}

impl Fault {
    pub(super) fn error(text: impl Into<Cow<'static, str>>) -> Self {
        Self::Error(text.into())
    }

    pub(super) fn no_such_overload() -> Self {
        Self::error("no such overload")
    }

    pub(super) fn no_such_key(key: &str) -> Self {
        Self::error(format!("no such key: {}", cut(key)))
    }

    pub(super) fn out_of_range() -> Self {
        Self::error("index out of bounds")
    }
}

/// The beginning of a text that may be long.
pub(super) fn cut(text: &str) -> &str {
    const LONGEST: usize = 200;
    text.char_indices().nth(LONGEST).map_or(text, |(end, _)| &text[..end])
}
