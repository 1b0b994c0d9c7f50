//! Views an AdmissionReview in JSON as a [`Review`], without building it.
//!
//! Short fields share the body's buffer. The object, the old object and the options are checked to be JSON objects;
//! only their ranges are recorded, and for the two objects also the ends of their large containers. As in Go's decoder,
//! keys are case-sensitive, unknown keys are skipped, and `null` equals an absent field. Unlike in Go's decoder, a
//! field given twice is rejected, because every reader of the forwarded bytes must see the same review.

use bytes::Bytes;
use bytestring::ByteString;

pub use super::inbound::ViewError;
use super::{
    json::{Cursor, EndsRecorder, JsonReadError, JsonText},
    seen::RequestFields,
    user::{self, once},
};
use gatepost_api::{ContainerEnds, Encoding, Gvk, Gvr, Review, ReviewVersion, Rope};

/// `kind` of a review in both versions.
pub(super) const KIND: &str = "AdmissionReview";

impl From<JsonReadError> for ViewError {
    fn from(error: JsonReadError) -> Self {
        match error {
            JsonReadError::Json(error) => Self::NotJson(error),
            JsonReadError::Type { field, wanted } => Self::Type { field, wanted },
        }
    }
}

/// Views a JSON body as a review.
///
/// # Errors
/// [`ViewError`] describes the fault and never quotes the body.
pub fn view(body: Bytes) -> Result<Review, ViewError> {
    let text = ByteString::try_from(body.clone()).map_err(|_| {
        ViewError::NotUtf8(std::str::from_utf8(&body).map_or_else(|error| error.valid_up_to(), str::len))
    })?;
    let mut reader = Reader { body: &text, cursor: Cursor::new(&text) };
    let (version, seen) = reader.review()?;
    let len = body.len();
    seen.review(Rope::new([body]), 0..len, Encoding::Json(version))
}

/// Returns the version of a review with this `apiVersion` and `kind`. Fails if they are not those of a review.
pub(super) fn version(api_version: &str, kind: &str) -> Result<ReviewVersion, ViewError> {
    if kind != KIND {
        return Err(ViewError::NotAReview("kind", KIND));
    }
    [ReviewVersion::V1, ReviewVersion::V1beta1]
        .into_iter()
        .find(|version| version.api_version() == api_version)
        .ok_or(ViewError::NotAReview("apiVersion", "admission.k8s.io/v1 or admission.k8s.io/v1beta1"))
}

struct Reader<'a> {
    body: &'a ByteString,
    cursor: Cursor<'a>,
}

impl<'a> Reader<'a> {
    fn review(&mut self) -> Result<(ReviewVersion, RequestFields), ViewError> {
        let (mut api_version, mut kind, mut request) = (None, None, None);
        if !self.cursor.object("the review")? {
            return Err(ViewError::Type { field: "the review", wanted: "an object" });
        }
        while let Some(key) = self.cursor.key()? {
            match &*key.plain() {
                "apiVersion" => self.text("apiVersion", &mut api_version)?,
                "kind" => self.text("kind", &mut kind)?,
                "request" => {
                    let seen = self.request()?;
                    once(&mut request, seen, "request")?;
                }
                _ => self.cursor.skip()?,
            }
        }
        self.cursor.end()?;
        let version = version(&api_version.unwrap_or_default(), &kind.unwrap_or_default())?;
        Ok((version, request.flatten().ok_or(ViewError::NoRequest)?))
    }

    fn request(&mut self) -> Result<Option<RequestFields>, ViewError> {
        if !self.cursor.object("request")? {
            return Ok(None);
        }
        let mut fields = Fields::default();
        while let Some(key) = self.cursor.key()? {
            self.field(key, &mut fields)?;
        }
        Ok(Some(fields.into_request_fields()))
    }

    fn field(&mut self, key: JsonText<'a>, fields: &mut Fields) -> Result<(), ViewError> {
        match &*key.plain() {
            "uid" => self.text("request.uid", &mut fields.uid),
            "kind" => {
                let names = ["request.kind", "request.kind.group", "request.kind.version", "request.kind.kind"];
                let parts = self.three("kind", names)?;
                once(&mut fields.kind, parts, names[0])
            }
            "resource" => {
                let names = [
                    "request.resource",
                    "request.resource.group",
                    "request.resource.version",
                    "request.resource.resource",
                ];
                let parts = self.three("resource", names)?;
                once(&mut fields.resource, parts, names[0])
            }
            "subResource" => self.text("request.subResource", &mut fields.sub_resource),
            "requestKind" => {
                let names = [
                    "request.requestKind",
                    "request.requestKind.group",
                    "request.requestKind.version",
                    "request.requestKind.kind",
                ];
                let parts = self.three("kind", names)?;
                once(&mut fields.request_kind, parts, names[0])
            }
            "requestResource" => {
                let names = [
                    "request.requestResource",
                    "request.requestResource.group",
                    "request.requestResource.version",
                    "request.requestResource.resource",
                ];
                let parts = self.three("resource", names)?;
                once(&mut fields.request_resource, parts, names[0])
            }
            "requestSubResource" => self.text("request.requestSubResource", &mut fields.request_sub_resource),
            "name" => self.text("request.name", &mut fields.name),
            "namespace" => self.text("request.namespace", &mut fields.namespace),
            "operation" => self.text("request.operation", &mut fields.operation),
            "userInfo" => self.user(fields),
            "object" => {
                let (place, ends) = self.object("request.object")?;
                fields.object_ends = ends;
                once(&mut fields.object, place, "request.object")
            }
            "oldObject" => {
                let (place, ends) = self.object("request.oldObject")?;
                fields.old_object_ends = ends;
                once(&mut fields.old_object, place, "request.oldObject")
            }
            "dryRun" => once(&mut fields.dry_run, self.cursor.boolean("request.dryRun")?, "request.dryRun"),
            "options" => once(&mut fields.options, self.cursor.object_range("request.options")?, "request.options"),
            _ => Ok(self.cursor.skip()?),
        }
    }

