//! Reads lists, maps and parts of the request, whatever their representation; and compares values.

use crate::{
    compatibility::KubernetesVersion,
    input::{Part, Request, Text},
    meter::{Fault, Meter},
    value::{List, Message, Value, compare_numbers},
};

/// Maximum depth of containers in a comparison.
const MAX_COMPARED_DEPTH: usize = 200;

pub(super) fn is_list(value: &Value<'_>) -> bool {
    match value {
        Value::List(_) | Value::Literals(_) | Value::Strings(_) => true,
        Value::Json(node) => node.is_list(),
        _ => false,
    }
}

/// Returns the number of items; `None` if the value is no list.
pub(super) fn list_len(value: &Value<'_>, meter: &Meter<'_>) -> Result<Option<usize>, Fault> {
    Ok(match value {
        Value::List(items) => Some(items.len()),
        Value::Literals(items) => Some(items.len()),
        Value::Strings(items) => Some(items.len()),
        Value::Json(node) if node.is_list() => Some(node.len(meter)?),
        _ => None,
    })
}

/// Returns an item; `None` if there are fewer, or if the value is no list.
pub(super) fn list_item<'a>(value: &Value<'a>, at: usize, meter: &Meter<'_>) -> Result<Option<Value<'a>>, Fault> {
    Ok(match value {
        Value::List(items) => items.get(at).cloned(),
        Value::Literals(items) => items.get(at).map(|item| Value::of(item, meter)).transpose()?,
        Value::Strings(items) => items.get(at).map(|text| Value::String(Text::Lent(text))),
        Value::Json(node) if node.is_list() => node.item(at, meter)?.map(Value::from),
        _ => None,
    })
}

/// Returns every item; an error if the value is no list.
pub(super) fn items<'a>(value: &Value<'a>, meter: &Meter<'_>) -> Result<List<'a>, Fault> {
    let len = list_len(value, meter)?.ok_or_else(Fault::no_such_overload)?;
    let mut items = List::with_room(meter.list(len)?, len);
    each_item(value, meter, |item| {
        items.fill(item);
        Ok(())
    })?;
    Ok(items)
}

/// Calls `each` for every item in turn, without collecting them; an error if the value is no list.
pub(super) fn each_item<'a>(
    value: &Value<'a>,
    meter: &Meter<'_>,
    mut each: impl FnMut(Value<'a>) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let len = list_len(value, meter)?.ok_or_else(Fault::no_such_overload)?;
    for at in 0..len {
        meter.step(1)?;
        list_item(value, at, meter)?.map_or(Ok(()), &mut each)?;
    }
    Ok(())
}

/// Returns the number of entries; `None` if the value is no map.
pub(super) fn map_len(value: &Value<'_>, meter: &Meter<'_>) -> Result<Option<usize>, Fault> {
    Ok(match value {
        Value::Map(map) => Some(map.entries().len()),
        Value::Struct(part, request) => Some(part.keys(request, meter)?.len()),
        Value::Json(node) if !node.is_list() => Some(node.len(meter)?),
        _ => None,
    })
}

/// Returns every key as a list; an error if the value is no map.
pub(super) fn keys<'a>(value: &Value<'a>, meter: &Meter<'_>) -> Result<List<'a>, Fault> {
    let with_room = |len| Ok::<_, Fault>(List::with_room(meter.list(len)?, len));
    match value {
        Value::Map(map) => {
            let mut keys = with_room(map.entries().len())?;
            map.entries().iter().for_each(|(key, _)| keys.fill(key.clone()));
            Ok(keys)
        }
        Value::Struct(part, request) => {
            let names = part.keys(request, meter)?;
            let mut keys = with_room(names.len())?;
            names.into_iter().for_each(|name| keys.fill(Value::String(name)));
            Ok(keys)
        }
        Value::Json(node) if !node.is_list() => {
            let mut keys = with_room(node.len(meter)?)?;
            for key in node.keys(meter)? {
                keys.fill(Value::String(key?));
            }
            Ok(keys)
        }
        _ => Err(Fault::no_such_overload()),
    }
}

