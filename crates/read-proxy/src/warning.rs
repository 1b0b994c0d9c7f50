//! Warning: the field by which an apiserver tells that an object was created and is not initialized.

use http::{HeaderMap, HeaderValue, header::WARNING};

use gatepost_api::initialization::id_in_pending_warning;

/// Code, agent and opening quote of every warning of an apiserver.
// source: k8s.io/apimachinery/pkg/util/net/http.go, NewWarningHeader.
const BEGINNING: &str = "299 - \"";

/// Removes the warning where it is not true. Others stay.
pub(super) fn remove(headers: &mut HeaderMap) {
    let others: Vec<_> = headers.get_all(WARNING).iter().filter(|value| of(value).is_none()).cloned().collect();
    headers.remove(WARNING);
    for value in others {
        headers.append(WARNING, value);
    }
}

fn of(value: &HeaderValue) -> Option<&str> {
    let text = value.to_str().ok()?.strip_prefix(BEGINNING)?;
    id_in_pending_warning(text.split('"').next()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_warning_is_understood_and_removed() {
        let mut headers = HeaderMap::new();
        let theirs = HeaderValue::from_static("299 - \"unknown field \\\"init pending x\\\"\"");
        headers.append(WARNING, theirs.clone());
        remove(&mut headers);
        assert_eq!(headers.len(), 1);
        headers.append(WARNING, HeaderValue::from_static("299 - \"init pending 3f9a\""));
        remove(&mut headers);
        assert_eq!(headers.get_all(WARNING).iter().collect::<Vec<_>>(), [&theirs]);
    }
}