    /// Reads the range of an object, and the ends of its large containers.
    fn object(&mut self, field: &'static str) -> Result<(NullableRange, Option<ContainerEnds>), ViewError> {
        let mut noted = EndsRecorder::sparse();
        let place = self.cursor.object_range_recorded(field, &mut noted)?;
        let ends = place.as_ref().and_then(|place| noted.relative_to(place.start));
        Ok((place, ends))
    }

    fn user(&mut self, fields: &mut Fields) -> Result<(), ViewError> {
        let start = self.cursor.at();
        let user = user::from_json(&mut self.cursor)?;
        let place = user.as_ref().map(|_| start..self.cursor.value_end());
        let username = user.and_then(|user| user.username).unwrap_or_default().into();
        once(&mut fields.user, (place, username), "request.userInfo")
    }

    fn text(&mut self, field: &'static str, place: &mut Option<ByteString>) -> Result<(), ViewError> {
        let text = self.cursor.string(field)?.map_or_else(ByteString::new, |text| text.shared(self.body));
        once(place, text, field)
    }

    /// Reads a group, a version and a third string. `names` are the paths of their object and of the three.
    fn three(&mut self, third: &str, names: [&'static str; 4]) -> Result<Option<[ByteString; 3]>, ViewError> {
        if !self.cursor.object(names[0])? {
            return Ok(None);
        }
        let [mut group, mut version, mut name] = [None, None, None];
        while let Some(key) = self.cursor.key()? {
            match &*key.plain() {
                "group" => self.text(names[1], &mut group)?,
                "version" => self.text(names[2], &mut version)?,
                other if other == third => self.text(names[3], &mut name)?,
                _ => self.cursor.skip()?,
            }
        }
        Ok(Some([group, version, name].map(Option::unwrap_or_default)))
    }
}

type NullableRange = Option<std::ops::Range<usize>>;
type Three = Option<[ByteString; 3]>;

/// Fields of `request`. Each is `Some` once it has occurred, even as `null`.
#[derive(Default)]
struct Fields {
    uid: Option<ByteString>,
    kind: Option<Three>,
    resource: Option<Three>,
    sub_resource: Option<ByteString>,
    request_kind: Option<Three>,
    request_resource: Option<Three>,
    request_sub_resource: Option<ByteString>,
    name: Option<ByteString>,
    namespace: Option<ByteString>,
    operation: Option<ByteString>,
    user: Option<(NullableRange, ByteString)>,
    object: Option<NullableRange>,
    object_ends: Option<ContainerEnds>,
    old_object: Option<NullableRange>,
    old_object_ends: Option<ContainerEnds>,
    dry_run: Option<Option<bool>>,
    options: Option<NullableRange>,
}

impl Fields {
    fn into_request_fields(self) -> RequestFields {
        let (user, username) = self.user.unwrap_or_default();
        RequestFields {
            uid: self.uid.unwrap_or_default(),
            kind: self.kind.flatten().map(gvk).unwrap_or_default(),
            resource: self.resource.flatten().map(gvr).unwrap_or_default(),
            sub_resource: self.sub_resource.unwrap_or_default(),
            name: self.name.unwrap_or_default(),
            namespace: self.namespace.unwrap_or_default(),
            operation: self.operation.unwrap_or_default(),
            username,
            user,
            object: self.object.flatten(),
            object_ends: self.object_ends,
            old_object: self.old_object.flatten(),
            old_object_ends: self.old_object_ends,
            dry_run: self.dry_run.flatten().unwrap_or_default(),
            options: self.options.flatten(),
            request_kind: self.request_kind.flatten().map(gvk),
            request_resource: self.request_resource.flatten().map(gvr),
            request_sub_resource: self.request_sub_resource.unwrap_or_default(),
        }
    }
}

fn gvk([group, version, kind]: [ByteString; 3]) -> Gvk {
    Gvk { group, version, kind }
}

fn gvr([group, version, resource]: [ByteString; 3]) -> Gvr {
    Gvr { group, version, resource }
}

#[cfg(test)]
mod tests;
