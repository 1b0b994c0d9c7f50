//! Post: head and query of an HTTP request with a review, in HTTP/2 as in HTTP/1.1. Source:
//! `docs/reference/webhook-semantics.md` §9.

use std::{io::Write, time::Duration};

use crate::model::HttpForm;

/// User agent.
pub(super) const USER_AGENT: &str = concat!("gatepost/", env!("CARGO_PKG_VERSION"));

/// The two encodings that hooks know by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Media {
    Json,
    Protobuf,
}

impl Media {
    pub(super) const fn of(form: HttpForm) -> Self {
        match form {
            HttpForm::Json(_) | HttpForm::Legacy => Self::Json,
            HttpForm::Protobuf(_) => Self::Protobuf,
        }
    }

    pub(super) const fn content_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Protobuf => "application/vnd.kubernetes.protobuf",
        }
    }

    pub(super) const fn accept(self) -> &'static str {
        match self {
            Self::Json => "application/json, */*",
            Self::Protobuf => "application/vnd.kubernetes.protobuf, application/json",
        }
    }
}

/// Appends the path with the time left, in whole seconds: never less than is left, and never none.
pub(super) fn write_path(path: &str, timeout: Duration, out: &mut Vec<u8>) {
    let seconds = timeout.as_millis().div_ceil(1000).max(1);
    let sign = match path.split_once('?') {
        None => "?",
        Some((_, query)) if query.is_empty() || query.ends_with('&') => "",
        Some(_) => "&",
    };
    #[allow(clippy::expect_used)]
    write!(out, "{path}{sign}timeout={seconds}s").expect("writing to a Vec cannot fail");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(path: &str, millis: u64) -> String {
        let mut out = Vec::new();
        write_path(path, Duration::from_millis(millis), &mut out);
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn the_time_left_joins_the_query() {
        assert_eq!(path("/validate", 10_000), "/validate?timeout=10s");
        assert_eq!(path("/validate?a=b", 9_001), "/validate?a=b&timeout=10s");
        assert_eq!(path("/?", 1), "/?timeout=1s");
        assert_eq!(path("/?a&", 0), "/?a&timeout=1s", "a hook that is given no time at all might not even try");
    }
}
