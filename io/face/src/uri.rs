use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6, ToSocketAddrs};
use std::path::PathBuf;
use std::str::FromStr;

/// The port of NDN over UDP and TCP.
pub(crate) const NDN_PORT: u16 = 6363;
/// Longest name of a network device, in bytes.
pub(crate) const DEVICE_NAME_MAX: usize = libc::IFNAMSIZ - 1;
/// The port of hICN over UDP.
const HICN_PORT: u16 = 9695;
/// The port of NDN over WebSocket.
const WEBSOCKET_PORT: u16 = 9696;
/// The port of HTTPS.
const TLS_PORT: u16 = 443;
/// Longest host name and path of a `wss://` URI, in bytes.
const TLS_HOST_MAX: usize = 253;
const TLS_PATH_MAX: usize = 1024;

/// A face's address in NFD's canonical form: numeric, with a port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum FaceUri {
    /// `udp4://192.0.2.1:6363` or `udp6://[2001:db8::1]:6363`.
    Udp(SocketAddr),
    /// `hicn+udp4://192.0.2.1:9695` or `hicn+udp6://[2001:db8::1]:9695`: hICN packets over UDP.
    HicnUdp(SocketAddr),
    /// `hicn+tun://hicn0` or `hicn+tun://hicn0/2001:db8:1::`: hICN packets as plain IPv6, over a
    /// TUN device.
    HicnTun {
        /// Network interface.
        device: String,
        /// The first 64 bits of the source of Interests; the others are 0. Without it, the face
        /// can only answer Interests.
        locator: Option<Ipv6Addr>,
    },
    /// `tcp4://192.0.2.1:6363` or `tcp6://[2001:db8::1]:6363`.
    Tcp(SocketAddr),
    /// `unix:///run/nfd/nfd.sock`; an absolute path.
    Unix(PathBuf),
    /// `fd://20`: the accepted end of a Unix connection.
    Fd(u64),
    /// `internal://`
    Internal,
    /// `contentstore://`
    ContentStore,
    /// `null://`
    Null,
    /// `dev://eth0`
    Device(String),
    /// `ether://[02:00:00:00:00:01]`
    Ether([u8; 6]),
    /// `udp4+dev://eth0:56363`, or `udp6+dev://eth0:56363` if `is_v6`: the local end of a multicast
    /// face.
    UdpDevice {
        is_v6: bool,
        /// Network interface.
        device: String,
        port: u16,
    },
    /// `ws://0.0.0.0:9696`: a listener for WebSockets, or a router that is reached over one.
    WebSocket(SocketAddr),
    /// `wsclient://192.0.2.1:50000`: the remote end of an accepted WebSocket.
    WebSocketClient(SocketAddr),
    /// `wss://router.example:443/ws/`: like [`Self::WebSocket`], over TLS. The name stays in the
    /// address, because the router's certificate must be valid for it.
    WebSocketTls {
        /// A host name in lower case, or an IP address.
        host: String,
        port: u16,
        /// Empty, or from the `/` on.
        path: String,
    },
}

