//! Short texts for messages: cut to a length, and on one line.

use std::error::Error;

/// Returns the first `max` characters of `text`.
///
/// ```
/// assert_eq!(gatepost_base::text::first_chars("déjà", 2), "dé");
/// ```
pub fn first_chars(text: &str, max: usize) -> &str {
    text.char_indices().nth(max).map_or(text, |(end, _)| &text[..end])
}

/// Returns the first `max` characters of `text`, followed by `…` if there are more.
pub fn abbreviated(text: &str, max: usize) -> String {
    match first_chars(text, max) {
        short if short.len() < text.len() => format!("{short}…"),
        whole => whole.to_owned(),
    }
}

/// Returns `text` with every control character replaced by a space.
pub fn one_line(text: &str) -> String {
    text.chars().map(|char| if char.is_control() { ' ' } else { char }).collect()
}

/// Returns an error's message followed by those of its sources that it does not contain.
pub fn error_chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn text_is_cut_between_characters() {
        assert_eq!((first_chars("éa", 1), first_chars("éa", 2), first_chars("", 1)), ("é", "éa", ""));
        assert_eq!((abbreviated("éa", 1), abbreviated("éa", 2)), ("é…".to_owned(), "éa".to_owned()));
        assert_eq!(one_line("a\nb\u{7f}é"), "a b é");
    }

    #[test]
    fn error_chain_names_each_cause_once() {
        #[derive(Debug, thiserror::Error)]
        #[error("{0}")]
        struct Outer(&'static str, #[source] io::Error);
        assert_eq!(error_chain(&Outer("cannot read", io::Error::other("denied"))), "cannot read: denied");
        assert_eq!(error_chain(&Outer("cannot read: denied", io::Error::other("denied"))), "cannot read: denied");
    }
}
