//! Paged lists of objects, parsed object by object as they arrive.
//!
//! The parser keeps only one incomplete item, however long the list is. It is not recursive: items may be nested to any
//! depth. Fields that are not requested are skipped, so an object that cannot be read costs only itself.

use http::{HeaderMap, header::DATE};
use http_body_util::BodyExt;
use kube::client::Body;
use serde::{Deserialize, de::IgnoredAny};
use serde_json::{Value, value::RawValue};
use tokio::time::timeout;

use crate::{
    KubeClient, KubeError,
    client::{ANSWER_TIMEOUT, MAX_OBJECT_BYTES, WHOLE, fault, labels, percent_encoded, read_json, without_query},
    object::seconds,
};

/// Objects per page of a list that is kept as a whole.
const PAGE: usize = 500;

/// Objects per page if pages of [`PAGE`] objects are too large.
const SMALL_PAGE: usize = 50;

/// Maximum size of a page of a list that is kept as a whole, in bytes; far more than any page of configuration.
const MAX_PAGE_BYTES: usize = 64 << 20;

/// All objects of one kind, at one revision.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct List {
    /// Revision of the store at which the objects were read.
    pub revision: String,
    /// The objects, with `apiVersion` and `kind`, which apiservers omit from the items of a list.
    pub items: Vec<Value>,
}

/// One page of a list, which is being read.
#[derive(Debug)]
pub(super) struct Page {
    server: String,
    path: String,
    body: Body,
    text: ListText,
    /// Maximum number of bytes, and how many of them are left.
    most: usize,
    left: usize,
    /// Time of the apiserver's clock, in seconds since 1970; `None` without a valid `Date` header.
    pub(super) now: Option<i64>,
}

/// The fields of a list outside its items.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ListEnvelope {
    api_version: String,
    kind: String,
    metadata: Option<PageMetadata>,
    items: Option<Vec<IgnoredAny>>,
}

/// Metadata of a page.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PageMetadata {
    #[serde(skip)]
    api_version: String,
    /// Kind of the items.
    #[serde(skip)]
    kind: String,
    /// Revision of the store at which the page was read.
    #[serde(rename = "resourceVersion")]
    pub(super) revision: String,
    /// Token of the next page; "" after the last.
    #[serde(rename = "continue")]
    pub(super) next: String,
}

impl Page {
    fn new(client: &KubeClient, path: &str, (headers, body): (&HeaderMap, Body), most: usize) -> Self {
        let (server, path) = (client.server().to_owned(), without_query(path));
        let now = headers.get(DATE).and_then(|date| seconds(date.to_str().ok()?));
        Self { server, path, body, text: ListText::default(), most, left: most, now }
    }

    /// Returns the texts of the objects in the next part of the body; `None` after the last part.
    pub(super) async fn next(&mut self) -> Result<Option<Vec<Result<Vec<u8>, Oversized>>>, KubeError> {
        let late = |_| KubeError::TimedOut { server: self.server.clone(), patience: ANSWER_TIMEOUT };
        let Some(frame) = timeout(ANSWER_TIMEOUT, self.body.frame()).await.map_err(late)? else { return Ok(None) };
        let mut items = Vec::new();
        let frame = frame.map_err(|error| KubeError::broken(&self.server, &self.path, &error.to_string()))?;
        if let Ok(data) = frame.into_data() {
            self.left = self.left.checked_sub(data.len()).ok_or_else(|| self.too_large(self.most))?;
            self.text.push(&data, &mut items).map_err(|Oversized| self.invalid_response("it is no list".to_owned()))?;
        }
        Ok(Some(items))
    }

