//! Converts the user of a review, `userInfo`, between JSON and protobuf.

use std::collections::{BTreeMap, btree_map::Entry};

use bytes::Bytes;
use prost::Message;

use super::{
    inbound::ViewError,
    json::{Cursor, JsonReadError},
    pb::k8s::io::api::authentication::v1::{ExtraValue, UserInfo},
    walk::Pieces,
};

const EXTRA: &str = "request.userInfo.extra";

/// Reads the value of `request.userInfo`; `None` for `null`.
pub(super) fn from_json(cursor: &mut Cursor<'_>) -> Result<Option<UserInfo>, ViewError> {
    if !cursor.object("request.userInfo")? {
        return Ok(None);
    }
    let mut user = UserInfo::default();
    let (mut groups, mut extra) = (None, None);
    while let Some(key) = cursor.key()? {
        match &*key.plain() {
            "username" => {
                once(&mut user.username, text(cursor, "request.userInfo.username")?, "request.userInfo.username")
            }
            "uid" => once(&mut user.uid, text(cursor, "request.userInfo.uid")?, "request.userInfo.uid"),
            "groups" => once(&mut groups, strings(cursor, "request.userInfo.groups")?, "request.userInfo.groups"),
            "extra" => once(&mut extra, self::extra(cursor)?, EXTRA),
            _ => cursor.skip().map_err(Into::into),
        }?;
    }
    user.groups = groups.unwrap_or_default();
    user.extra = extra.unwrap_or_default();
    Ok(Some(user))
}

/// Sets a field. Fails if it is already set: each field may occur once.
pub(super) fn once<T>(place: &mut Option<T>, value: T, field: &'static str) -> Result<(), ViewError> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(ViewError::Twice(field)),
    }
}

fn text(cursor: &mut Cursor<'_>, field: &'static str) -> Result<String, JsonReadError> {
    Ok(cursor.string(field)?.map_or_else(String::new, |text| text.plain().into_owned()))
}

fn strings(cursor: &mut Cursor<'_>, field: &'static str) -> Result<Vec<String>, JsonReadError> {
    let mut strings = Vec::new();
    if cursor.array(field)? {
        while cursor.item()? {
            strings.push(text(cursor, field)?);
        }
    }
    Ok(strings)
}

fn extra(cursor: &mut Cursor<'_>) -> Result<BTreeMap<String, ExtraValue>, ViewError> {
    let mut extra = BTreeMap::new();
    if cursor.object(EXTRA)? {
        while let Some(key) = cursor.key()? {
            match extra.entry(key.plain().into_owned()) {
                Entry::Occupied(_) => return Err(ViewError::Twice("a key of request.userInfo.extra")),
                Entry::Vacant(place) => place.insert(ExtraValue { items: strings(cursor, EXTRA)? }),
            };
        }
    }
    Ok(extra)
}

/// Reads a whole `userInfo` in JSON; `None` if it is invalid or `null`.
pub(super) fn in_json(bytes: &[u8]) -> Option<UserInfo> {
    from_json(&mut Cursor::new(std::str::from_utf8(bytes).ok()?)).ok()?
}

/// Reads a whole `userInfo` in protobuf; `None` if it is invalid.
pub(super) fn in_protobuf(bytes: Bytes) -> Option<UserInfo> {
    UserInfo::decode(bytes).ok()
}

/// Writes `userInfo` as kube-apiserver does: omits empty fields.
pub(super) fn to_json(user: &UserInfo, out: &mut Pieces) {
    let mut separator = "{";
    let mut key = |out: &mut Pieces, key: &str| {
        out.own(separator);
        out.own(key);
        separator = ",";
    };
    if !user.username().is_empty() {
        key(out, "\"username\":");
        out.string(user.username());
    }
    if !user.uid().is_empty() {
        key(out, "\"uid\":");
        out.string(user.uid());
    }
    if !user.groups.is_empty() {
        key(out, "\"groups\":");
        list(&user.groups, out);
    }
    if !user.extra.is_empty() {
        key(out, "\"extra\":");
        let mut separator = "{";
        for (name, values) in &user.extra {
            out.own(separator);
            out.string(name);
            out.own(":");
            list(&values.items, out);
            separator = ",";
        }
        out.own("}");
    }
    out.own(if separator == "{" { "{}" } else { "}" });
}

/// Writes strings as a JSON array.
pub(super) fn list(strings: &[String], out: &mut Pieces) {
    out.own("[");
    for (at, text) in strings.iter().enumerate() {
        if at > 0 {
            out.own(",");
        }
        out.string(text);
    }
    out.own("]");
}
