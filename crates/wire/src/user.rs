//! Converts the user of a review, `userInfo`, between JSON and protobuf.

use std::collections::{BTreeMap, btree_map::Entry};

use super::{
    inbound::ViewError,
    json::{Cursor, JsonReadError},
    pb::k8s::io::api::authentication::v1::{ExtraValue, UserInfo},
    walk::Pieces,
};

const EXTRA: &str = "request.userInfo.extra";

/// Reads the value of `request.userInfo`; `None` for `null`.
pub(super) fn from_json(cursor: &mut Cursor<'_>) -> Result<Option<UserInfo>, ViewError> {
    let mut user = UserInfo::default();
    let (mut groups, mut extra) = (None, None);
    let is_object = cursor.read_object("request.userInfo", |cursor, key| match key {
        "username" => once(&mut user.username, text(cursor, "request.userInfo.username")?, "request.userInfo.username"),
        "uid" => once(&mut user.uid, text(cursor, "request.userInfo.uid")?, "request.userInfo.uid"),
        "groups" => once(&mut groups, strings(cursor, "request.userInfo.groups")?, "request.userInfo.groups"),
        "extra" => once(&mut extra, self::extra(cursor)?, EXTRA),
        _ => Ok(cursor.skip()?),
    })?;
    user.groups = groups.unwrap_or_default();
    user.extra = extra.unwrap_or_default();
    Ok(is_object.then_some(user))
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
    cursor.read_array(field, |cursor| text(cursor, field).map(|text| strings.push(text)))?;
    Ok(strings)
}

fn extra(cursor: &mut Cursor<'_>) -> Result<BTreeMap<String, ExtraValue>, ViewError> {
    let mut extra = BTreeMap::new();
    cursor.read_object(EXTRA, |cursor, key| match extra.entry(key.to_owned()) {
        Entry::Occupied(_) => Err(ViewError::Twice("a key of request.userInfo.extra")),
        Entry::Vacant(place) => {
            place.insert(ExtraValue { items: strings(cursor, EXTRA)? });
            Ok(())
        }
    })?;
    Ok(extra)
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
        out.json(user.username());
    }
    if !user.uid().is_empty() {
        key(out, "\"uid\":");
        out.json(user.uid());
    }
    if !user.groups.is_empty() {
        key(out, "\"groups\":");
        out.json(&user.groups);
    }
    if !user.extra.is_empty() {
        key(out, "\"extra\":");
        let mut separator = "{";
        for (name, values) in &user.extra {
            out.own(separator);
            out.json(name);
            out.own(":");
            out.json(&values.items);
            separator = ",";
        }
        out.own("}");
    }
    out.own(if separator == "{" { "{}" } else { "}" });
}