/// Why a text is not a canonical FaceUri.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FaceUriError {
    /// There is no `scheme://`, or what follows it is invalid.
    #[error("`{0}` is not a face URI such as udp4://192.0.2.1:6363 or unix:///run/nfd/nfd.sock")]
    Malformed(String),
    /// A known scheme, but with a host name, without a port, or with the wrong address family.
    #[error("`{0}` is not canonical: give a numeric address of the scheme's family and a port")]
    NotCanonical(String),
    /// Unknown scheme.
    #[error(
        "face URI scheme `{0}` is not supported; write udp, tcp, ws, wss or unix, or for hICN \
         packets hicn+udp or hicn+tun"
    )]
    UnsupportedScheme(String),
    /// An address that no peer can have, such as 0.0.0.0, or port 0.
    #[error("`{0}` is the address of no peer; give that of one, such as udp://192.0.2.1:6363")]
    NoPeer(String),
    /// The address of a group.
    #[error(
        "`{0}` is a multicast address, which leads to no single peer; the router has faces of its \
         own for groups, see `multicast` in [faces]"
    )]
    Multicast(String),
    /// A link-local address without its interface.
    #[error(
        "`{uri}` has a link-local address, which needs its interface: write [{ip}%INTERFACE], such \
         as [{ip}%eth0]"
    )]
    NoZone { uri: String, ip: Ipv6Addr },
    /// This host does not have the address's interface.
    #[error("this host has no interface `{0}`; `ip link` lists those that it has")]
    Zone(String),
    /// Not the name of a network device.
    #[error("`{0}` names no network device; write hicn+tun://DEVICE, such as hicn+tun://hicn0")]
    Device(String),
    /// A locator that is not a prefix of 64 bits, or not routed.
    #[error(
        "`{0}` has no usable locator; write a global IPv6 address with 64 zero bits at its end, \
         such as hicn+tun://hicn0/2001:db8:1::"
    )]
    Locator(String),
    /// Not the address of a WebSocket over TLS.
    #[error(
        "`{0}` is no address for TLS; write wss://HOST or wss://HOST:PORT/PATH, with the name in \
         the certificate of HOST"
    )]
    Tls(String),
    /// A port above 65535.
    #[error("`{0}` has a port beyond 65535")]
    Port(String),
}

/// Why an address could not be resolved.
#[derive(Debug, thiserror::Error)]
pub enum ResolveError {
    /// The text is not a FaceUri, even in its short forms.
    #[error(transparent)]
    Uri(#[from] FaceUriError),
    /// The host name has no address of the required family.
    #[error("host `{host}` has no {family} address")]
    NoAddress {
        host: String,
        /// `IPv4`, `IPv6` or `IP`.
        family: &'static str,
    },
    /// The name service failed.
    #[error(
        "cannot look up host `{host}`: {source}; check how it is written and whether this machine \
         can resolve names, or give its address"
    )]
    Lookup { host: String, source: io::Error },
}

#[derive(Copy, Clone, PartialEq, Eq)]
enum Family {
    Any,
    V4,
    V6,
}

impl Family {
    fn has(self, address: IpAddr) -> bool {
        match self {
            Self::Any => true,
            Self::V4 => address.is_ipv4(),
            Self::V6 => address.is_ipv6(),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Any => "IP",
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        }
    }
}

/// A scheme whose address is an IP address and a port.
struct IpScheme {
    family: Family,
    make: fn(SocketAddr) -> FaceUri,
    port_default: u16,
}

fn ip_scheme(scheme: &str) -> Option<IpScheme> {
    let (family, make, port_default): (_, fn(SocketAddr) -> FaceUri, _) = match scheme {
        "udp" => (Family::Any, FaceUri::Udp, NDN_PORT),
        "udp4" => (Family::V4, FaceUri::Udp, NDN_PORT),
        "udp6" => (Family::V6, FaceUri::Udp, NDN_PORT),
        "hicn+udp" => (Family::Any, FaceUri::HicnUdp, HICN_PORT),
        "hicn+udp4" => (Family::V4, FaceUri::HicnUdp, HICN_PORT),
        "hicn+udp6" => (Family::V6, FaceUri::HicnUdp, HICN_PORT),
        "tcp" => (Family::Any, FaceUri::Tcp, NDN_PORT),
        "tcp4" => (Family::V4, FaceUri::Tcp, NDN_PORT),
        "tcp6" => (Family::V6, FaceUri::Tcp, NDN_PORT),
        "ws" => (Family::Any, FaceUri::WebSocket, WEBSOCKET_PORT),
        "wsclient" => (Family::Any, FaceUri::WebSocketClient, WEBSOCKET_PORT),
        _ => return None,
    };
    Some(IpScheme { family, make, port_default })
}

