//! Plural: a number with its noun.

/// `1 hook`, `2 hooks`.
pub(super) fn counted(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}
