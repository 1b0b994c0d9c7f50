//! Access checks, and what is decided on them.

use std::rc::Rc;

use super::{Cost, Row, none, operators::text};
use crate::{
    authorization::{AccessCheck, AccessTarget, Authorizer, ResourceAccess, Stage, Subject},
    fault::{Fault, Stop},
    formats::{is_dns_label, is_dns_subdomain},
    value::Value,
};

/// The longest text of an access check. No name, path or selector that an apiserver knows is longer.
const LONGEST: usize = 16 << 10;

const OF_RESOURCE: &[&str] = &["kubernetes.authorization.ResourceCheck|string->kubernetes.authorization.ResourceCheck"];

pub(super) const ROWS: &[Row] = &[
    Row(
        "path",
        &["kubernetes.authorization.Authorizer|string->kubernetes.authorization.PathCheck"],
        Cost::One,
        |args, _| {
            let path = said(args, 1)?;
            let authorizer = at(args, |stage| matches!(stage, Stage::User))?;
            match path.trim().is_empty() {
                true => Err(Fault::error("path must not be empty")),
                false => Ok(stage(authorizer, Stage::Path(path))),
            }
        },
    ),
    Row(
        "group",
        &["kubernetes.authorization.Authorizer|string->kubernetes.authorization.GroupCheck"],
        Cost::One,
        |args, _| {
            let group = said(args, 1)?;
            Ok(stage(at(args, |stage| matches!(stage, Stage::User))?, Stage::Group(group)))
        },
    ),
    Row(
        "serviceAccount",
        &["kubernetes.authorization.Authorizer|string,string->kubernetes.authorization.Authorizer"],
        Cost::One,
        |args, _| {
            let (namespace, name) = (said(args, 1)?, said(args, 2)?);
            let authorizer = at(args, |stage| matches!(stage, Stage::User))?;
            if !is_dns_subdomain(&name) {
                return Err(Fault::error("Invalid service account name"));
            }
            if !is_dns_label(&namespace) {
                return Err(Fault::error("Invalid service account namespace"));
            }
            let subject = Subject::ServiceAccount { namespace, name };
            Ok(Value::Authorizer(Rc::new(Authorizer { subject, ..authorizer.clone() })))
        },
    ),
    Row(
        "resource",
        &["kubernetes.authorization.GroupCheck|string->kubernetes.authorization.ResourceCheck"],
        Cost::One,
        |args, _| {
            let resource = said(args, 1)?;
            let Some(Value::Authorizer(authorizer)) = args.first() else { return none() };
            let Stage::Group(group) = &authorizer.stage else { return none() };
            if resource.trim().is_empty() {
                return Err(Fault::error("resource must not be empty"));
            }
            let access = ResourceAccess { group: group.clone(), resource, ..ResourceAccess::default() };
            Ok(stage(authorizer, Stage::Resource(access)))
        },
    ),
    Row("subresource", OF_RESOURCE, Cost::One, |args, _| resource(args, |access| &mut access.sub_resource)),
    Row("namespace", OF_RESOURCE, Cost::One, |args, _| resource(args, |access| &mut access.namespace)),
    Row("name", OF_RESOURCE, Cost::One, |args, _| resource(args, |access| &mut access.name)),
    Row("fieldSelector", OF_RESOURCE, Cost::Selector, |args, _| resource(args, |access| &mut access.field_selector)),
    Row("labelSelector", OF_RESOURCE, Cost::Selector, |args, _| resource(args, |access| &mut access.label_selector)),
    Row(
        "check",
        &[
            "kubernetes.authorization.PathCheck|string->kubernetes.authorization.Decision",
            "kubernetes.authorization.ResourceCheck|string->kubernetes.authorization.Decision",
        ],
        Cost::AccessCheck,
        |args, _| check(args),
    ),
    Row("allowed", &["kubernetes.authorization.Decision|->bool"], Cost::One, |args, _| match args {
        [Value::Decision(decision)] => Ok(Value::Bool(decision.allowed)),
        _ => none(),
    }),
    Row("reason", &["kubernetes.authorization.Decision|->string"], Cost::One, |args, _| match args {
        [Value::Decision(decision)] => Ok(Value::lent(&decision.reason)),
        _ => none(),
    }),
    Row("errored", &["kubernetes.authorization.Decision|->bool"], Cost::One, |args, _| match args {
        [Value::Decision(decision)] => Ok(Value::Bool(decision.error.is_some())),
        _ => none(),
    }),
    Row("error", &["kubernetes.authorization.Decision|->string"], Cost::One, |args, _| match args {
        [Value::Decision(decision)] => Ok(Value::lent(decision.error.as_deref().unwrap_or_default())),
        _ => none(),
    }),
];

/// A text of a check.
fn said(args: &[Value<'_>], place: usize) -> Result<Box<str>, Fault> {
    let text = text(args.get(place))?;
    match text.len() > LONGEST {
        true => Err(Fault::error("a part of the access check is longer than 16 KiB")),
        false => Ok(text.into()),
    }
}

/// Authorizer that a function is called on, where its stage is the wanted one.
fn at<'v, 'a>(args: &'v [Value<'a>], wanted: fn(&Stage) -> bool) -> Result<&'v Authorizer<'a>, Fault> {
    match args.first() {
        Some(Value::Authorizer(authorizer)) if wanted(&authorizer.stage) => Ok(authorizer),
        _ => Err(Fault::no_such_overload()),
    }
}

fn stage<'a>(authorizer: &Authorizer<'a>, stage: Stage) -> Value<'a> {
    let subject = authorizer.subject.clone();
    Value::Authorizer(Rc::new(Authorizer { decisions: authorizer.decisions, subject, stage }))
}

fn resource<'a>(args: &[Value<'a>], field: fn(&mut ResourceAccess) -> &mut Box<str>) -> Result<Value<'a>, Fault> {
    let text = said(args, 1)?;
    let Some(Value::Authorizer(authorizer)) = args.first() else { return none() };
    let Stage::Resource(access) = &authorizer.stage else { return none() };
    let mut access = access.clone();
    *field(&mut access) = text;
    Ok(stage(authorizer, Stage::Resource(access)))
}

fn check<'a>(args: &[Value<'a>]) -> Result<Value<'a>, Fault> {
    let verb = said(args, 1)?;
    let Some(Value::Authorizer(authorizer)) = args.first() else { return none() };
    let target = match &authorizer.stage {
        Stage::Path(path) => AccessTarget::Path(path.clone()),
        Stage::Resource(access) => AccessTarget::Resource(access.clone()),
        Stage::User | Stage::Group(_) => return none(),
    };
    let check = AccessCheck { subject: authorizer.subject.clone(), verb, target };
    match authorizer.decisions.get(&check) {
        Some(Ok(decision)) => Ok(Value::Decision(decision)),
        Some(Err(why)) => Err(Fault::error(format!("the authorizer cannot be asked: {why}"))),
        None => Err(Fault::Stop(Stop::Undecided(Box::new(check)))),
    }
}
