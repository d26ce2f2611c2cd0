//! `[faces]`: the options of all faces, and the addresses that the router listens on.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use serde::de::{Error as _, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};
use weir_base::units::{Size, Time};
use weir_face::UdpFormat;
use weir_runtime::{
    CertificateFiles, DisciplineConfig, FaceDefaults, Listener, MarkingPolicy, MulticastConfig,
    PitTokenChoice, ShapingConfig, UnixAccess,
};
use weir_wire::PACKET_SIZE_MAX;

use super::link_kinds;
use super::multicast::MulticastChoice;
use super::text::{deserialize_text, nonzero_time, positive, to_time};
use super::unix::{GroupText, ModeText, UnixChoice};

/// NDN's port for UDP and TCP.
const DEFAULT_PORT: u16 = 6363;
/// hICN's port for UDP.
const HICN_PORT: u16 = 9695;
/// NDN's port for WebSocket.
const WEBSOCKET_PORT: u16 = 9696;
/// The port of HTTPS, for WebSocket over TLS.
const TLS_PORT: u16 = 443;

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(expecting = "a table", deny_unknown_fields, default)]
pub(crate) struct FacesSection {
    pub(crate) unix: UnixChoice,
    pub(crate) unix_mode: ModeText,
    pub(crate) unix_group: GroupText,
    #[serde(deserialize_with = "listen_addresses")]
    pub(crate) udp: Vec<SocketAddr>,
    #[serde(deserialize_with = "listen_addresses")]
    pub(crate) tcp: Vec<SocketAddr>,
    #[serde(deserialize_with = "hicn_addresses")]
    pub(crate) hicn_udp: Vec<SocketAddr>,
    #[serde(deserialize_with = "websocket_addresses")]
    pub(crate) websocket: Vec<SocketAddr>,
    #[serde(deserialize_with = "tls_addresses")]
    pub(crate) websocket_tls: Vec<SocketAddr>,
    pub(crate) tls_certificate: Option<PathBuf>,
    pub(crate) tls_key: Option<PathBuf>,
    pub(crate) tls_ca: Option<PathBuf>,
    pub(crate) multicast: MulticastChoice,
    #[serde(deserialize_with = "positive")]
    pub(crate) faces_max: usize,
    #[serde(deserialize_with = "positive")]
    pub(crate) faces_per_host_max: usize,
    #[serde(deserialize_with = "positive")]
    pub(crate) faces_per_network_max: usize,
    #[serde(deserialize_with = "queue_size")]
    pub(crate) queue_size_max: Size,
    pub(crate) udp_mtu: MtuChoice,
    pub(crate) congestion_marking: bool,
    pub(crate) marking: MarkingText,
    pub(crate) mark_threshold: Size,
    #[serde(deserialize_with = "mark_interval")]
    pub(crate) mark_interval: Time,
    pub(crate) reliability: bool,
    pub(crate) runs: bool,
    pub(crate) pit_token: PitTokenWord,
    pub(crate) shared_memory: bool,
    pub(crate) discipline: Option<DisciplineText>,
    pub(crate) shaping: ShapingText,
    #[serde(deserialize_with = "idle_timeout")]
    pub(crate) idle_timeout: Time,
    #[serde(deserialize_with = "stall_timeout")]
    pub(crate) stall_timeout: Time,
}

fn default_addresses() -> Vec<SocketAddr> {
    vec![
        SocketAddr::from((std::net::Ipv4Addr::UNSPECIFIED, DEFAULT_PORT)),
        SocketAddr::from((std::net::Ipv6Addr::UNSPECIFIED, DEFAULT_PORT)),
    ]
}

impl Default for FacesSection {
    fn default() -> Self {
        let defaults = FaceDefaults::default();
        Self {
            unix: UnixChoice::Auto,
            unix_mode: ModeText(UnixAccess::default().mode),
            unix_group: GroupText::default(),
            udp: default_addresses(),
            tcp: default_addresses(),
            hicn_udp: Vec::new(),
            websocket: Vec::new(),
            websocket_tls: Vec::new(),
            tls_certificate: None,
            tls_key: None,
            tls_ca: None,
            multicast: MulticastChoice::Auto,
            faces_max: 16384,
            faces_per_host_max: 1024,
            faces_per_network_max: 4096,
            queue_size_max: Size { bytes: defaults.queue_bytes_max as u64 },
            udp_mtu: MtuChoice(defaults.udp_mtu),
            congestion_marking: defaults.congestion_marking,
            marking: MarkingText(defaults.marking),
            mark_threshold: Size { bytes: defaults.mark_threshold_bytes },
            mark_interval: to_time(defaults.mark_interval),
            reliability: defaults.reliability,
            runs: defaults.runs,
            pit_token: PitTokenWord::Short,
            shared_memory: defaults.shared_memory,
            discipline: defaults.discipline.map(DisciplineText),
            shaping: ShapingText(defaults.shaping),
            idle_timeout: to_time(defaults.idle_timeout),
            stall_timeout: to_time(defaults.stall_timeout),
        }
    }
}