impl FaceUri {
    /// `udp4`, `tcp6`, `unix` and so on.
    pub fn scheme(&self) -> &'static str {
        match self {
            Self::Udp(address) if address.is_ipv4() => "udp4",
            Self::Udp(_) => "udp6",
            Self::HicnUdp(address) if address.is_ipv4() => "hicn+udp4",
            Self::HicnUdp(_) => "hicn+udp6",
            Self::HicnTun { .. } => "hicn+tun",
            Self::Tcp(address) if address.is_ipv4() => "tcp4",
            Self::Tcp(_) => "tcp6",
            Self::Unix(_) => "unix",
            Self::Fd(_) => "fd",
            Self::Internal => "internal",
            Self::ContentStore => "contentstore",
            Self::Null => "null",
            Self::Device(_) => "dev",
            Self::Ether(_) => "ether",
            Self::UdpDevice { is_v6: false, .. } => "udp4+dev",
            Self::UdpDevice { is_v6: true, .. } => "udp6+dev",
            Self::WebSocket(_) => "ws",
            Self::WebSocketClient(_) => "wsclient",
            Self::WebSocketTls { .. } => "wss",
        }
    }

    /// The local end of a listener for WebSockets over TLS.
    pub(crate) fn websocket_tls(address: SocketAddr) -> Self {
        let (host, port) = (address.ip().to_string(), address.port());
        Self::WebSocketTls { host, port, path: String::new() }
    }

    /// The IP address and port, if the URI has them.
    pub fn socket_addr(&self) -> Option<SocketAddr> {
        match self {
            Self::Udp(address)
            | Self::HicnUdp(address)
            | Self::Tcp(address)
            | Self::WebSocket(address)
            | Self::WebSocketClient(address) => Some(*address),
            Self::WebSocketTls { host, port, .. } => {
                host.parse().ok().map(|ip| SocketAddr::new(ip, *port))
            }
            _ => None,
        }
    }

    /// Whether this is the address of a group: the remote end of a multicast face.
    pub fn is_multicast(&self) -> bool {
        self.socket_addr().is_some_and(|address| address.ip().is_multicast())
    }

    /// Checks that the address can be a peer's: not 0.0.0.0, not port 0, no group, and no
    /// link-local address without its interface. `text` is shown in the error.
    pub fn check_peer(&self, text: &str) -> Result<(), FaceUriError> {
        match self.socket_addr() {
            Some(address) if address.ip().is_unspecified() || address.port() == 0 => {
                Err(FaceUriError::NoPeer(text.to_owned()))
            }
            None if matches!(self, Self::WebSocketTls { port: 0, .. }) => {
                Err(FaceUriError::NoPeer(text.to_owned()))
            }
            Some(_) if self.is_multicast() => Err(FaceUriError::Multicast(text.to_owned())),
            Some(address) if lacks_zone(&address) => {
                let IpAddr::V6(ip) = address.ip() else { unreachable!("only IPv6 has zones") };
                Err(FaceUriError::NoZone { uri: text.to_owned(), ip })
            }
            _ => Ok(()),
        }
    }

    /// Checks whether [`Self::resolve`] could accept `text`, without using the name service.
    pub fn check(text: &str) -> Result<(), FaceUriError> {
        parse_lenient(text).map(|_| ())
    }

    /// Parses what users type: `udp://router.example`, `tcp4://10.0.0.1`, any canonical form. A
    /// missing port is the scheme's default. Uses the first of several addresses. Blocks for name
    /// resolution.
    ///
    /// # Errors
    /// [`ResolveError`]: the text is malformed, or the host has no address.
    pub fn resolve(text: &str) -> Result<Self, ResolveError> {
        Self::resolve_all(text).map(|mut all| all.swap_remove(0))
    }

    /// Like [`FaceUri::resolve`], with all addresses of a host, at least one: in the system's order
    /// (RFC 6724), alternating between address families (RFC 8305, section 4).
    pub fn resolve_all(text: &str) -> Result<Vec<Self>, ResolveError> {
        let (ip, host, port) = match parse_lenient(text)? {
            ParsedText::Whole(uri) => return Ok(vec![uri]),
            ParsedText::Host { ip, host, port } => (ip, host, port),
        };
        let found = (host, port)
            .to_socket_addrs()
            .map_err(|source| ResolveError::Lookup { host: host.to_owned(), source })?;
        let mut addresses: Vec<SocketAddr> = Vec::new();
        for address in found {
            let is_wanted = ip.family.has(address.ip()) && !lacks_zone(&address);
            if is_wanted && !addresses.contains(&address) {
                addresses.push(address);
            }
        }
        // Alternate between the address families. Begin with the family that the system prefers.
        let is_first_ipv6 = addresses.first().is_some_and(SocketAddr::is_ipv6);
        let of_family =
            |is_ipv6| addresses.iter().copied().filter(move |address| address.is_ipv6() == is_ipv6);
        let (mut first, mut second) = (of_family(is_first_ipv6), of_family(!is_first_ipv6));
        let mut all = Vec::with_capacity(addresses.len());
        while all.len() < addresses.len() {
            all.extend(first.next().into_iter().chain(second.next()).map(ip.make));
        }
        if all.is_empty() {
            let (host, family) = (host.to_owned(), ip.family.name());
            return Err(ResolveError::NoAddress { host, family });
        }
        Ok(all)
    }

    /// Whether `text` contains a host name, whose addresses may change.
    pub fn has_host_name(text: &str) -> bool {
        matches!(parse_lenient(text), Ok(ParsedText::Host { .. }))
    }
}

