//! Kubernetes' envelope as prost reads it: four bytes and a `runtime.Unknown`.

use bytes::Bytes;
use prost::Message;

/// `runtime.Unknown`. Field 4, contentType, is passed by: nothing depends on it.
#[derive(Clone, PartialEq, Message)]
struct Unknown {
    #[prost(message, optional, tag = "1")]
    type_meta: Option<TypeMeta>,
    #[prost(bytes = "bytes", tag = "2")]
    raw: Bytes,
    #[prost(string, tag = "3")]
    content_encoding: String,
    #[prost(bytes = "bytes", tag = "4")]
    content_type: Bytes,
}

#[derive(Clone, PartialEq, Message)]
struct TypeMeta {
    #[prost(string, tag = "1")]
    api_version: String,
    #[prost(string, tag = "2")]
    kind: String,
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
    if !unknown.content_encoding.is_empty() {
        return Err("its message is encoded once more".into());
    }
    let TypeMeta { api_version, kind } = unknown.type_meta.unwrap_or_default();
    Ok(Opened { api_version, kind, message: unknown.raw })
}
