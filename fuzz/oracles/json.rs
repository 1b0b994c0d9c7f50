//! An AdmissionReview in JSON as serde reads it, strictly: no field twice, every field of its type.
//!
//! Where the product means to differ from serde it is said here, in code: [`as_go_reads`], [`deepest`], [`Object`].

use std::{collections::BTreeMap, fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, Error, MapAccess, Visitor},
};
use serde_json::value::RawValue;

use super::said::{Said, Three, User};

/// As in Go's decoder, and in the product.
const MAX_DEPTH: usize = 10_000;
/// The review and its request stand around an object.
const AROUND: usize = 2;

/// Fields of a body, or the reason why it is no review.
pub(crate) fn read(body: &[u8]) -> Result<Said, String> {
    let text = std::str::from_utf8(body).map_err(|error| error.to_string())?;
    if deepest(text) > MAX_DEPTH {
        return Err("it is nested too deep".into());
    }
    let text = as_go_reads(text);
    let Object(review, _) = serde_json::from_str::<Object<'_, Review<'_>>>(&text).map_err(|error| error.to_string())?;
    let versions = ["admission.k8s.io/v1", "admission.k8s.io/v1beta1"];
    if !versions.contains(&&*review.api_version.unwrap_or_default())
        || review.kind.as_deref() != Some("AdmissionReview")
    {
        return Err("it is no AdmissionReview".into());
    }
    let Object(request, _) = review.request.ok_or("it has no request")?;
    // Where an object lies in the text, it lies in the body: both are of one length.
    let bytes = |raw: &RawValue| {
        let start = raw.get().as_ptr() as usize - text.as_ptr() as usize;
        body[start..start + raw.get().len()].to_vec()
    };
    let objects = [request.object, request.old_object, request.options];
    if objects.iter().flatten().any(|raw| !raw.get().starts_with('{')) {
        return Err("what should be an object is none".into());
    }
    let said = Said {
        uid: request.uid.unwrap_or_default(),
        kind: request.kind.map(kind).unwrap_or_default(),
        resource: request.resource.map(resource).unwrap_or_default(),
        sub_resource: request.sub_resource.unwrap_or_default(),
        request_kind: request.request_kind.map(kind),
        request_resource: request.request_resource.map(resource),
        request_sub_resource: request.request_sub_resource.unwrap_or_default(),
        name: request.name.unwrap_or_default(),
        namespace: request.namespace.unwrap_or_default(),
        operation: request.operation.unwrap_or_default(),
        dry_run: request.dry_run.unwrap_or_default(),
        user: Some(request.user_info.map(|Object(user, _)| user.into()).unwrap_or_default()),
        objects: objects.map(|raw| raw.map(bytes)),
    };
    if said.is_a_review() { Ok(said) } else { Err("it lacks what rules look at, a uid or an operation".into()) }
}

/// Fields of a `userInfo`.
pub(crate) fn user(bytes: &[u8]) -> Option<User> {
    let text = as_go_reads(std::str::from_utf8(bytes).ok()?);
    serde_json::from_str::<Object<'_, UserInfo>>(&text).ok().map(|Object(user, _)| user.into())
}

/// Is this one JSON object that may stand in a review's request?
pub(crate) fn is_object(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_ok_and(|text| {
        deepest(text) + AROUND <= MAX_DEPTH
            && serde_json::from_str::<&RawValue>(text).is_ok_and(|raw| raw.get().starts_with('{'))
    })
}

/// Bytes without the white space that JSON allows around a value.
pub(crate) fn without_blanks_around(bytes: &[u8]) -> &[u8] {
    let blank = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
    let start = bytes.iter().position(|byte| !blank(byte)).unwrap_or(bytes.len());
    let end = bytes.iter().rposition(|byte| !blank(byte)).map_or(start, |last| last + 1);
    &bytes[start..end]
}

/// Half a surrogate pair is U+FFFD, where serde refuses it. No length changes.
pub(crate) fn as_go_reads(text: &str) -> String {
    let unit = |at: usize| {
        let code = text.get(at..at + 6)?.strip_prefix("\\u")?;
        u16::from_str_radix(code, 16).ok().filter(|_| code.bytes().all(|digit| digit.is_ascii_hexdigit()))
    };
    let mut read = text.to_owned();
    let mut at = 0;
    while let Some(found) = text.get(at..).and_then(|rest| rest.find('\\')) {
        at += found;
        match (unit(at), unit(at + 6)) {
            (Some(0xd800..0xdc00), Some(0xdc00..=0xdfff)) => at += 12,
            (Some(0xd800..=0xdfff), _) => {
                read.replace_range(at..at + 6, "\\ufffd");
                at += 6;
            }
            _ => at += 1 + text[at + 1..].chars().next().map_or(0, char::len_utf8),
        }
    }
    read
}

