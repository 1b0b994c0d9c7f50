//! Kubernetes' own libraries: quantities, addresses, networks, URLs, semantic versions, named formats, authorization.

use std::{
    cmp::Ordering,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    rc::Rc,
};

use crate::{
    authorization::{AccessCheck, AccessTarget, Authorizer, ResourceAccess, Stage, Subject},
    formats::{FORMATS, is_dns_label, is_dns_subdomain},
    functions::function::{Cost, Row, none, text},
    meter::{Fault, Meter, Stop},
    numbers::{Quantity, Semver},
    url::Url,
    value::{Map, Value},
};

const TWO: &[&str] = &["kubernetes.Quantity|kubernetes.Quantity->bool", "kubernetes.Semver|kubernetes.Semver->bool"];
const COMPARED: &[&str] = &["kubernetes.Quantity|kubernetes.Quantity->int", "kubernetes.Semver|kubernetes.Semver->int"];
const SUMS: &[&str] =
    &["kubernetes.Quantity|kubernetes.Quantity->kubernetes.Quantity", "kubernetes.Quantity|int->kubernetes.Quantity"];

pub(super) const ROWS: &[Row] = &[
    Row("quantity", &["string->kubernetes.Quantity"], Cost::First(0.1), |args, _| {
        let parsed = Quantity::parse(text(args.first())?);
        let wrong = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
        Ok(Value::Quantity(Rc::new(parsed.ok_or_else(|| Fault::error(wrong))?)))
    }),
    Row("isQuantity", &["string->bool"], Cost::First(0.1), |args, _| {
        Ok(Value::Bool(Quantity::parse(text(args.first())?).is_some()))
    }),
    Row("sign", &["kubernetes.Quantity->int"], Cost::One, |args, _| match args {
        [Value::Quantity(quantity)] => Ok(Value::Int(quantity.sign())),
        _ => none(),
    }),
    Row("isGreaterThan", TWO, Cost::One, |args, meter| {
        compared(args, meter).map(|order| Value::Bool(order == Ordering::Greater))
    }),
    Row("isLessThan", TWO, Cost::One, |args, meter| {
        compared(args, meter).map(|order| Value::Bool(order == Ordering::Less))
    }),
    Row("compareTo", COMPARED, Cost::One, |args, meter| compared(args, meter).map(|order| Value::Int(order as i64))),
    Row("asApproximateFloat", &["kubernetes.Quantity|->double"], Cost::One, |args, _| match args {
        [Value::Quantity(quantity)] => Ok(Value::Double(quantity.double())),
        _ => none(),
    }),
    Row("asInteger", &["kubernetes.Quantity|->int"], Cost::One, |args, _| match args {
        [Value::Quantity(quantity)] => {
            quantity.integer().map(Value::Int).ok_or_else(|| Fault::error("cannot convert value to integer"))
        }
        _ => none(),
    }),
    Row("isInteger", &["kubernetes.Quantity|->bool"], Cost::One, |args, _| match args {
        [Value::Quantity(quantity)] => Ok(Value::Bool(quantity.integer().is_some())),
        _ => none(),
    }),
    Row("add", SUMS, Cost::One, |args, meter| sum(args, meter, Quantity::plus)),
    Row("sub", SUMS, Cost::One, |args, meter| sum(args, meter, Quantity::minus)),
    Row("ip", &["string->net.IP", "net.CIDR|->net.IP"], Cost::First(0.1), |args, _| match args {
        [Value::Cidr(ip, _)] => Ok(Value::Ip(*ip)),
        _ => address(text(args.first())?).map(Value::Ip),
    }),
    Row("isIP", &["string->bool"], Cost::First(0.1), |args, _| Ok(Value::Bool(address(text(args.first())?).is_ok()))),
    Row("ip.isCanonical", &["string->bool"], Cost::First(0.2), |args, _| {
        let text = text(args.first())?;
        Ok(Value::Bool(address(text)?.to_string() == text))
    }),
    Row("family", &["net.IP|->int"], Cost::One, |args, _| match args {
        [Value::Ip(ip)] => Ok(Value::Int(if ip.is_ipv4() { 4 } else { 6 })),
        _ => none(),
    }),
    Row("isUnspecified", OF_IP, Cost::One, |args, _| is(args, IpAddr::is_unspecified)),
    Row("isLoopback", OF_IP, Cost::One, |args, _| is(args, IpAddr::is_loopback)),
    Row("isLinkLocalMulticast", OF_IP, Cost::One, |args, _| is(args, is_link_local_multicast)),
    Row("isLinkLocalUnicast", OF_IP, Cost::One, |args, _| is(args, is_link_local_unicast)),
    Row("isGlobalUnicast", OF_IP, Cost::One, |args, _| is(args, is_global_unicast)),
    Row("cidr", &["string->net.CIDR"], Cost::First(0.1), |args, _| {
        network(text(args.first())?).map(|(ip, bits)| Value::Cidr(ip, bits))
    }),
    Row("isCIDR", &["string->bool"], Cost::First(0.1), |args, _| Ok(Value::Bool(network(text(args.first())?).is_ok()))),
    Row("prefixLength", &["net.CIDR|->int"], Cost::One, |args, _| match args {
        [Value::Cidr(_, bits)] => Ok(Value::Int(i64::from(*bits))),
        _ => none(),
    }),
    Row("masked", &["net.CIDR|->net.CIDR"], Cost::One, |args, _| match args {
        [Value::Cidr(ip, bits)] => Ok(Value::Cidr(masked(*ip, *bits), *bits)),
        _ => none(),
    }),
    Row("isMask", &["net.CIDR|->bool"], Cost::One, |args, _| match args {
        [Value::Cidr(ip, bits)] => Ok(Value::Bool(masked(*ip, *bits) == *ip)),
        _ => none(),
    }),
    Row("containsIP", &["net.CIDR|string->bool", "net.CIDR|net.IP->bool"], Cost::InNetwork, |args, _| {
        let [Value::Cidr(ip, bits), other] = args else { return none() };
        let other = match other {
            Value::Ip(other) => *other,
            other => address(text(Some(other))?)?,
        };
        Ok(Value::Bool(ip.is_ipv4() == other.is_ipv4() && masked(*ip, *bits) == masked(other, *bits)))
    }),
    Row("containsCIDR", &["net.CIDR|string->bool", "net.CIDR|net.CIDR->bool"], Cost::NetworkInNetwork, |args, _| {
        let [Value::Cidr(ip, bits), other] = args else { return none() };
        let (other, length) = match other {
            Value::Cidr(other, length) => (*other, *length),
            other => network(text(Some(other))?)?,
        };
        let inside = ip.is_ipv4() == other.is_ipv4() && masked(*ip, *bits) == masked(other, *bits);
        Ok(Value::Bool(inside && *bits <= length))
    }),
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
    Row(
        "path",
        &["kubernetes.authorization.Authorizer|string->kubernetes.authorization.PathCheck"],
        Cost::One,
        |args, _| {
            let path = check_text(args, 1)?;
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
            let group = check_text(args, 1)?;
            Ok(stage(at(args, |stage| matches!(stage, Stage::User))?, Stage::Group(group)))
        },
    ),
    Row(
        "serviceAccount",
        &["kubernetes.authorization.Authorizer|string,string->kubernetes.authorization.Authorizer"],
        Cost::One,
        |args, _| {
            let (namespace, name) = (check_text(args, 1)?, check_text(args, 2)?);
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
            let resource = check_text(args, 1)?;
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

fn compared(args: &[Value<'_>], meter: &Meter<'_>) -> Result<Ordering, Fault> {
    match args {
        [Value::Quantity(a), Value::Quantity(b)] => Ok(a.compare(b)),
        [Value::Semver(a), Value::Semver(b)] => {
            meter.read(a.len().min(b.len()))?;
            Ok(a.compare(b))
        }
        _ => Err(Fault::no_such_overload()),
    }
}

fn sum<'a>(
    args: &[Value<'a>],
    _: &Meter<'_>,
    of: fn(&Quantity, &Quantity) -> Option<Quantity>,
) -> Result<Value<'a>, Fault> {
    let sum = match args {
        [Value::Quantity(a), Value::Quantity(b)] => of(a, b),
        [Value::Quantity(a), Value::Int(b)] => of(a, &Quantity::whole(*b)),
        _ => return none(),
    };
    Ok(Value::Quantity(Rc::new(sum.ok_or_else(|| Fault::error("the quantity has too many digits"))?)))
}

const OF_IP: &[&str] = &["net.IP|->bool"];

fn is<'a>(args: &[Value<'a>], holds: fn(&IpAddr) -> bool) -> Result<Value<'a>, Fault> {
    match args {
        [Value::Ip(ip)] => Ok(Value::Bool(holds(ip))),
        _ => none(),
    }
}

