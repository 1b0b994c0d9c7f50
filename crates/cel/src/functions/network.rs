//! Addresses and networks.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{Cost, Row, none, operators::text};
use crate::{fault::Fault, value::Value};

const OF_IP: &[&str] = &["net.IP|->bool"];

pub(super) const ROWS: &[Row] = &[
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
];

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
    // One digit at least, no sign, no zeros before it.
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
