//! A JSON reader that locates values in the text instead of building them, and skips the rest at the speed of a scan.
//!
//! It checks all of RFC 8259, so that skipped text is known to be JSON. Text is `&str`: callers check once that bytes
//! are UTF-8. A [`Cursor`] reads fields of a known type in the order in which they are written. [`Ends`] finds children
//! of large containers without scanning them again. A [`Rope`] is a message in the shared pieces in which it arrived.
//! [`pointer`] escapes the steps of JSON Pointers.
//!
//! ```
//! use gatepost_json::Cursor;
//!
//! let mut cursor = Cursor::new(r#"{"kind":"Pod","spec":{"containers":[]}}"#);
//! assert!(cursor.object("the object")?);
//! while let Some(key) = cursor.key()? {
//!     match &*key.plain() {
//!         "kind" => assert_eq!(cursor.string("kind")?.unwrap().plain(), "Pod"),
//!         _ => cursor.skip()?,
//!     }
//! }
//! cursor.end()?;
//! # Ok::<(), gatepost_json::JsonReadError>(())
//! ```
//!
//! The crate neither writes JSON nor maps it to types. Where Go's `encoding/json` is laxer or stricter than RFC 8259
//! (`null` as absence, nesting of at most 10,000, half surrogate pairs), it follows Go. The block masks are those of
//! simdjson's first stage (Langdale and Lemire, "Parsing Gigabytes of JSON per Second", §3.1).
#![forbid(unsafe_code)]

mod block;
mod cursor;
mod ends;
pub mod pointer;
mod rope;
mod scan;
mod text;

pub use self::{
    cursor::{Cursor, JsonReadError, items, members, scalar, string},
    ends::{ContainerEnds, Ends, EndsRecorder},
    rope::Rope,
    scan::{NestingObserver, brackets, is_object, object, skip, value},
    text::{JsonError, JsonText, MAX_DEPTH},
};

#[cfg(test)]
mod tests;
