//! Request fields: values of the request's parts, as expressions read them.

use super::{
    fault::Fault,
    input::{Part, Request},
    meter::Meter,
    text::Text,
    value::Value,
};

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
                    Some(options) => options.root(meter)?.into(),
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