/// Returns every key with its value; an error if the value is no map.
pub(super) fn entries<'a>(value: &Value<'a>, meter: &Meter<'_>) -> Result<Vec<(Value<'a>, Value<'a>)>, Fault> {
    let mut entries = Vec::new();
    for key in keys(value, meter)?.iter() {
        if let Some(value) = entry(value, key, meter)? {
            entries.push((key.clone(), value));
        }
    }
    Ok(entries)
}

/// Returns true if upstream fails to look the value up in a map.
pub(super) fn has_no_hash(value: &Value<'_>) -> bool {
    matches!(value, Value::Bytes(_) | Value::Semver(_) | Value::Format(_) | Value::Authorizer(_))
}

/// Returns an entry by its key, `None` if there is none; an error if the value is no map.
pub(super) fn entry<'a>(value: &Value<'a>, key: &Value<'a>, meter: &Meter<'_>) -> Result<Option<Value<'a>>, Fault> {
    match (value, key) {
        (Value::Map(map), _) if map.entries().is_empty() => Ok(None),
        (Value::Map(map), key) => {
            match key {
                Value::String(text) => meter.read(text.as_str().len())?,
                key if has_no_hash(key) => {
                    return Err(Fault::error(format!("internal error: a {} has no hash", key.type_name())));
                }
                _ => {}
            }
            Ok(map.get(key).cloned())
        }
        (_, Value::String(name)) => field(value, name.as_str(), meter),
        (Value::Struct(..), key) if meter.version >= KubernetesVersion::V1_37 => {
            Err(Fault::error(format!("a part of the request has no keys of type {}", key.type_name())))
        }
        (Value::Struct(..), _) => Ok(None),
        (Value::Json(node), _) if !node.is_list() => Ok(None),
        _ => Err(Fault::no_such_overload()),
    }
}

/// Returns an entry by its name, `None` if there is none; an error if the value is no map.
pub(super) fn field<'a>(value: &Value<'a>, name: &str, meter: &Meter<'_>) -> Result<Option<Value<'a>>, Fault> {
    match value {
        Value::Struct(part, request) => part.field(request, name, meter),
        Value::Json(node) if !node.is_list() => Ok(node.member(name, meter)?.map(Value::from)),
        Value::Map(map) => Ok(map.get(&Value::made(name)).cloned()),
        Value::Message(message) if message.is_json_patch() => Ok(match name {
            "op" | "from" | "path" => Some(Value::made(message.text(name))),
            "value" => Some(message.field(name).cloned().unwrap_or(Value::Null)),
            _ => None,
        }),
        // As in upstream, a field that is not set is null.
        Value::Message(message) => Ok(Some(message.field(name).cloned().unwrap_or(Value::Null))),
        _ => Err(Fault::no_such_overload()),
    }
}

/// Returns the size in characters, bytes or entries; 1 if the value has no size. Upstream: `actualSize`.
pub(super) fn size(value: &Value<'_>, meter: &Meter<'_>) -> Result<u64, Fault> {
    Ok(match value {
        Value::String(text) => {
            meter.read(text.as_str().len())?;
            text.as_str().chars().count() as u64
        }
        Value::Bytes(bytes) => bytes.len() as u64,
        Value::Optional(Some(inner)) => size(inner, meter)?,
        Value::Ip(std::net::IpAddr::V4(_)) => 4,
        Value::Ip(std::net::IpAddr::V6(_)) => 16,
        Value::Cidr(_, bits) => u64::from(bits.div_ceil(8)),
        other => match list_len(other, meter)? {
            Some(len) => len as u64,
            None => map_len(other, meter)?.unwrap_or(1) as u64,
        },
    })
}

/// Returns true if the value is of one of Kubernetes' own types.
pub(super) fn is_of_kubernetes(value: &Value<'_>) -> bool {
    matches!(
        value,
        Value::Quantity(_)
            | Value::Url(_)
            | Value::Semver(_)
            | Value::Format(_)
            | Value::Ip(_)
            | Value::Cidr(..)
            | Value::Authorizer(_)
            | Value::Decision(_)
    )
}