/// A parsed text. Host names stay as they are, because only the name service can resolve them.
enum ParsedText<'a> {
    Whole(FaceUri),
    Host { ip: IpScheme, host: &'a str, port: u16 },
}

fn parse_lenient(text: &str) -> Result<ParsedText<'_>, FaceUriError> {
    let (scheme, rest) = split_scheme(text)?;
    if scheme == "wss" {
        let uri = parse_tls(rest, text, Some(TLS_PORT))?;
        uri.check_peer(text)?;
        return Ok(ParsedText::Whole(uri));
    }
    let Some(ip) = ip_scheme(scheme) else {
        return text.parse().map(ParsedText::Whole);
    };
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    let (host, port) = split_host_port(rest, text)?;
    let port = port.unwrap_or(ip.port_default);
    let Some(address) = parse_address(host, port)? else {
        return Ok(ParsedText::Host { ip, host, port });
    };
    if !ip.family.has(address.ip()) {
        return Err(FaceUriError::NotCanonical(text.to_owned()));
    }
    let uri = (ip.make)(address);
    uri.check_peer(text)?;
    Ok(ParsedText::Whole(uri))
}

impl FromStr for FaceUri {
    type Err = FaceUriError;

    /// Accepts only canonical forms, as faces/create requires.
    fn from_str(text: &str) -> Result<Self, FaceUriError> {
        let (scheme, rest) = split_scheme(text)?;
        let malformed = || FaceUriError::Malformed(text.to_owned());
        if let Some(ip) = ip_scheme(scheme) {
            let not_canonical = || FaceUriError::NotCanonical(text.to_owned());
            let (host, port) = split_host_port(rest, text)?;
            let address = match port {
                Some(port) => parse_address(host, port)?,
                None => None,
            };
            let address = address.filter(|address| ip.family.has(address.ip()));
            // `udp` and others do not say which address family, so they are not canonical.
            let is_exact = !matches!(scheme, "udp" | "hicn+udp" | "tcp");
            return address.filter(|_| is_exact).map(ip.make).ok_or_else(not_canonical);
        }
        match scheme {
            "unix" if rest.len() > 1 && rest.starts_with('/') => Ok(Self::Unix(rest.into())),
            "fd" => rest.parse().map(Self::Fd).map_err(|_| malformed()),
            "internal" if rest.is_empty() => Ok(Self::Internal),
            "contentstore" if rest.is_empty() => Ok(Self::ContentStore),
            "null" if rest.is_empty() => Ok(Self::Null),
            "dev" if !rest.is_empty() => Ok(Self::Device(rest.to_owned())),
            "hicn+tun" => parse_tun(rest, text),
            "wss" => parse_tls(rest, text, None),
            "ether" => parse_ether(rest).map(Self::Ether).ok_or_else(malformed),
            "udp4+dev" | "udp6+dev" => {
                let (device, port) = rest.rsplit_once(':').ok_or_else(malformed)?;
                let port = port.parse().map_err(|_| malformed())?;
                if device.is_empty() {
                    return Err(malformed());
                }
                Ok(Self::UdpDevice { is_v6: scheme == "udp6+dev", device: device.to_owned(), port })
            }
            "unix" | "internal" | "contentstore" | "null" | "dev" => Err(malformed()),
            other => Err(FaceUriError::UnsupportedScheme(other.to_owned())),
        }
    }
}

