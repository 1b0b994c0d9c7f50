//! Outline: where the containers of a text end.

use std::sync::Arc;

/// The ends of all containers of a text that are not small. It is made only for documents that operations open again and
/// again, see [`super::tree`].
#[derive(Clone, Debug)]
pub(super) struct Outline {
    /// Where each begins, and ends, in the order of beginnings.
    containers: Arc<[(u32, u32)]>,
}

/// Containers below so many bytes are passed over as fast as they are looked up.
const SMALL: usize = 64;

impl Outline {
    /// `text` must be JSON.
    pub(super) fn of(text: &str) -> Self {
        let mut containers = Vec::new();
        let mut open = Vec::new();
        let (mut in_string, mut escaped) = (false, false);
        for (at, byte) in text.bytes().enumerate() {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => in_string = !in_string,
                _ if in_string => {}
                b'{' | b'[' => {
                    open.push(containers.len());
                    containers.push((at as u32, 0));
                }
                b'}' | b']' => {
                    let Some(index) = open.pop() else { break };
                    let (start, end): &mut (u32, u32) = &mut containers[index];
                    *end = at as u32 + 1;
                    if ((*end - *start) as usize) < SMALL {
                        // All that it holds is small as well, and gone already.
                        containers.truncate(index);
                    }
                }
                _ => {}
            }
        }
        Self { containers: containers.into() }
    }

    /// Where the container ends that begins at `start`, if it is noted.
    pub(super) fn end_of(&self, start: u32) -> Option<u32> {
        let index = self.containers.binary_search_by_key(&start, |(start, _)| *start).ok()?;
        Some(self.containers[index].1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::json;

    #[test]
    fn every_container_that_is_not_small_is_noted() {
        let filler = "[\"]\\\"}{\"]".repeat(7).replace("][", "],[");
        let text = format!(r#"{{"a":[{filler}],"b":{{"[":[[[{filler}]]]}},"c":[],"d":"{{"}}"#);
        let outline = Outline::of(&text);
        let mut noted = 0;
        for (start, byte) in text.bytes().enumerate() {
            let Some(end) = outline.end_of(start as u32) else { continue };
            assert!(matches!(byte, b'{' | b'['));
            assert_eq!(json::skip(&text, start), Ok(end as usize));
            assert!(end as usize - start >= SMALL);
            noted += 1;
        }
        assert_eq!(noted, 6);
    }
}