/// Compares values. Values of different types are unequal, except numbers. An error if upstream has no answer.
pub(super) fn equal<'a>(a: &Value<'a>, b: &Value<'a>, meter: &Meter<'_>) -> Result<bool, Fault> {
    compared(a, b, meter)?.ok_or_else(Fault::no_such_overload)
}

/// Returns true if the values are equal. Unlike [`equal`], returns false if upstream has no answer.
pub(super) fn is_same<'a>(a: &Value<'a>, b: &Value<'a>, meter: &Meter<'_>) -> Result<bool, Fault> {
    compared(a, b, meter).map(|equal| equal == Some(true))
}

/// Returns whether the values are equal; `None` if upstream has no answer: if the types differ, and `a` is of one of
/// Kubernetes' own types or a part of the request.
pub(super) fn compared<'a>(a: &Value<'a>, b: &Value<'a>, meter: &Meter<'_>) -> Result<Option<bool>, Fault> {
    compared_within(a, b, meter, MAX_COMPARED_DEPTH)
}

fn compared_within<'a>(
    a: &Value<'a>,
    b: &Value<'a>,
    meter: &Meter<'_>,
    depth_left: usize,
) -> Result<Option<bool>, Fault> {
    match (a, b) {
        (Value::Null, Value::Null) => Ok(Some(true)),
        (Value::Null, _) | (_, Value::Null) => Ok(Some(false)),
        _ => equal_to(a, b, meter, depth_left),
    }
}

fn equal_to<'a>(a: &Value<'a>, b: &Value<'a>, meter: &Meter<'_>, depth_left: usize) -> Result<Option<bool>, Fault> {
    let Some(depth_left) = depth_left.checked_sub(1) else {
        return Err(Fault::error("the values are nested too deep"));
    };
    meter.step(1)?;
    match (a, b) {
        (Value::Type(a), Value::Type(b)) => return Ok(Some(a == b)),
        (Value::Quantity(a), Value::Quantity(b)) => return Ok(Some(a.compare(b).is_eq())),
        (Value::Url(a), Value::Url(b)) => {
            meter.read(a.text().len().min(b.text().len()))?;
            return Ok(Some(a.text() == b.text()));
        }
        (Value::Semver(a), Value::Semver(b)) => {
            meter.read(a.len().min(b.len()))?;
            return Ok(Some(a.compare(b).is_eq()));
        }
        (Value::Format(a), Value::Format(b)) => return Ok(Some(a == b)),
        (Value::Ip(a), Value::Ip(b)) => return Ok(Some(a == b)),
        (Value::Cidr(a, x), Value::Cidr(b, y)) => return Ok(Some(a == b && x == y)),
        (own, _) if is_of_kubernetes(own) => return Ok(None),
        (Value::Optional(a), Value::Optional(b)) => {
            return match (a, b) {
                (Some(a), Some(b)) => equal_to(a, b, meter, depth_left),
                (a, b) => Ok(Some(a.is_none() && b.is_none())),
            };
        }
        (Value::String(a), Value::String(b)) => {
            let (a, b) = (a.as_str(), b.as_str());
            meter.read(a.len().min(b.len()))?;
            return Ok(Some(a == b));
        }
        (Value::Bytes(a), Value::Bytes(b)) => {
            meter.read(a.len().min(b.len()))?;
            return Ok(Some(a == b));
        }
        (Value::Null, other) => return Ok(Some(matches!(other, Value::Null))),
        (Value::Message(a), Value::Message(b)) => return equal_messages(a, b, meter, depth_left).map(Some),
        (Value::Message(_), _) => return Ok(Some(false)),
        _ => {}
    }
    if let Some(order) = a.compare(b) {
        return Ok(Some(order.is_eq()));
    }
    // As in upstream, items without an answer do not make containers unequal.
    if let (Some(left), Some(right)) = (list_len(a, meter)?, list_len(b, meter)?) {
        if left != right {
            return Ok(Some(false));
        }
        for at in 0..left {
            let (Some(x), Some(y)) = (list_item(a, at, meter)?, list_item(b, at, meter)?) else {
                return Ok(Some(false));
            };
            if compared_within(&x, &y, meter, depth_left)? == Some(false) {
                return Ok(Some(false));
            }
        }
        return Ok(Some(true));
    }
    if let (Some(left), Some(right)) = (map_len(a, meter)?, map_len(b, meter)?) {
        if left != right {
            return Ok(Some(false));
        }
        for key in keys(a, meter)?.iter() {
            if matches!(b, Value::Struct(..)) && !matches!(key, Value::String(_)) {
                return Ok(Some(false));
            }
            let Some(y) = entry(b, key, meter)? else { return Ok(Some(false)) };
            let Some(x) = entry(a, key, meter)? else { return Ok(Some(false)) };
            match (compared_within(&x, &y, meter, depth_left)?, a) {
                (Some(true), _) => {}
                // In a part of the request, an entry without an answer counts. Before 1.37, none is without one.
                (None, Value::Struct(Part::Extra, _)) => return Ok(Some(false)),
                (None, Value::Struct(..)) => return Ok(None),
                (None, _) => {}
                (Some(false), _) => return Ok(Some(false)),
            }
        }
        return Ok(Some(true));
    }
    if matches!(a, Value::Struct(..) | Value::Strings(_)) && meter.version >= KubernetesVersion::V1_37 {
        return Ok(None);
    }
    Ok(Some(compare_numbers(a, b).is_some_and(std::cmp::Ordering::is_eq)))
}