    /// Returns the metadata of the page, after all objects were read.
    pub(super) fn end(self) -> Result<PageMetadata, KubeError> {
        let Self { server, path, text, .. } = self;
        let nonsense = |cause| KubeError::InvalidResponse { server, path, cause };
        let ListEnvelope { api_version, kind, metadata, items: _ } = match serde_json::from_slice(&text.around) {
            Ok(around) => around,
            Err(error) if error.is_data() => return Err(nonsense("it is no list of items".to_owned())),
            Err(error) => return Err(nonsense(fault(&error))),
        };
        let Some(kind) = kind.strip_suffix("List").map(str::to_owned) else {
            return Err(nonsense("it is no list".to_owned()));
        };
        let Some(metadata) = metadata else { return Err(nonsense("it has no metadata".to_owned())) };
        Ok(PageMetadata { api_version, kind, ..metadata })
    }

    fn too_large(&self, most: usize) -> KubeError {
        KubeError::TooLarge { server: self.server.clone(), path: self.path.clone(), most }
    }

    fn invalid_response(&self, cause: String) -> KubeError {
        KubeError::InvalidResponse { server: self.server.clone(), path: self.path.clone(), cause }
    }

    /// Reads the whole page, and appends its objects to `objects`. Returns its metadata, and the number of its bytes.
    async fn whole(mut self, objects: &mut Vec<Value>) -> Result<(PageMetadata, usize), KubeError> {
        let first = objects.len();
        while let Some(items) = self.next().await? {
            for item in items {
                let item = item.map_err(|Oversized| self.too_large(MAX_OBJECT_BYTES))?;
                let (_, object) = read_json::<Value>(item).await;
                let object = object.map_err(|why| self.invalid_response(format!("an item is {why}")))?;
                if !object.is_object() {
                    return Err(self.invalid_response("an item is not a JSON object".to_owned()));
                }
                objects.push(object);
            }
        }
        let bytes = self.most - self.left;
        let page = self.end()?;
        for object in objects.iter_mut().skip(first).filter_map(Value::as_object_mut) {
            object.insert("apiVersion".to_owned(), page.api_version.clone().into());
            object.insert("kind".to_owned(), page.kind.clone().into());
        }
        Ok((page, bytes))
    }
}

impl KubeClient {
    /// Returns all objects at `path`, at one revision. Sends no resourceVersion, so that the response comes from the
    /// store and not from a cache.
    ///
    /// # Errors
    /// [`KubeError`] of a request.
    pub async fn list(&self, path: &str) -> Result<List, KubeError> {
        self.list_labelled(path, "", usize::MAX).await
    }

    /// Returns all objects at `path` that match this label selector, at one revision: at most `most` bytes as the
    /// apiserver writes them.
    ///
    /// # Errors
    /// See [`KubeClient::list`]; [`KubeError::TooLarge`] if there are more bytes.
    pub async fn list_labelled(&self, path: &str, selector: &str, most: usize) -> Result<List, KubeError> {
        let selector = labels(selector);
        match self.pages(path, PAGE, &selector, "", most).await {
            // The token's revision has expired (compaction). A response without pages needs no token.
            Err(KubeError::Refused { code: 410, .. }) => self.pages(path, 0, &selector, "", most).await,
            Err(KubeError::TooLarge { .. }) if most > MAX_PAGE_BYTES => {
                self.pages(path, SMALL_PAGE, &selector, "", most).await
            }
            other => other,
        }
    }

    /// Returns all objects at `path` at this revision, which [`KubeClient::list`] returned for another kind.
    ///
    /// # Errors
    /// [`KubeError`]; [`KubeError::Refused`] with code 410 if the revision has expired.
    pub async fn list_at(&self, path: &str, revision: &str) -> Result<List, KubeError> {
        let exactly = format!("&resourceVersion={}&resourceVersionMatch=Exact", percent_encoded(revision));
        let list = self.pages(path, PAGE, "", &exactly, usize::MAX).await?;
        match list.revision == revision {
            true => Ok(list),
            false => Err(self.invalid_response(path, "it is of another revision than was requested".to_owned())),
        }
    }