impl FacesSection {
    pub(super) fn listeners(&self) -> anyhow::Result<Vec<Listener>> {
        let mut listeners = Vec::new();
        match &self.unix {
            UnixChoice::None => {}
            UnixChoice::Path(path) => listeners.push(Listener::Unix(path.clone())),
            UnixChoice::Auto => listeners.push(Listener::UnixDefault),
        }
        // On a machine without IPv6, an IPv6 address is ignored unless only IPv6 is configured.
        let required = |addresses: &[SocketAddr], address: &SocketAddr| {
            address.is_ipv4() || addresses.iter().all(SocketAddr::is_ipv6)
        };
        for (format, addresses) in [(UdpFormat::Ndn, &self.udp), (UdpFormat::Hicn, &self.hicn_udp)]
        {
            for &address in addresses {
                let required = required(addresses, &address);
                listeners.push(Listener::Udp { format, address, required });
            }
        }
        for &address in &self.tcp {
            let required = required(&self.tcp, &address);
            listeners.push(Listener::Tcp { address, required });
        }
        for &address in &self.websocket {
            let required = required(&self.websocket, &address);
            listeners.push(Listener::WebSocket { address, required });
        }
        if let Some(files) = self.certificate_files()? {
            for &address in &self.websocket_tls {
                let (required, files) = (required(&self.websocket_tls, &address), files.clone());
                listeners.push(Listener::WebSocketTls { address, required, files });
            }
        }
        Ok(listeners)
    }

    /// The files of `websocket_tls`, if it has addresses.
    fn certificate_files(&self) -> anyhow::Result<Option<CertificateFiles>> {
        match (&self.tls_certificate, &self.tls_key) {
            (Some(certificate), Some(key)) if !self.websocket_tls.is_empty() => {
                Ok(Some(CertificateFiles { certificate: certificate.clone(), key: key.clone() }))
            }
            (None, None) if self.websocket_tls.is_empty() => Ok(None),
            _ if self.websocket_tls.is_empty() => anyhow::bail!(
                "[faces] has `tls_certificate` or `tls_key`, but nothing listens for TLS; write \
                 `websocket_tls = [\"0.0.0.0:443\"]`, or remove them"
            ),
            _ => anyhow::bail!(
                "[faces] `websocket_tls` needs both `tls_certificate` and `tls_key`; write the \
                 paths of two PEM files"
            ),
        }
    }

    pub(super) fn multicast(&self) -> MulticastConfig {
        self.multicast.resolve(&self.udp)
    }

    pub(super) fn unix_access(&self) -> anyhow::Result<UnixAccess> {
        let group = self.unix_group.resolve()?;
        Ok(UnixAccess { mode: self.unix_mode.0, group })
    }

    pub(super) fn defaults(&self) -> FaceDefaults {
        FaceDefaults {
            udp_mtu: self.udp_mtu.0,
            queue_bytes_max: usize::try_from(self.queue_size_max.bytes).unwrap_or(usize::MAX),
            congestion_marking: self.congestion_marking,
            marking: self.marking.0.clone(),
            mark_threshold_bytes: self.mark_threshold.bytes,
            mark_interval: Duration::from_nanos(self.mark_interval.ns),
            reliability: self.reliability,
            runs: self.runs,
            pit_token: self.pit_token.into(),
            shared_memory: self.shared_memory,
            discipline: self.discipline.as_ref().map(|text| text.0.clone()),
            shaping: self.shaping.0,
            idle_timeout: Duration::from_nanos(self.idle_timeout.ns),
            stall_timeout: Duration::from_nanos(self.stall_timeout.ns),
            tls_ca: self.tls_ca.clone(),
        }
    }
}

/// Which PIT tokens the router sends to other hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum PitTokenWord {
    Off,
    Short,
    Long,
}

impl From<PitTokenWord> for PitTokenChoice {
    fn from(word: PitTokenWord) -> Self {
        match word {
            PitTokenWord::Off => Self::Off,
            PitTokenWord::Short => Self::Short,
            PitTokenWord::Long => Self::Long,
        }
    }
}

fn queue_size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Size, D::Error> {
    let size = Size::deserialize(deserializer)?;
    if size.bytes >= PACKET_SIZE_MAX as u64 {
        return Ok(size);
    }
    Err(D::Error::custom(format!(
        "a queue of {} bytes is too small for a packet; use at least {PACKET_SIZE_MAX}, such as \
         \"4MiB\"",
        size.bytes
    )))
}

fn mark_interval<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Time, D::Error> {
    let remedy = "an interval of 0 would mark every packet; use a time such as \"100ms\", or \
                  disable marking with `congestion_marking = false`";
    nonzero_time(Time::deserialize(deserializer)?, remedy)
}

