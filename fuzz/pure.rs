//! The sidecar's reader of HTTP/1.1 answers, from its own files: building the whole sidecar would take many times as long.
#![forbid(unsafe_code)]

#[path = "hooks.rs"]
pub mod hooks;
