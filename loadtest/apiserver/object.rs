//! The object that is written: a ConfigMap of text in short lines, so that its JSON has an escape every eight bytes.

use bytes::Bytes;
use serde_json::json;

use crate::size::Size;

/// Path of the writes. Validated like any other, and never stored.
pub(super) const PATH: &str = "/api/v1/namespaces/default/configmaps?dryRun=All";

/// Eight bytes of JSON.
const LINE: &str = "abcdef\n";

/// A ConfigMap whose JSON is `size` bytes.
pub(super) fn config_map(size: Size) -> Bytes {
    let room = size.0.saturating_sub(render("").len());
    let mut text = LINE.repeat(room / 8);
    text.extend(std::iter::repeat_n('x', room % 8));
    render(&text).into()
}

fn render(text: &str) -> String {
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "side-by-side", "namespace": "default"},
        "data": {"settings": text},
    })
    .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_object_has_exactly_the_size_asked_for() {
        for size in [Size(2 << 10), Size(50 << 10), Size(500 << 10), Size(2049)] {
            let object = config_map(size);
            assert_eq!(object.len(), size.0, "{size}");
            let escapes = object.windows(2).filter(|pair| pair == b"\\n").count();
            assert!(escapes * 9 > size.0 - 200, "{escapes} escapes in {size}");
        }
    }
}
