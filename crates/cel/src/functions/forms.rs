//! Texts of a known form: URLs, semantic versions, named formats.

use std::rc::Rc;

use super::{Cost, Row, none, operators::text};
use crate::{
    fault::Fault,
    formats::FORMATS,
    meter::Meter,
    semver::Semver,
    url::Url,
    value::{Map, Value},
};

const OF_URL: &[&str] = &["kubernetes.URL|->string"];
const OF_VERSION: &[&str] = &["kubernetes.Semver|->int"];
const NAMED: &[&str] = &["->kubernetes.NamedFormat"];

pub(super) const ROWS: &[Row] = &[
    Row("url", &["string->kubernetes.URL"], Cost::First(0.1), |args, meter| {
        let text = text(args.first())?;
        meter.make(text.len())?;
        let url = Url::parse(text).ok_or_else(|| Fault::error("URL parse error during conversion from string"))?;
        Ok(Value::Url(Rc::new(url)))
    }),
    Row("isURL", &["string->bool"], Cost::One, |args, meter| {
        let text = text(args.first())?;
        meter.make(text.len())?;
        Ok(Value::Bool(Url::is_url(text)))
    }),
    Row("getScheme", OF_URL, Cost::One, |args, meter| of_url(args, meter, |url| &url.scheme)),
    Row("getHost", OF_URL, Cost::One, |args, meter| of_url(args, meter, |url| &url.host)),
    Row("getHostname", OF_URL, Cost::One, |args, meter| of_url(args, meter, Url::hostname)),
    Row("getPort", OF_URL, Cost::One, |args, meter| of_url(args, meter, Url::port)),
    Row("getEscapedPath", OF_URL, Cost::One, |args, meter| of_url(args, meter, |url| &url.escaped_path)),
    Row("getQuery", &["kubernetes.URL|->map(string, list(string))"], Cost::One, query),
    Row("semver", &["string->kubernetes.Semver", "string,bool->kubernetes.Semver"], Cost::First(0.1), |args, meter| {
        let version = version(args, meter)?.ok_or_else(|| Fault::error("the text is no semantic version"))?;
        Ok(Value::Semver(Rc::new(version)))
    }),
    Row("isSemver", &["string->bool", "string,bool->bool"], Cost::First(0.1), |args, meter| {
        version(args, meter).map(|version| Value::Bool(version.is_some()))
    }),
    Row("major", OF_VERSION, Cost::One, |args, _| of_version(args, 0)),
    Row("minor", OF_VERSION, Cost::One, |args, _| of_version(args, 1)),
    Row("patch", OF_VERSION, Cost::One, |args, _| of_version(args, 2)),
    Row("format.named", &["string->optional(kubernetes.NamedFormat)"], Cost::One, |args, _| {
        let name = text(args.first())?;
        Ok(Value::optional(FORMATS.iter().find(|format| format.name == name).map(Value::Format)))
    }),
    Row("format.dns1123Label", NAMED, Cost::One, |_, _| Ok(Value::Format(&FORMATS[0]))),
    Row("format.dns1123Subdomain", NAMED, Cost::One, |_, _| Ok(Value::Format(&FORMATS[1]))),
    Row("format.dns1035Label", NAMED, Cost::One, |_, _| Ok(Value::Format(&FORMATS[2]))),
    Row("format.qualifiedName", NAMED, Cost::One, |_, _| Ok(Value::Format(&FORMATS[3]))),
    Row("format.dns1123LabelPrefix", NAMED, Cost::One, |_, _| Ok(Value::Format(&FORMATS[4]))),
    Row("format.dns1123SubdomainPrefix", NAMED, Cost::One, |_, _| Ok(Value::Format(&FORMATS[5]))),
    Row("format.dns1035LabelPrefix", NAMED, Cost::One, |_, _| Ok(Value::Format(&FORMATS[6]))),
    Row("format.labelValue", NAMED, Cost::One, |_, _| Ok(Value::Format(&FORMATS[7]))),
    Row("format.uri", NAMED, Cost::One, |_, _| Ok(Value::Format(&FORMATS[8]))),
    Row("format.uuid", NAMED, Cost::One, |_, _| Ok(Value::Format(&FORMATS[9]))),
    Row("format.byte", NAMED, Cost::One, |_, _| Ok(Value::Format(&FORMATS[10]))),
    Row("format.date", NAMED, Cost::One, |_, _| Ok(Value::Format(&FORMATS[11]))),
    Row("format.datetime", NAMED, Cost::One, |_, _| Ok(Value::Format(&FORMATS[12]))),
    Row(
        "validate",
        &["kubernetes.NamedFormat|string->optional(list(string))"],
        Cost::Format,
        |args, meter| match args {
            [Value::Format(format), Value::String(text)] => {
                meter.make(text.as_str().len())?;
                let problems = format.problems(text.as_str());
                let room = meter.list(problems.len())?;
                let problems: Vec<_> = problems.into_iter().map(Value::made).collect();
                Ok(Value::optional((!problems.is_empty()).then(|| Value::list(problems, room))))
            }
            _ => none(),
        },
    ),
];

fn of_url<'a>(args: &[Value<'a>], meter: &Meter<'_>, part: fn(&Url) -> &str) -> Result<Value<'a>, Fault> {
    let [Value::Url(url)] = args else { return none() };
    let part = part(url);
    meter.make(part.len())?;
    Ok(Value::made(part))
}

fn query<'a>(args: &[Value<'a>], meter: &Meter<'_>) -> Result<Value<'a>, Fault> {
    let [Value::Url(url)] = args else { return none() };
    meter.make(url.text().len())?;
    let (mut query, parameters) = (Map::default(), url.query());
    query.reserve(parameters.len(), meter)?;
    for (key, values) in parameters {
        let room = meter.list(values.len())?;
        query.set(Value::made(key), Value::list(values.into_iter().map(Value::made).collect(), room));
    }
    Ok(Value::Map(Rc::new(query)))
}

fn version(args: &[Value<'_>], meter: &Meter<'_>) -> Result<Option<Semver>, Fault> {
    let text = text(args.first())?;
    meter.make(text.len())?;
    match args.get(1) {
        None | Some(Value::Bool(false)) => Ok(Semver::parse(text)),
        Some(Value::Bool(true)) => Ok(Semver::parse_normalized(text)),
        Some(_) => Err(Fault::no_such_overload()),
    }
}

fn of_version<'a>(args: &[Value<'a>], place: usize) -> Result<Value<'a>, Fault> {
    match args {
        // As Go converts them.
        [Value::Semver(version)] => Ok(Value::Int(version.numbers[place] as i64)),
        _ => none(),
    }
}
