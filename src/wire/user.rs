//! Who asks: `userInfo` in JSON, to protobuf's message of it and back.

use std::collections::{BTreeMap, btree_map::Entry};

use super::{
    inbound::ViewError,
    json::{Cursor, ReadError},
    pb::k8s::io::api::authentication::v1::{ExtraValue, UserInfo},
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
            _ => cursor.skip().map(drop).map_err(Into::into),
        }?;
    }
    user.groups = groups.unwrap_or_default();
    user.extra = extra.unwrap_or_default();
    Ok(Some(user))
}

/// Sets a field that may be there once.
pub(super) fn once<T>(place: &mut Option<T>, value: T, field: &'static str) -> Result<(), ViewError> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(ViewError::Twice(field)),
    }
}

fn text(cursor: &mut Cursor<'_>, field: &'static str) -> Result<String, ReadError> {
    Ok(cursor.string(field)?.map_or_else(String::new, |text| text.plain().into_owned()))
}

fn strings(cursor: &mut Cursor<'_>, field: &'static str) -> Result<Vec<String>, ReadError> {
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
