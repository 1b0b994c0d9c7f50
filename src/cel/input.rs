//! Input: variables of an expression.

use std::{cell::OnceCell, fmt};

use super::{
    authorization::AccessDecisions,
    document::Document,
    fault::Fault,
    meter::Meter,
    value::{Text, Value},
};

/// User who makes the request, beyond the name.
#[derive(Clone, Debug, Default)]
pub struct User {
    /// Identity among users of equal name.
    pub uid: String,
    /// Names of the user's groups.
    pub groups: Vec<String>,
    /// Further attributes from the authenticator, ascending by key.
    pub extra: Vec<(String, Vec<String>)>,
}

/// The request, but for its objects. Texts that are empty count as not written, as upstream leaves them out.
pub struct Request<'a> {
    /// Group, version and kind of the object as it is written.
    pub kind: [&'a str; 3],
    /// Group, version and resource that the client asked for.
    pub resource: [&'a str; 3],
    /// Group, version and kind that the client asked for.
    pub request_kind: [&'a str; 3],
    /// The subresource.
    pub sub_resource: &'a str,
    /// Name of the object.
    pub name: &'a str,
    /// Namespace of the request.
    pub namespace: &'a str,
    /// Operation on the object, in capitals.
    pub operation: &'a str,
    /// True when nothing will be stored.
    pub dry_run: bool,
    /// The acting user's name.
    pub username: &'a str,
    /// The operation's options.
    pub options: Option<Document<'a>>,
    /// Bytes of the user as the review has it, for the time it takes to read.
    pub user_bytes: usize,
    user: OnceCell<Result<User, String>>,
    read_user: Box<dyn Fn() -> Result<User, String> + 'a>,
}

impl fmt::Debug for Request<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request").field("resource", &self.resource).finish_non_exhaustive()
    }
}

impl<'a> Request<'a> {
    /// A request of which nothing is known but how to read its user, which is done when an expression asks.
    pub fn new(read_user: impl Fn() -> Result<User, String> + 'a) -> Self {
        let (kind, resource, request_kind) = ([""; 3], [""; 3], [""; 3]);
        let (sub_resource, name, namespace, operation, username) = ("", "", "", "", "");
        let (user, read_user, options, dry_run) = (OnceCell::new(), Box::new(read_user), None, false);
        Self {
            kind,
            resource,
            request_kind,
            sub_resource,
            name,
            namespace,
            operation,
            dry_run,
            username,
            options,
            user_bytes: 0,
            user,
            read_user,
        }
    }

    fn user(&self, meter: &Meter<'_>) -> Result<&User, Fault> {
        if self.user.get().is_none() {
            meter.read(self.user_bytes)?;
        }
        self.user.get_or_init(|| (self.read_user)()).as_ref().map_err(|why| Fault::error(why.clone()))
    }
}

/// Variables of one review.
#[derive(Debug)]
pub struct Input<'a> {
    /// The request.
    pub request: Request<'a>,
    /// The object, where there is one.
    pub object: Option<Document<'a>>,
    /// The stored object, where there is one.
    pub old_object: Option<Document<'a>>,
    /// Access checks that were decided.
    pub decisions: AccessDecisions,
}

/// A part of the request that has fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Request,
    Kind,
    RequestKind,
    Resource,
    UserInfo,
    Extra,
}

/// A text that counts only where something is written.
fn written<'a>(text: &'a str) -> Option<Value<'a>> {
    (!text.is_empty()).then_some(Value::String(Text::Lent(text)))
}

impl Part {
    /// The fields it may have, ascending.
    const fn names(self) -> &'static [&'static str] {
        match self {
            Self::Request => &[
                "dryRun",
                "kind",
                "name",
                "namespace",
                "object",
                "oldObject",
                "operation",
                "options",
                "requestKind",
                "requestResource",
                "requestSubResource",
                "resource",
                "subResource",
                "uid",
                "userInfo",
            ],
            Self::Kind | Self::RequestKind => &["group", "kind", "version"],
            Self::Resource => &["group", "resource", "version"],
            Self::UserInfo => &["extra", "groups", "uid", "username"],
            Self::Extra => &[],
        }
    }

    /// The keys that are there.
    pub(super) fn keys<'a>(self, request: &'a Request<'a>, meter: &Meter<'_>) -> Result<Vec<Text<'a>>, Fault> {
        if self == Self::Extra {
            return Ok(request.user(meter)?.extra.iter().map(|(key, _)| Text::Lent(key)).collect());
        }
        let mut keys = Vec::new();
        for name in self.names() {
            if self.field(request, name, meter)?.is_some() {
                keys.push(Text::Lent(name));
            }
        }
        Ok(keys)
    }

    /// Value of a field; `None` where it is not there.
    pub(super) fn field<'a>(
        self,
        request: &'a Request<'a>,
        name: &str,
        meter: &Meter<'_>,
    ) -> Result<Option<Value<'a>>, Fault> {
        let part = |part| Some(Value::Struct(part, request));
        Ok(match self {
            Self::Request => match name {
                "kind" => part(Self::Kind),
                "resource" | "requestResource" => part(Self::Resource),
                "requestKind" => part(Self::RequestKind),
                "subResource" | "requestSubResource" => written(request.sub_resource),
                "name" => written(request.name),
                "namespace" => written(request.namespace),
                "operation" => Some(Value::String(Text::Lent(request.operation))),
                "userInfo" => part(Self::UserInfo),
                "dryRun" => Some(Value::Bool(request.dry_run)),
                // No expression can name these but by `dyn(request)`. As upstream, they hold nothing.
                "uid" => Some(Value::String(Text::Lent(""))),
                "object" | "oldObject" => Some(Value::Null),
                "options" => Some(match &request.options {
                    Some(options) => options.root(meter)?,
                    None => Value::Null,
                }),
                _ => None,
            },
            Self::Kind => triple(&request.kind, "kind", name),
            Self::RequestKind => triple(&request.request_kind, "kind", name),
            Self::Resource => triple(&request.resource, "resource", name),
            Self::UserInfo => match name {
                "username" => written(request.username),
                "uid" => written(&request.user(meter)?.uid),
                "groups" if !request.user(meter)?.groups.is_empty() => {
                    Some(Value::Strings(&request.user(meter)?.groups))
                }
                "extra" if !request.user(meter)?.extra.is_empty() => part(Self::Extra),
                _ => None,
            },
            Self::Extra => {
                let extra = &request.user(meter)?.extra;
                let found = extra.binary_search_by(|(key, _)| key.as_str().cmp(name));
                found.ok().map(|at| Value::Strings(&extra[at].1))
            }
        })
    }
}

fn triple<'a>(values: &[&'a str; 3], last: &str, name: &str) -> Option<Value<'a>> {
    let value = match name {
        "group" => values[0],
        "version" => values[1],
        name if name == last => values[2],
        _ => return None,
    };
    Some(Value::String(Text::Lent(value)))
}