impl fmt::Display for FaceUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://", self.scheme())?;
        match self {
            Self::Udp(address)
            | Self::HicnUdp(address)
            | Self::Tcp(address)
            | Self::WebSocket(address)
            | Self::WebSocketClient(address) => write_address(f, address),
            Self::Unix(path) => write!(f, "{}", path.display()),
            Self::Fd(number) => write!(f, "{number}"),
            Self::Internal | Self::ContentStore | Self::Null => Ok(()),
            Self::Device(device) | Self::HicnTun { device, locator: None } => f.write_str(device),
            Self::HicnTun { device, locator: Some(locator) } => write!(f, "{device}/{locator}"),
            Self::WebSocketTls { host, port, path } if host.contains(':') => {
                write!(f, "[{host}]:{port}{path}")
            }
            Self::WebSocketTls { host, port, path } => write!(f, "{host}:{port}{path}"),
            Self::Ether([a, b, c, d, e, g]) => {
                write!(f, "[{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}]")
            }
            Self::UdpDevice { device, port, .. } => write!(f, "{device}:{port}"),
        }
    }
}

fn write_address(f: &mut fmt::Formatter<'_>, address: &SocketAddr) -> fmt::Result {
    match address {
        SocketAddr::V6(v6) if v6.scope_id() != 0 => {
            write!(f, "[{}%", v6.ip())?;
            match nix::net::if_::if_indextoname(v6.scope_id()) {
                Ok(name) => write!(f, "{}", name.to_string_lossy())?,
                Err(_) => write!(f, "{}", v6.scope_id())?,
            }
            write!(f, "]:{}", v6.port())
        }
        _ => write!(f, "{address}"),
    }
}

fn split_scheme(text: &str) -> Result<(&str, &str), FaceUriError> {
    text.split_once("://")
        .filter(|(scheme, _)| !scheme.is_empty())
        .ok_or_else(|| FaceUriError::Malformed(text.to_owned()))
}

/// Splits `host`, `host:port`, `[v6]` or `[v6]:port`. A bare IPv6 address is rejected: its port
/// would be ambiguous.
fn split_host_port<'a>(text: &'a str, uri: &str) -> Result<(&'a str, Option<u16>), FaceUriError> {
    let malformed = || FaceUriError::Malformed(uri.to_owned());
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, after) = rest.split_once(']').ok_or_else(malformed)?;
            match after {
                "" => (host, None),
                _ => (host, Some(after.strip_prefix(':').ok_or_else(malformed)?)),
            }
        }
        None => match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    if host.is_empty() || host.contains(['/', '[', ']', '@', ' ']) {
        return Err(malformed());
    }
    let Some(digits) = port else { return Ok((host, None)) };
    if digits.is_empty() || !digits.bytes().all(|octet| octet.is_ascii_digit()) {
        return Err(malformed());
    }
    let port = digits.parse().map_err(|_| FaceUriError::Port(uri.to_owned()))?;
    Ok((host, Some(port)))
}

/// Parses an IP address. `None` if `host` is a host name.
fn parse_address(host: &str, port: u16) -> Result<Option<SocketAddr>, FaceUriError> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(Some(SocketAddr::new(address, port)));
    }
    let Some((address, zone)) = host.split_once('%') else { return Ok(None) };
    let Ok(address) = address.parse::<Ipv6Addr>() else { return Ok(None) };
    let scope = interface_index(zone).ok_or_else(|| FaceUriError::Zone(zone.to_owned()))?;
    Ok(Some(SocketAddrV6::new(address, port, 0, scope).into()))
}