fn equal_messages<'a>(a: &Message<'a>, b: &Message<'a>, meter: &Meter<'_>, depth_left: usize) -> Result<bool, Fault> {
    let texts = ["op", "from", "path"];
    let is_patch = a.is_json_patch();
    if a.name != b.name || is_patch && texts.into_iter().any(|name| a.text(name) != b.text(name)) {
        return Ok(false);
    }
    let values = |of: &Message<'a>| of.fields.iter().filter(|(name, _)| !is_patch || *name == "value").count();
    meter.step((a.fields.len() as u64).saturating_mul(b.fields.len() as u64))?;
    if values(a) != values(b) {
        return Ok(false);
    }
    for (name, x) in a.fields.iter().filter(|(name, _)| !is_patch || *name == "value") {
        let Some(y) = b.field(name) else { return Ok(false) };
        if compared_within(x, y, meter, depth_left)? != Some(true) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns the text; `None` if it is empty.
fn non_empty<'a>(text: &'a str) -> Option<Value<'a>> {
    (!text.is_empty()).then_some(Value::String(Text::Lent(text)))
}

impl Part {
    /// Returns the name that Go gives to the type.
    pub(super) const fn go_type(self) -> &'static str {
        match self {
            Self::Request => "v1.AdmissionRequest",
            Self::Kind | Self::RequestKind => "v1.GroupVersionKind",
            Self::Resource => "v1.GroupVersionResource",
            Self::UserInfo => "v1.UserInfo",
            Self::Extra => "map[string]v1.ExtraValue",
        }
    }

    /// Returns the fields that it may have, ascending.
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

    /// Returns the keys that are present.
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

    /// Returns the value of a field; `None` if absent.
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
                "subResource" | "requestSubResource" => non_empty(request.sub_resource),
                "name" => non_empty(request.name),
                "namespace" => non_empty(request.namespace),
                "operation" => Some(Value::String(Text::Lent(request.operation))),
                "userInfo" => part(Self::UserInfo),
                "dryRun" => Some(Value::Bool(request.dry_run)),
                // An expression can name these only by `dyn(request)`. As in upstream, they are empty.
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
                "username" => non_empty(request.username),
                "uid" => non_empty(&request.user(meter)?.uid),
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