    /// Only the request for the first page contains `revision`: the tokens of the other pages include it.
    async fn pages(
        &self,
        path: &str,
        limit: usize,
        selector: &str,
        revision: &str,
        most: usize,
    ) -> Result<List, KubeError> {
        let (mut list, mut left) = (List::default(), most);
        let mut at = format!("{path}?limit={limit}{selector}{revision}");
        loop {
            let room = left.min(MAX_PAGE_BYTES);
            let reading = async { self.page(&at, WHOLE, room).await?.whole(&mut list.items).await };
            let (page, bytes) = self.in_time(reading).await.map_err(|error| match error {
                KubeError::TooLarge { server, path, most: page } if page == left => {
                    KubeError::TooLarge { server, path, most }
                }
                other => other,
            })?;
            left -= bytes;
            if list.revision.is_empty() {
                list.revision = page.revision;
            } else if list.revision != page.revision {
                return Err(self.invalid_response(path, "its pages are of different revisions".to_owned()));
            }
            if page.next.is_empty() {
                return Ok(list);
            }
            at = format!("{path}?limit={limit}{selector}&continue={}", percent_encoded(&page.next));
        }
    }

    /// Requests the page at `at`, in the media type `accept`. Its maximum size is `most` bytes.
    pub(super) async fn page(&self, at: &str, accept: &str, most: usize) -> Result<Page, KubeError> {
        let answer = self.in_time(self.send_for(at, accept, None)).await?;
        let (head, body) = self.in_time(self.accepted(at, answer)).await?.into_parts();
        Ok(Page::new(self, at, (&head.headers, body), most))
    }
}

/// Maximum size of a list's text outside its items, in bytes.
const MAX_ENVELOPE_BYTES: usize = 256 << 10;

/// Error for an item larger than [`MAX_OBJECT_BYTES`], or for more than [`MAX_ENVELOPE_BYTES`] bytes outside the items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Oversized;

/// Incremental parser of a list.
#[derive(Debug, Default)]
pub(super) struct ListText {
    /// Text of the list without its items: `{"kind": "ThingList", "items": [], "metadata": {}}`.
    around: Vec<u8>,
    /// Text of the incomplete item.
    item: Vec<u8>,
    is_oversized: bool,
    /// Number of open objects and arrays.
    depth: usize,
    in_items: bool,
    in_string: bool,
    after_backslash: bool,
}

impl ListText {
    /// Parses the next part of the text, and appends the items that it completes.
    ///
    /// # Errors
    /// [`Oversized`] if the text outside the items is longer than that of any list.
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

    fn keep(&mut self, part: &[u8]) -> Result<(), Oversized> {
        if !self.in_items {
            self.around.extend_from_slice(part);
            return if self.around.len() > MAX_ENVELOPE_BYTES { Err(Oversized) } else { Ok(()) };
        }
        if self.item.len() + part.len() > MAX_OBJECT_BYTES {
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

    /// Returns true if the array that begins is the value of the key `items`.
    fn is_at_items(&self) -> bool {
        let key = self.around.trim_ascii_end().strip_suffix(b":").map(<[u8]>::trim_ascii_end);
        key.is_some_and(|key| key.ends_with(b"\"items\""))
    }
}

/// Identity of an object, as far as it can be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectIdentity {
    /// Namespace; "" if the object has none.
    pub namespace: Box<str>,
    /// Name.
    pub name: Box<str>,
    /// uid.
    pub uid: Box<str>,
    /// Resource version.
    pub resource_version: Box<str>,
}

#[derive(Deserialize)]
struct Identified<'a> {
    #[serde(borrow)]
    metadata: IdentityTexts<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct IdentityTexts<'a> {
    #[serde(borrow)]
    namespace: Option<&'a RawValue>,
    #[serde(borrow)]
    name: Option<&'a RawValue>,
    #[serde(borrow)]
    uid: Option<&'a RawValue>,
    #[serde(borrow)]
    resource_version: Option<&'a RawValue>,
}

