//! Kubernetes' envelope as prost reads it: four bytes and a `runtime.Unknown`.

use bytes::Bytes;
use prost::Message;

/// `runtime.Unknown`, every field as often as it is there. Field 4, contentType, is passed by: nothing depends on it.
#[derive(Clone, PartialEq, Message)]
struct Unknown {
    #[prost(message, repeated, tag = "1")]
    type_meta: Vec<TypeMeta>,
    #[prost(bytes = "bytes", repeated, tag = "2")]
    raw: Vec<Bytes>,
    #[prost(string, repeated, tag = "3")]
    content_encoding: Vec<String>,
    #[prost(bytes = "bytes", repeated, tag = "4")]
    content_type: Vec<Bytes>,
}

#[derive(Clone, PartialEq, Message)]
struct TypeMeta {
    #[prost(string, repeated, tag = "1")]
    api_version: Vec<String>,
    #[prost(string, repeated, tag = "2")]
    kind: Vec<String>,
}

/// An envelope, opened.
pub(crate) struct Opened {
    pub(crate) api_version: String,
    pub(crate) kind: String,
    pub(crate) message: Bytes,
}

/// Opens an envelope whose message is not encoded once more.
pub(crate) fn open(bytes: &[u8]) -> Result<Opened, String> {
    let body = bytes.strip_prefix(b"k8s\0").ok_or("it does not begin as an envelope does")?;
    let unknown = Unknown::decode(Bytes::copy_from_slice(body)).map_err(|error| error.to_string())?;
    if unknown.content_type.len() > 1 {
        return Err("it has two content types".into());
    }
    if !once(unknown.content_encoding)?.is_empty() {
        return Err("its message is encoded once more".into());
    }
    let TypeMeta { api_version, kind } = once(unknown.type_meta)?;
    Ok(Opened { api_version: once(api_version)?, kind: once(kind)?, message: once(unknown.raw)? })
}

/// Value of a field that may be there once: of two, one reader takes the last, and another merges them.
fn once<T: Default>(mut all: Vec<T>) -> Result<T, String> {
    match (all.pop(), all.is_empty()) {
        (_, false) => Err("a field is given twice".into()),
        (last, true) => Ok(last.unwrap_or_default()),
    }
}
