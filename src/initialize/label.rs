//! Label: marks of an object that an apiserver stores before it is initialized although it knows nothing of initializers.

/// Label that an object has until it is initialized; its value is the init-id.
// source: reference §D0, "front end L".
pub const PENDING: &str = "init.gatepost.dev/pending";
/// Annotation with the state: `{"state": "Pending", "pending": [name, ...], "result": Status, ...}` in JSON.
pub const STATE: &str = "init.gatepost.dev/state";

/// Longest value of a label.
const LONGEST_ID: usize = 63;
/// Beginning of the warning by which a proxy learns that what it has created waits.
const WARNING: &str = "init pending ";

/// Warning to whoever creates an object that is stored unfinished.
pub fn warning(init_id: &str) -> String {
    format!("{WARNING}{init_id}")
}

/// The id in such a warning.
pub fn id_in_warning(text: &str) -> Option<&str> {
    text.strip_prefix(WARNING).filter(|id| is_id(id))
}

/// True for a value of the label that Gatepost may have set.
pub fn is_id(text: &str) -> bool {
    (1..=LONGEST_ID).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_is_read_as_it_was_written() {
        assert_eq!(id_in_warning(&warning("3f9a")), Some("3f9a"));
        let long = warning(&"a".repeat(LONGEST_ID + 1));
        for other in ["init pending ", "init pending a,b", "Init pending a", "unknown field \"x\"", &long] {
            assert_eq!(id_in_warning(other), None, "{other}");
        }
    }
}