fn address(text: &str) -> Result<IpAddr, Fault> {
    let ip: IpAddr = text.parse().map_err(|_| Fault::error("IP Address parse error during conversion from string"))?;
    if is_mapped(&ip) {
        return Err(Fault::error("IPv4-mapped IPv6 addresses are not allowed"));
    }
    Ok(ip)
}

fn is_mapped(ip: &IpAddr) -> bool {
    matches!(ip, IpAddr::V6(ip) if ip.to_ipv4_mapped().is_some())
}

fn network(text: &str) -> Result<(IpAddr, u8), Fault> {
    let wrong = || Fault::error("network address parse error during conversion from string");
    let (ip, bits) = text.rsplit_once('/').ok_or_else(wrong)?;
    let ip: IpAddr = ip.parse().map_err(|_| wrong())?;
    // At least one digit, no sign, no leading zeros.
    let plain = !bits.is_empty() && bits.bytes().all(|b| b.is_ascii_digit()) && (bits == "0" || !bits.starts_with('0'));
    let most = if ip.is_ipv4() { 32 } else { 128 };
    let bits: u8 = bits.parse().ok().filter(|bits| plain && *bits <= most).ok_or_else(wrong)?;
    if is_mapped(&ip) {
        return Err(Fault::error("IPv4-mapped IPv6 addresses are not allowed"));
    }
    Ok((ip, bits))
}