fn idle_timeout<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Time, D::Error> {
    let remedy = "a timeout of 0 would close every face immediately; use a time such as \"600s\"";
    nonzero_time(Time::deserialize(deserializer)?, remedy)
}

fn stall_timeout<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Time, D::Error> {
    let remedy = "a timeout of 0 would close every busy connection; use a time such as \"60s\"";
    nonzero_time(Time::deserialize(deserializer)?, remedy)
}

fn listen_addresses<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<SocketAddr>, D::Error> {
    addresses(deserializer, DEFAULT_PORT)
}

fn hicn_addresses<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<SocketAddr>, D::Error> {
    addresses(deserializer, HICN_PORT)
}

fn websocket_addresses<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<SocketAddr>, D::Error> {
    addresses(deserializer, WEBSOCKET_PORT)
}

fn tls_addresses<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<SocketAddr>, D::Error> {
    addresses(deserializer, TLS_PORT)
}

fn addresses<'de, D: Deserializer<'de>>(
    deserializer: D,
    port_default: u16,
) -> Result<Vec<SocketAddr>, D::Error> {
    let texts = Vec::<String>::deserialize(deserializer)?;
    let parse = |text: &String| parse_address(text, port_default).map_err(D::Error::custom);
    texts.iter().map(parse).collect()
}

const MTU_MIN: usize = 64;
const MTU_MAX: usize = 8800;

fn check_mtu<E: serde::de::Error>(mtu: u64) -> Result<usize, E> {
    match usize::try_from(mtu) {
        Ok(mtu) if (MTU_MIN..=MTU_MAX).contains(&mtu) => Ok(mtu),
        _ => Err(E::custom(format!("an MTU of {mtu} is invalid; use {MTU_MIN} to {MTU_MAX}"))),
    }
}

pub(super) fn face_mtu<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<usize>, D::Error> {
    u64::deserialize(deserializer).and_then(check_mtu).map(Some)
}

/// Deserializes text or an integer. The text describes the expected value.
struct TextOrInteger(&'static str);

enum Scalar {
    Text(String),
    Integer(u64),
}

impl Visitor<'_> for TextOrInteger {
    type Value = Scalar;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Scalar, E> {
        Ok(Scalar::Text(text.to_owned()))
    }

    fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<Scalar, E> {
        u64::try_from(number)
            .map(Scalar::Integer)
            .map_err(|_| E::invalid_value(Unexpected::Signed(number), &self))
    }

    fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<Scalar, E> {
        Ok(Scalar::Integer(number))
    }
}

/// An MTU in bytes, or "auto" (`None`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MtuChoice(pub(crate) Option<usize>);

impl<'de> Deserialize<'de> for MtuChoice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match deserializer.deserialize_any(TextOrInteger("an MTU in bytes, or \"auto\""))? {
            Scalar::Text(text) if text == "auto" => Ok(Self(None)),
            Scalar::Text(text) => Err(D::Error::custom(format!(
                "`{text}` is not an MTU; write a number of bytes, or \"auto\""
            ))),
            Scalar::Integer(mtu) => check_mtu(mtu).map(|mtu| Self(Some(mtu))),
        }
    }
}

/// A marking policy: its name, then its options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MarkingText(pub(crate) MarkingPolicy);

impl FromStr for MarkingText {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        link_kinds::read_marking(text).map(Self)
    }
}

/// A queue discipline: its name, then its options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DisciplineText(pub(crate) DisciplineConfig);

impl FromStr for DisciplineText {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        link_kinds::read_discipline(text).map(Self)
    }
}

/// A shaper of Interests: its name, then its options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ShapingText(pub(crate) ShapingConfig);

impl FromStr for ShapingText {
    type Err = <ShapingConfig as FromStr>::Err;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self)
    }
}

deserialize_text!(UnixChoice, ModeText, MarkingText, DisciplineText, ShapingText);

/// Parses a listening address for UDP and TCP: `IP:PORT`, `IP` or `:PORT`.
pub(crate) fn parse_listen_address(text: &str) -> Result<SocketAddr, String> {
    parse_address(text, DEFAULT_PORT)
}

/// Parses a listening address for WebSockets: `IP:PORT`, `IP` or `:PORT`.
pub(crate) fn parse_websocket_address(text: &str) -> Result<SocketAddr, String> {
    parse_address(text, WEBSOCKET_PORT)
}

fn parse_address(text: &str, port_default: u16) -> Result<SocketAddr, String> {
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Ok(address);
    }
    if let Ok(ip) = text.parse::<IpAddr>() {
        return Ok(SocketAddr::new(ip, port_default));
    }
    // A port alone means all IPv4 addresses.
    if let Some(Ok(port)) = text.strip_prefix(':').map(str::parse::<u16>) {
        return Ok(SocketAddr::from((std::net::Ipv4Addr::UNSPECIFIED, port)));
    }
    Err(format!("`{text}` is not an address; write IP:PORT, such as 0.0.0.0:{port_default}"))
}
