//! Identity: identity of one client among many.

use std::{
    net::{IpAddr, Ipv6Addr},
    sync::Arc,
};

/// Identity of a client among others.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Identity {
    /// The name in a certificate that was let in.
    Certificate(Arc<str>),
    /// A client on this machine over TCP: any address of the loopback network is anybody's here.
    Loopback,
    /// An address; of IPv6 its network of 64 bits, since whoever has one address of it usually has all.
    Address(IpAddr),
    /// The user at the other end of a unix socket.
    User(u32),
    /// A unix socket whose other end is unknown.
    Unix,
}

impl Identity {
    /// A peer by its address.
    pub(crate) fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            address if address.is_loopback() => Self::Loopback,
            IpAddr::V6(v6) => Self::Address(Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX)).into()),
            v4 => Self::Address(v4),
        }
    }

    /// The same as one text: no two clients have it in common.
    pub(crate) fn to_key(&self) -> Arc<str> {
        match self {
            Self::Certificate(name) => format!("certificate {name}").into(),
            Self::Address(address) => format!("address {address}").into(),
            Self::User(user) => format!("user {user}").into(),
            Self::Loopback => "loopback".into(),
            Self::Unix => "unix".into(),
        }
    }

    /// Is a client of that kind known before its first verdict? It has shown a certificate, or is on this machine.
    pub(crate) fn is_known(&self) -> bool {
        !matches!(self, Self::Address(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_distinguished_by_what_they_cannot_choose_freely() {
        let of = |address: &str| Identity::of(address.parse().unwrap());
        assert_eq!(of("127.0.0.1"), of("127.9.9.9"));
        assert_eq!(of("::1"), of("::ffff:127.0.0.1"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
        assert_ne!(of("192.0.2.2"), of("192.0.2.1"));
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:0:0:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert!(of("::1").is_known() && !of("192.0.2.1").is_known());
    }
}
