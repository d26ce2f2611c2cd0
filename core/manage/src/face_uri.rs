//! Checks whether FaceUris in commands are canonical, as text. The socket types are in another
//! crate.

use core::net::{Ipv4Addr, Ipv6Addr};

/// The form of a FaceUri in a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UriForm {
    /// A scheme with numeric address and port in their canonical form, or a scheme without them.
    Canonical,
    /// A FaceUri with a host name, without a port, or in another form.
    NonCanonical,
    /// Not a FaceUri.
    Malformed,
}

/// The scheme of a FaceUri, empty when there is none.
pub(crate) fn scheme(uri: &str) -> &str {
    uri.split_once("://").map_or("", |(scheme, _)| scheme)
}

/// Whether `uri` is canonical (NFD, FaceUri): `udp4://192.0.2.1:6363`,
/// `tcp6://[2001:db8::1]:6363`, `unix:///path`, `dev://eth0`, `ether://[02:00:00:00:00:01]`.
pub(crate) fn form(uri: &str) -> UriForm {
    let Some((scheme, rest)) = uri.split_once("://") else { return UriForm::Malformed };
    let is_scheme = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
    if scheme.is_empty() || !scheme.chars().all(is_scheme) || rest.contains(char::is_whitespace) {
        return UriForm::Malformed;
    }
    let is_canonical = match scheme {
        "udp4" | "hicn+udp4" | "tcp4" => is_v4_and_port(rest),
        "udp6" | "hicn+udp6" | "tcp6" => is_v6_and_port(rest),
        "ws" => is_v4_and_port(rest) || is_v6_and_port(rest),
        "udp" | "hicn+udp" | "tcp" => false,
        "unix" => rest.starts_with('/'),
        "fd" => rest.parse::<u32>().is_ok(),
        "dev" => !rest.is_empty() && !rest.contains('/'),
        "ether" => rest.starts_with('[') && rest.ends_with(']'),
        "internal" | "contentstore" | "null" => rest.is_empty(),
        _ => !rest.is_empty(),
    };
    if is_canonical { UriForm::Canonical } else { UriForm::NonCanonical }
}

/// Whether the address of a canonical FaceUri is an IPv4 or IPv6 multicast address.
pub(crate) fn is_multicast(uri: &str) -> bool {
    address(uri, |v4| v4.is_multicast(), |v6| v6.is_multicast())
}

/// Whether the address of a canonical FaceUri is 255.255.255.255.
pub(crate) fn is_broadcast(uri: &str) -> bool {
    address(uri, |v4| v4.is_broadcast(), |_| false)
}

/// Whether the address of a canonical FaceUri is an IPv4 or IPv6 loopback address.
pub(crate) fn is_loopback(uri: &str) -> bool {
    address(uri, |v4| v4.is_loopback(), |v6| v6.is_loopback())
}

fn address(uri: &str, v4: impl Fn(Ipv4Addr) -> bool, v6: impl Fn(Ipv6Addr) -> bool) -> bool {
    let Some((_, rest)) = uri.split_once("://") else { return false };
    let Some((host, _)) = host_and_port(rest) else { return false };
    let without_brackets = host.trim_start_matches('[').trim_end_matches(']');
    host.parse().is_ok_and(v4) || without_zone(without_brackets).parse().is_ok_and(v6)
}

fn is_v4_and_port(rest: &str) -> bool {
    host_and_port(rest)
        .is_some_and(|(host, port)| is_port(port) && host.parse::<Ipv4Addr>().is_ok())
}

fn is_v6_and_port(rest: &str) -> bool {
    rest.strip_prefix('[')
        .and_then(|rest| rest.split_once("]:"))
        .is_some_and(|(host, port)| is_port(port) && is_canonical_v6(host))
}

fn host_and_port(rest: &str) -> Option<(&str, &str)> {
    rest.rsplit_once(':')
}

fn is_port(port: &str) -> bool {
    port.parse::<u16>().is_ok_and(|number| number != 0) && !port.starts_with(['0', '+'])
}

fn without_zone(host: &str) -> &str {
    host.split_once('%').map_or(host, |(address, _)| address)
}

fn is_canonical_v6(host: &str) -> bool {
    // The canonical form is what the standard library prints (RFC 5952).
    let address = without_zone(host);
    address.parse::<Ipv6Addr>().is_ok_and(|parsed| alloc::format!("{parsed}") == address)
}
