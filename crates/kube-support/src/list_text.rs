//! ListText: the JSON text of a list, taken apart while it arrives: its items, one by one, and everything around them.
//!
//! So no more than one item is held, however long the list is. Nothing is recursive: an item may be nested as deep as it
//! likes.

/// Largest item that is kept. An apiserver stores no object of that size.
pub(super) const MAX_OBJECT: usize = 8 << 20;
/// Longest text around the items.
const MAX_AROUND: usize = 256 << 10;

/// An item that is larger than [`MAX_OBJECT`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Oversized;

/// A list that is being taken apart.
#[derive(Debug, Default)]
pub(super) struct ListText {
    /// The list without its items: `{"kind": "ThingList", "items": [], "metadata": {}}`.
    around: Vec<u8>,
    /// The item that has begun.
    item: Vec<u8>,
    is_oversized: bool,
    /// Objects and arrays that are open.
    depth: usize,
    in_items: bool,
    in_string: bool,
    after_backslash: bool,
}

impl ListText {
    /// Takes the next part of the text, and gives the items that it completes.
    ///
    /// # Errors
    /// The text around the items is longer than that of any list.
    pub(super) fn push(&mut self, part: &[u8], items: &mut Vec<Result<Vec<u8>, Oversized>>) -> Result<(), Oversized> {
        let (mut kept, mut at) = (0, 0);
        while let Some(byte) = part.get(at).copied() {
            if self.after_backslash {
                self.after_backslash = false;
            } else if self.in_string {
                match part[at..].iter().position(|byte| matches!(byte, b'"' | b'\\')) {
                    None => at = part.len() - 1,
                    Some(plain) => {
                        at += plain;
                        self.after_backslash = part[at] == b'\\';
                        self.in_string = self.after_backslash;
                    }
                }
            } else {
                match byte {
                    b'"' => self.in_string = true,
                    b'[' if self.depth == 1 => {
                        self.keep(&part[kept..at])?;
                        kept = at;
                        if self.is_at_items() {
                            self.keep(b"[")?;
                            (kept, self.in_items) = (at + 1, true);
                        }
                        self.depth += 1;
                    }
                    b'{' | b'[' => self.depth += 1,
                    b',' if self.in_items && self.depth == 2 => {
                        self.keep(&part[kept..at])?;
                        kept = at + 1;
                        self.end_item(items);
                    }
                    b'}' | b']' => {
                        if self.in_items && self.depth == 2 {
                            self.keep(&part[kept..at])?;
                            kept = at;
                            self.end_item(items);
                            self.in_items = false;
                        }
                        self.depth = self.depth.saturating_sub(1);
                    }
                    _ => {}
                }
            }
            at += 1;
        }
        self.keep(&part[kept..])
    }

    /// The list without its items, once its text has ended.
    pub(super) fn into_around(self) -> Vec<u8> {
        self.around
    }

    fn keep(&mut self, part: &[u8]) -> Result<(), Oversized> {
        if !self.in_items {
            self.around.extend_from_slice(part);
            return if self.around.len() > MAX_AROUND { Err(Oversized) } else { Ok(()) };
        }
        if self.item.len() + part.len() > MAX_OBJECT {
            (self.item, self.is_oversized) = (Vec::new(), true);
        }
        if !self.is_oversized {
            self.item.extend_from_slice(part);
        }
        Ok(())
    }

    fn end_item(&mut self, items: &mut Vec<Result<Vec<u8>, Oversized>>) {
        let item = std::mem::take(&mut self.item);
        if std::mem::take(&mut self.is_oversized) {
            items.push(Err(Oversized));
        } else if !item.trim_ascii().is_empty() {
            items.push(Ok(item));
        }
    }

    /// Does the array that begins belong to the key `items`?
    fn is_at_items(&self) -> bool {
        let key = self.around.trim_ascii_end().strip_suffix(b":").map(<[u8]>::trim_ascii_end);
        key.is_some_and(|key| key.ends_with(b"\"items\""))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Items and surroundings of a text that comes in parts of that size.
    fn taken(text: &[u8], size: usize) -> (Vec<Result<String, Oversized>>, String) {
        let (mut list, mut items) = (ListText::default(), Vec::new());
        text.chunks(size).for_each(|part| list.push(part, &mut items).unwrap());
        let items = items.into_iter().map(|item| item.map(|item| String::from_utf8(item).unwrap())).collect();
        (items, String::from_utf8(list.into_around()).unwrap())
    }

    #[test]
    fn items_come_one_by_one_wherever_the_text_is_cut() {
        let text = br#"{"kind":"L","items" : [{"a":"],}\"\\","items":[1,[2]]}, {} ,3],"metadata":{"items":[7]}}"#;
        for size in 1..=text.len() {
            let (items, around) = taken(text, size);
            let items: Vec<_> = items.iter().map(|item| item.as_deref().unwrap().trim()).collect();
            assert_eq!(items, [r#"{"a":"],}\"\\","items":[1,[2]]}"#, "{}", "3"], "{size}");
            assert_eq!(around, r#"{"kind":"L","items" : [],"metadata":{"items":[7]}}"#, "{size}");
        }
        for text in [&br#"{"items":[]}"#[..], br#"{"items":null}"#, b"[{}]", b"<html>", b"", b"]]}", b"\"\\"] {
            let (items, around) = taken(text, 3);
            assert_eq!((items.len(), around.as_bytes()), (0, text));
        }
    }

    #[test]
    fn an_oversized_item_costs_only_itself() {
        let large = "x".repeat(MAX_OBJECT);
        let (items, around) = taken(format!(r#"{{"items":[1,"{large}",2]}}"#).as_bytes(), 1 << 16);
        assert_eq!(items, [Ok("1".to_owned()), Err(Oversized), Ok("2".to_owned())]);
        assert_eq!(around, r#"{"items":[]}"#);
        let mut endless = ListText::default();
        assert_eq!(endless.push(&vec![b'1'; MAX_AROUND + 1], &mut Vec::new()), Err(Oversized));
    }

    #[test]
    fn depth_does_not_matter() {
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        let (items, _) = taken(format!(r#"{{"items":[{{"a":{deep}}},{{}}]}}"#).as_bytes(), 1 << 12);
        assert_eq!(items.len(), 2);
    }
}
