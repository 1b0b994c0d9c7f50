//! Pages: a list that comes in pieces, read as one.

use serde_json::{Map, Value};

/// Everything of one kind, as it stood at one revision.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct List {
    /// The revision of the store that all of it is from.
    pub revision: String,
    /// The objects, `apiVersion` and `kind` filled in, which the items of a list leave out.
    pub items: Vec<Value>,
}

/// The list so far.
#[derive(Debug, Default)]
pub(super) struct Pages {
    list: List,
}

impl Pages {
    /// Takes one page in, and gives the token of the next; `None` after the last.
    ///
    /// # Errors
    /// The fault of the page. A page of another revision is refused: the whole would never have existed.
    pub(super) fn add(&mut self, page: Value) -> Result<Option<String>, String> {
        let Value::Object(mut page) = page else { return Err("it is no JSON object".to_owned()) };
        let api_version = text(&page, "apiVersion").to_owned();
        let kind = text(&page, "kind").strip_suffix("List").ok_or("it is no list")?.to_owned();
        let metadata = page.get("metadata").and_then(Value::as_object).ok_or("it has no metadata")?;
        let revision = text(metadata, "resourceVersion");
        let next = Some(text(metadata, "continue")).filter(|token| !token.is_empty()).map(str::to_owned);
        match self.list.revision.is_empty() {
            true => revision.clone_into(&mut self.list.revision),
            false if revision == self.list.revision => {}
            false => return Err("its pages are of different revisions".to_owned()),
        }
        let items = match page.remove("items") {
            Some(Value::Array(items)) => items,
            None | Some(Value::Null) => Vec::new(),
            Some(_) => return Err("its items are not a list".to_owned()),
        };
        for item in items {
            let Value::Object(mut item) = item else { return Err("an item is not a JSON object".to_owned()) };
            item.insert("apiVersion".to_owned(), api_version.clone().into());
            item.insert("kind".to_owned(), kind.clone().into());
            self.list.items.push(item.into());
        }
        Ok(next)
    }

    pub(super) fn into_list(self) -> List {
        self.list
    }
}

fn text<'a>(map: &'a Map<String, Value>, key: &str) -> &'a str {
    map.get(key).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn page(revision: &str, next: &str, names: &[&str]) -> Value {
        let items: Vec<_> = names.iter().map(|name| json!({"metadata": {"name": name}})).collect();
        json!({"apiVersion": "v1", "kind": "ThingList", "items": items,
               "metadata": {"resourceVersion": revision, "continue": next}})
    }

    #[test]
    fn pages_of_one_revision_are_one_list() {
        let mut pages = Pages::default();
        assert_eq!(pages.add(page("7", "t", &["a", "b"])), Ok(Some("t".to_owned())));
        assert_eq!(pages.add(page("7", "", &["c"])), Ok(None));
        let list = pages.into_list();
        assert_eq!((&*list.revision, list.items.len()), ("7", 3));
        assert_eq!(list.items[2], json!({"apiVersion": "v1", "kind": "Thing", "metadata": {"name": "c"}}));
    }

    #[test]
    fn what_is_no_list_is_refused() {
        let mut pages = Pages::default();
        assert_eq!(pages.add(page("7", "t", &[])), Ok(Some("t".to_owned())));
        assert!(pages.add(page("8", "", &[])).unwrap_err().contains("revisions"));
        for wrong in [json!([]), json!({"kind": "Thing", "metadata": {}}), json!({"kind": "ThingList"})] {
            assert!(Pages::default().add(wrong.clone()).is_err(), "{wrong}");
        }
        assert!(Pages::default().add(json!({"kind": "ThingList", "metadata": {}, "items": [1]})).is_err());
    }
}
