//! ObjectText: one object of a list or watch, read for the few fields that are needed of it.
//!
//! A field that is not asked for is skipped, whatever it holds and however deep it is nested. So an object that cannot be
//! read costs only itself.

use serde::{Deserialize, de::DeserializeOwned};
use serde_json::value::RawValue;

use super::list_text::MAX_OBJECT;

/// Objects larger than this are read on a thread of their own: whoever asks may have callers to accept, too.
pub(super) const BIG: usize = 256 << 10;

/// Names of an object, as far as they can be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectIdentity {
    /// Namespace; "" where it is in none.
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
    /// Of the object in a JSON text; of a field that is no string, "". `None` where it has no name.
    pub(super) fn of(text: &[u8]) -> Option<Self> {
        let Identified { metadata } = serde_json::from_slice(text).ok()?;
        let read = |raw: Option<&RawValue>| raw.and_then(|raw| serde_json::from_str::<Box<str>>(raw.get()).ok());
        let name = read(metadata.name).filter(|name| !name.is_empty())?;
        let [namespace, uid, resource_version] =
            [metadata.namespace, metadata.uid, metadata.resource_version].map(|raw| read(raw).unwrap_or_default());
        Some(Self { namespace, name, uid, resource_version })
    }
}

/// The object in a JSON text, or why it cannot be read.
///
/// # Errors
/// The place of the fault, and nothing of the text.
pub(super) async fn read<T: DeserializeOwned + Send + 'static>(text: Vec<u8>) -> (Vec<u8>, Result<T, String>) {
    let reading = |text: Vec<u8>| {
        let read = match text.len() > MAX_OBJECT {
            true => Err(format!("it is larger than {MAX_OBJECT} bytes")),
            false => serde_json::from_slice(&text).map_err(|error| fault(&error)),
        };
        (text, read)
    };
    if text.len() <= BIG {
        return reading(text);
    }
    let read = tokio::task::spawn_blocking(move || reading(text)).await;
    read.unwrap_or_else(|panic| (Vec::new(), Err(panic.to_string())))
}

/// Fault of a JSON text, without anything of the text.
pub(super) fn fault(error: &serde_json::Error) -> String {
    format!("no JSON of its kind (line {}, column {})", error.line(), error.column())
}