/// Finds the interface of a zone, by its name or index. `%25` is the URI encoding of `%` (RFC
/// 6874), so `%251` is interface 251 if it exists, else interface 1.
fn interface_index(zone: &str) -> Option<u32> {
    let index_of = |name: &str| {
        let by_name = nix::net::if_::if_nametoindex(name).ok();
        let number = || name.parse().ok().filter(|&index| index != 0);
        by_name.or_else(number)
    };
    let is_there = |index: &u32| nix::net::if_::if_indextoname(*index).is_ok();
    let encoded = zone.strip_prefix("25").filter(|name| !name.is_empty());
    index_of(zone).filter(is_there).or_else(|| encoded.and_then(index_of).filter(is_there))
}

/// Whether a link-local address lacks its interface.
fn lacks_zone(address: &SocketAddr) -> bool {
    matches!(address, SocketAddr::V6(v6) if v6.ip().is_unicast_link_local() && v6.scope_id() == 0)
}

/// Parses `HOST`, `HOST:PORT` or `HOST:PORT/PATH` of the URI `uri`. The path `/` is the same as
/// none.
fn parse_tls(text: &str, uri: &str, port_default: Option<u16>) -> Result<FaceUri, FaceUriError> {
    let (authority, path) = text.split_at(text.find('/').unwrap_or(text.len()));
    let (host, port) = split_host_port(authority, uri)?;
    let port = port.or(port_default).ok_or_else(|| FaceUriError::NotCanonical(uri.to_owned()))?;
    let host = match host.parse::<IpAddr>() {
        Ok(ip) => ip.to_string(),
        Err(_) => host.to_ascii_lowercase(),
    };
    let is_name = |octet: u8| octet.is_ascii_alphanumeric() || b"-._:".contains(&octet);
    let is_path = |octet: u8| octet.is_ascii_graphic() && octet != b'#';
    if host.len() > TLS_HOST_MAX
        || path.len() > TLS_PATH_MAX
        || !host.bytes().all(is_name)
        || !path.bytes().all(is_path)
    {
        return Err(FaceUriError::Tls(uri.to_owned()));
    }
    let path = if path == "/" { String::new() } else { path.to_owned() };
    Ok(FaceUri::WebSocketTls { host, port, path })
}

/// Parses `DEVICE` or `DEVICE/LOCATOR` of the URI `uri`.
fn parse_tun(text: &str, uri: &str) -> Result<FaceUri, FaceUriError> {
    let (device, locator) = match text.split_once('/') {
        Some((device, locator)) => (device, Some(locator)),
        None => (text, None),
    };
    // The rules of the kernel, with printable characters only.
    let is_device = (1..=DEVICE_NAME_MAX).contains(&device.len())
        && device.bytes().all(|octet| octet.is_ascii_graphic() && !b"/:%".contains(&octet))
        && !matches!(device, "." | "..");
    if !is_device {
        return Err(FaceUriError::Device(uri.to_owned()));
    }
    let parse_locator = |text: &str| {
        let locator = text.parse().ok().filter(is_locator);
        locator.ok_or_else(|| FaceUriError::Locator(uri.to_owned()))
    };
    let locator = locator.map(parse_locator).transpose()?;
    Ok(FaceUri::HicnTun { device: device.to_owned(), locator })
}

/// Whether packets from and to addresses with these first 64 bits can be routed.
fn is_locator(address: &Ipv6Addr) -> bool {
    let is_routed = !address.is_unspecified()
        && !address.is_loopback()
        && !address.is_multicast()
        && !address.is_unicast_link_local();
    is_routed && address.to_bits() as u64 == 0
}