fn masked(ip: IpAddr, bits: u8) -> IpAddr {
    match ip {
        IpAddr::V4(ip) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(bits.min(32))).unwrap_or(0);
            Ipv4Addr::from_bits(ip.to_bits() & mask).into()
        }
        IpAddr::V6(ip) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(bits.min(128))).unwrap_or(0);
            Ipv6Addr::from_bits(ip.to_bits() & mask).into()
        }
    }
}

fn is_link_local_multicast(ip: &IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.octets()[..3] == [224, 0, 0],
        IpAddr::V6(ip) => ip.segments()[0] & 0xff0f == 0xff02,
    }
}

fn is_link_local_unicast(ip: &IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}

fn is_global_unicast(ip: &IpAddr) -> bool {
    let broadcast = matches!(ip, IpAddr::V4(ip) if ip.is_broadcast());
    !broadcast && !ip.is_unspecified() && !ip.is_loopback() && !ip.is_multicast() && !is_link_local_unicast(ip)
}

const OF_URL: &[&str] = &["kubernetes.URL|->string"];
const OF_VERSION: &[&str] = &["kubernetes.Semver|->int"];
const NAMED: &[&str] = &["->kubernetes.NamedFormat"];

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
        // Wraps, as Go's conversion does.
        [Value::Semver(version)] => Ok(Value::Int(version.numbers[place] as i64)),
        _ => none(),
    }
}

/// Maximum length of a text in an access check. No name, path or selector that an apiserver knows is longer.
const MAX_CHECK_TEXT_BYTES: usize = 16 << 10;

const OF_RESOURCE: &[&str] = &["kubernetes.authorization.ResourceCheck|string->kubernetes.authorization.ResourceCheck"];

/// Returns a text argument of an access check.
fn check_text(args: &[Value<'_>], place: usize) -> Result<Box<str>, Fault> {
    let text = text(args.get(place))?;
    match text.len() > MAX_CHECK_TEXT_BYTES {
        true => Err(Fault::error("a part of the access check is longer than 16 KiB")),
        false => Ok(text.into()),
    }
}

/// Returns the authorizer that a function is called on, if it is at a wanted stage.
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
    let text = check_text(args, 1)?;
    let Some(Value::Authorizer(authorizer)) = args.first() else { return none() };
    let Stage::Resource(access) = &authorizer.stage else { return none() };
    let mut access = access.clone();
    *field(&mut access) = text;
    Ok(stage(authorizer, Stage::Resource(access)))
}

fn check<'a>(args: &[Value<'a>]) -> Result<Value<'a>, Fault> {
    let verb = check_text(args, 1)?;
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