impl ObjectIdentity {
    /// Reads the identity from a JSON text. A field that is not a string becomes "". `None` if the object has no name.
    pub(super) fn of(text: &[u8]) -> Option<Self> {
        let Identified { metadata } = serde_json::from_slice(text).ok()?;
        let read = |raw: Option<&RawValue>| raw.and_then(|raw| serde_json::from_str::<Box<str>>(raw.get()).ok());
        let name = read(metadata.name).filter(|name| !name.is_empty())?;
        let [namespace, uid, resource_version] =
            [metadata.namespace, metadata.uid, metadata.resource_version].map(|raw| read(raw).unwrap_or_default());
        Some(Self { namespace, name, uid, resource_version })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The end of a page of this text.
    async fn end(text: &str) -> Result<PageMetadata, String> {
        let body = Body::from(text.as_bytes().to_vec());
        let (server, path) = ("s".to_owned(), "/p".to_owned());
        let mut page = Page {
            server,
            path,
            body,
            text: ListText::default(),
            most: MAX_PAGE_BYTES,
            left: MAX_PAGE_BYTES,
            now: None,
        };
        while page.next().await.map_err(|error| error.to_string())?.is_some() {}
        page.end().map_err(|error| error.to_string())
    }

    #[tokio::test]
    async fn a_page_says_its_revision_and_the_next_token_before_or_behind_its_items() {
        for text in [
            r#"{"kind":"ThingList","metadata":{"resourceVersion":"7","continue":"t"},"items":[{"a":1}]}"#,
            r#"{"items":[{"a":1}],"kind":"ThingList","metadata":{"resourceVersion":"7","continue":"t"}}"#,
        ] {
            let page = end(text).await.unwrap();
            assert_eq!((&*page.kind, &*page.revision, &*page.next), ("Thing", "7", "t"), "{text}");
        }
    }

    #[tokio::test]
    async fn what_is_no_list_is_refused() {
        for wrong in [
            "[]",
            r#"{"kind":"Thing","metadata":{}}"#,
            r#"{"kind":"ThingList"}"#,
            r#"{"kind":"ThingList","metadata":{},"items":{}}"#,
            r#"{"kind":"ThingList","metadata":{},"items":["#,
            "<html>",
        ] {
            assert!(end(wrong).await.is_err(), "{wrong}");
        }
        let long = format!("{{\"kind\":\"{}", "x".repeat(1 << 20));
        assert!(end(&long).await.unwrap_err().contains("it is no list"));
    }

    /// Items and surroundings of a text that comes in parts of that size.
    fn taken(text: &[u8], size: usize) -> (Vec<Result<String, Oversized>>, String) {
        let (mut list, mut items) = (ListText::default(), Vec::new());
        text.chunks(size).for_each(|part| list.push(part, &mut items).unwrap());
        let items = items.into_iter().map(|item| item.map(|item| String::from_utf8(item).unwrap())).collect();
        (items, String::from_utf8(list.around).unwrap())
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
        let large = "x".repeat(MAX_OBJECT_BYTES);
        let (items, around) = taken(format!(r#"{{"items":[1,"{large}",2]}}"#).as_bytes(), 1 << 16);
        assert_eq!(items, [Ok("1".to_owned()), Err(Oversized), Ok("2".to_owned())]);
        assert_eq!(around, r#"{"items":[]}"#);
        let mut endless = ListText::default();
        assert_eq!(endless.push(&vec![b'1'; MAX_ENVELOPE_BYTES + 1], &mut Vec::new()), Err(Oversized));
    }

    #[test]
    fn depth_does_not_matter() {
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        let (items, _) = taken(format!(r#"{{"items":[{{"a":{deep}}},{{}}]}}"#).as_bytes(), 1 << 12);
        assert_eq!(items.len(), 2);
    }
}