fn parse_ether(text: &str) -> Option<[u8; 6]> {
    let text = text.strip_prefix('[')?.strip_suffix(']')?;
    let mut octets = [0; 6];
    let mut parts = text.split(':');
    for octet in &mut octets {
        let part = parts.next().filter(|part| part.len() == 2)?;
        *octet = u8::from_str_radix(part, 16).ok()?;
    }
    parts.next().is_none().then_some(octets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn canonical_forms_come_back_unchanged() {
        for text in [
            "udp4://192.0.2.1:6363",
            "udp6://[2001:db8::1]:6363",
            "tcp4://192.0.2.1:6363",
            "tcp6://[2001:db8::1]:6363",
            "udp6://[fe80::1%lo]:6363",
            "unix:///run/nfd/nfd.sock",
            "fd://20",
            "dev://eth0",
            "ether://[02:00:00:00:00:01]",
            "udp4+dev://eth0:56363",
            "hicn+udp4://192.0.2.1:9695",
            "hicn+udp6://[2001:db8::1]:9695",
            "hicn+tun://hicn0",
            "hicn+tun://hicn0/2001:db8:1::",
            "udp6+dev://eth0:56363",
            "ws://0.0.0.0:9696",
            "wsclient://192.0.2.1:50000",
            "wss://router.example:443",
            "wss://router.example:8443/ws/?a=b",
            "wss://[2001:db8::1]:443/x",
            "internal://",
            "contentstore://",
            "null://",
        ] {
            let uri: FaceUri = text.parse().unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(uri.to_string(), text);
            match FaceUri::resolve(text) {
                Ok(resolved) => assert_eq!(resolved, uri),
                Err(_) => assert!(uri.check_peer(text).is_err(), "{text}"),
            }
        }
    }

    #[test]
    fn rejects_non_canonical_uris() {
        for text in [
            "udp://192.0.2.1:6363",
            "udp4://router.example:6363",
            "hicn+udp://192.0.2.1:9695",
            "udp4://192.0.2.1",
            "udp4://[2001:db8::1]:6363",
            "tcp6://192.0.2.1:6363",
        ] {
            assert_eq!(
                text.parse::<FaceUri>(),
                Err(FaceUriError::NotCanonical(text.to_owned())),
                "{text}"
            );
        }
        for text in [
            "",
            "udp4",
            "://x",
            "udp4://",
            "udp4://1.2.3.4:",
            "udp4://1.2.3.4:x",
            "unix://relative",
            "unix://",
            "unix:///",
            "fd://x",
            "internal://x",
            "ether://02:00",
            "udp4+dev://:1",
            "udp6://[::1",
            "udp4://a b:1",
        ] {
            assert_eq!(
                text.parse::<FaceUri>(),
                Err(FaceUriError::Malformed(text.to_owned())),
                "{text}"
            );
        }
        assert_eq!(
            "http3://x".parse::<FaceUri>(),
            Err(FaceUriError::UnsupportedScheme("http3".to_owned()))
        );
    }

    #[test]
    fn rejects_non_peers_without_lookup() {
        let refusal = |text| FaceUri::check(text).expect_err(text);
        assert_eq!(refusal("udp://x:99999"), FaceUriError::Port("udp://x:99999".into()));
        for text in ["udp://0.0.0.0", "tcp://[::]:6363", "udp4://192.0.2.1:0"] {
            assert_eq!(refusal(text), FaceUriError::NoPeer(text.into()));
            assert!(FaceUri::resolve(text).is_err());
        }
        for text in ["udp4://224.0.23.170:56363", "udp://[ff02::1234%lo]:56363", "tcp://224.0.0.1"]
        {
            assert_eq!(refusal(text), FaceUriError::Multicast(text.into()));
        }
        assert_eq!(FaceUri::check("udp://no-such-host.invalid"), Ok(()));
        assert_eq!(
            "udp4://1.2.3.4:99999".parse::<FaceUri>(),
            Err(FaceUriError::Port("udp4://1.2.3.4:99999".into()))
        );
    }

    #[test]
    fn tls_peers_keep_their_names() {
        let uri = |text| FaceUri::resolve(text).unwrap().to_string();
        assert_eq!(uri("wss://Router.Example"), "wss://router.example:443");
        assert_eq!(uri("wss://router.example:443/"), "wss://router.example:443");
        assert_eq!(uri("wss://router.example/WS"), "wss://router.example:443/WS");
        assert_eq!(uri("wss://[2001:DB8::1]/a"), "wss://[2001:db8::1]:443/a");
        assert!(!FaceUri::has_host_name("wss://router.example"));
        let text = "wss://router.example/ws";
        assert_eq!(text.parse::<FaceUri>(), Err(FaceUriError::NotCanonical(text.into())));
        for text in ["wss://0.0.0.0", "wss://router.example:0/x", "wss://[::]"] {
            assert_eq!(FaceUri::check(text), Err(FaceUriError::NoPeer(text.into())));
        }
        let long = "x".repeat(300);
        for text in [
            "wss://a b/".to_owned(),
            "wss://a/#x".to_owned(),
            "wss://a/ x".to_owned(),
            "wss://ä/".to_owned(),
            "wss://user@a/".to_owned(),
            "wss:///x".to_owned(),
            format!("wss://{long}"),
            format!("wss://a/{}", long.repeat(4)),
        ] {
            assert!(FaceUri::check(&text).is_err(), "{text}");
        }
    }

    #[test]
    fn tun_devices_have_names_and_locators() {
        let uri: FaceUri = "hicn+tun://hicn0/2001:DB8:1::0".parse().unwrap();
        assert_eq!(uri.to_string(), "hicn+tun://hicn0/2001:db8:1::");
        assert_eq!(FaceUri::resolve("hicn+tun://hicn0/2001:db8:1::0").unwrap(), uri);
        for device in ["", "/", "a:b", "a b", "%d", ".", "..", "name-of-16-bytes"] {
            let text = format!("hicn+tun://{device}");
            assert_eq!(text.parse::<FaceUri>(), Err(FaceUriError::Device(text)));
        }
        for locator in ["", "::", "::1", "fe80::", "ff02::", "2001:db8::1", "2001:db8::/64", "x"] {
            let text = format!("hicn+tun://hicn0/{locator}");
            assert_eq!(FaceUri::check(&text), Err(FaceUriError::Locator(text)));
        }
    }

    #[test]
    fn link_local_addresses_have_an_interface() {
        for text in ["udp://[fe80::1%lo]", "udp6://[fe80::1%25lo]:6363", "udp://[fe80::1%1]"] {
            assert_eq!(FaceUri::resolve(text).unwrap().to_string(), "udp6://[fe80::1%lo]:6363");
        }
        for text in ["udp://[fe80::1]", "tcp6://[fe80::1]:6363"] {
            let error = FaceUri::check(text).unwrap_err();
            assert!(error.to_string().contains("[fe80::1%eth0]"), "{error}");
        }
        let canonical: FaceUri = "udp6://[fe80::1]:6363".parse().unwrap();
        assert!(canonical.check_peer("udp6://[fe80::1]:6363").is_err());
        for text in ["udp://[fe80::1%nosuch0]", "udp6://[fe80::1%25nosuch0]:6363"] {
            assert!(matches!(FaceUri::check(text), Err(FaceUriError::Zone(_))), "{text}");
        }
    }

    #[test]
    fn resolves_short_forms() {
        let uri = |text| FaceUri::resolve(text).unwrap().to_string();
        assert_eq!(uri("udp://192.0.2.1"), "udp4://192.0.2.1:6363");
        assert_eq!(uri("hicn+udp://[2001:db8::1]"), "hicn+udp6://[2001:db8::1]:9695");
        assert_eq!(uri("tcp://[::1]:7000"), "tcp6://[::1]:7000");
        assert_eq!(uri("udp4://localhost"), "udp4://127.0.0.1:6363");
        assert_eq!(uri("tcp4://localhost:1234/"), "tcp4://127.0.0.1:1234");
        assert!(FaceUri::resolve("udp6://192.0.2.1").is_err());
        assert!(matches!(
            FaceUri::resolve("udp://no-such-host.invalid"),
            Err(ResolveError::Lookup { .. })
        ));
    }
}