/// Greatest depth of objects and arrays, where the text is JSON. Parts that serde skips are not counted.
pub(crate) fn deepest(text: &str) -> usize {
    let (mut depth, mut deepest, mut inside, mut escaped) = (0_usize, 0, false, false);
    for byte in text.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if inside => escaped = true,
            b'"' => inside = !inside,
            b'{' | b'[' if !inside => depth += 1,
            b'}' | b']' if !inside => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    deepest
}

/// A struct from an object. Serde would take an array of its fields, too.
pub(crate) struct Object<'a, T>(pub(crate) T, PhantomData<&'a ()>);

impl<'de: 'a, 'a, T: Deserialize<'a>> Deserialize<'de> for Object<'a, T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw: &'de RawValue = Deserialize::deserialize(deserializer)?;
        if !raw.get().starts_with('{') {
            return Err(D::Error::custom("an object is wanted"));
        }
        serde_json::from_str(raw.get()).map(|value| Self(value, PhantomData)).map_err(D::Error::custom)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Review<'a> {
    api_version: Option<String>,
    kind: Option<String>,
    #[serde(borrow)]
    request: Option<Object<'a, Request<'a>>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Request<'a> {
    uid: Option<String>,
    #[serde(borrow)]
    kind: Option<Object<'a, Kind>>,
    #[serde(borrow)]
    resource: Option<Object<'a, Resource>>,
    sub_resource: Option<String>,
    #[serde(borrow)]
    request_kind: Option<Object<'a, Kind>>,
    #[serde(borrow)]
    request_resource: Option<Object<'a, Resource>>,
    request_sub_resource: Option<String>,
    name: Option<String>,
    namespace: Option<String>,
    operation: Option<String>,
    #[serde(borrow)]
    user_info: Option<Object<'a, UserInfo>>,
    #[serde(borrow)]
    object: Option<&'a RawValue>,
    #[serde(borrow)]
    old_object: Option<&'a RawValue>,
    dry_run: Option<bool>,
    #[serde(borrow)]
    options: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Kind {
    group: Option<String>,
    version: Option<String>,
    kind: Option<String>,
}

#[derive(Deserialize)]
struct Resource {
    group: Option<String>,
    version: Option<String>,
    resource: Option<String>,
}

type Strings = Option<Vec<Option<String>>>;

#[derive(Deserialize)]
struct UserInfo {
    username: Option<String>,
    uid: Option<String>,
    groups: Strings,
    extra: Option<NoKeyTwice<Strings>>,
}

/// A map, which serde's own would let have one key twice.
struct NoKeyTwice<T>(BTreeMap<String, T>);

impl<'de, T: DeserializeOwned> Deserialize<'de> for NoKeyTwice<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries<T>(PhantomData<T>);
        impl<'de, T: DeserializeOwned> Visitor<'de> for Entries<T> {
            type Value = BTreeMap<String, T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map without a key twice")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
                let mut map = BTreeMap::new();
                while let Some((key, value)) = entries.next_entry()? {
                    if map.insert(key, value).is_some() {
                        return Err(A::Error::custom("a key is there twice"));
                    }
                }
                Ok(map)
            }
        }
        deserializer.deserialize_map(Entries(PhantomData)).map(Self)
    }
}

impl From<UserInfo> for User {
    fn from(user: UserInfo) -> Self {
        let strings = |strings: Strings| -> Vec<String> {
            strings.unwrap_or_default().into_iter().map(Option::unwrap_or_default).collect()
        };
        let extra = user.extra.map(|NoKeyTwice(entries)| entries).unwrap_or_default();
        Self {
            username: user.username.unwrap_or_default(),
            uid: user.uid.unwrap_or_default(),
            groups: strings(user.groups),
            extra: extra.into_iter().map(|(key, items)| (key, strings(items))).collect(),
        }
    }
}

fn kind(Object(Kind { group, version, kind }, _): Object<'_, Kind>) -> Three {
    [group, version, kind].map(Option::unwrap_or_default)
}

fn resource(Object(Resource { group, version, resource }, _): Object<'_, Resource>) -> Three {
    [group, version, resource].map(Option::unwrap_or_default)
}
