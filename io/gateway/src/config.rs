//! The configuration of a gateway.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Deserializer};
use weir_base::units::{Size, Time};
use weir_http::TlsFiles;
use weir_transport::NameMapping;
use weir_wire::Name;

const fn s(s: u64) -> Time {
    Time { ns: s * weir_base::NS_PER_S }
}

const fn mib(mib: u64) -> Size {
    Size { bytes: mib << 20 }
}

/// A gateway: a front, origins, or both.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GatewayConfig {
    /// The router, such as `unix:///run/nfd/nfd.sock`; `None`: the one that `weir get` finds.
    pub router: Option<String>,
    pub front: Option<FrontConfig>,
    /// One producer each.
    #[serde(rename = "origin")]
    pub origins: Vec<OriginConfig>,
}

/// HTTP in, Interests out.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FrontConfig {
    /// Where HTTP is served.
    pub listen: Vec<SocketAddr>,
    /// Where `/metrics` and `/health` are served.
    pub status: Option<SocketAddr>,
    pub tls: Option<TlsFiles>,
    /// Serve HTTP/3 at the same addresses. It needs TLS.
    pub http3: bool,
    /// The hosts that are served; if empty, every host with the prefix `/`.
    #[serde(rename = "host")]
    pub hosts: Vec<HostConfig>,
    /// Memory for verified content.
    pub memory: Size,
    /// Upper bound of connections.
    pub connections_max: usize,
    /// Upper bound of connections from one address.
    pub connections_per_address_max: usize,
    /// How long a request may wait for the head of its response.
    pub timeout: Time,
    /// How long a connection may be idle, a client may take for the head of a request, and a client
    /// may take to accept more of a response.
    pub client_timeout: Time,
    /// File with the SHA-256 (hex) of one token a line. Requests then need a token.
    pub tokens: Option<PathBuf>,
    /// The prefix below which this front offers the bodies of PUT, POST and DELETE to origins. It
    /// must be reachable from them. `None`: these methods are refused.
    pub uploads: Option<Name>,
    /// Upper bound of the body of an upload.
    pub upload_max: Size,
    /// Accept content whose signer is unknown, or that is signed only with a digest.
    pub allow_unsigned: bool,
    /// Certificates to trust, instead of the user's own.
    pub trust_anchors: Vec<PathBuf>,
}

impl Default for FrontConfig {
    fn default() -> Self {
        Self {
            listen: vec![SocketAddr::from(([127, 0, 0, 1], 8080))],
            status: None,
            tls: None,
            http3: false,
            hosts: Vec::new(),
            memory: mib(256),
            connections_max: 20_000,
            connections_per_address_max: 1000,
            timeout: s(30),
            client_timeout: s(60),
            tokens: None,
            uploads: None,
            upload_max: mib(64),
            allow_unsigned: false,
            trust_anchors: Vec::new(),
        }
    }
}

/// A host of the front, and the names that its URLs denote.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HostConfig {
    /// The host in the URL, without port; `*` for every host.
    pub host: String,
    /// The prefix of its names.
    pub prefix: Name,
    /// How these names become names of the network, as their producer has chosen it.
    #[serde(deserialize_with = "mapping")]
    pub mapping: NameMapping,
    /// Whether the query is a part of the name. If not, it is ignored.
    pub query: bool,
    /// Request headers that may become a part of the name, where a response varies with them.
    pub vary: Vec<String>,
    /// Served for a path that ends in a slash, if the producer serves a directory.
    pub index: String,
    /// Whether directories without an index file are listed.
    pub listing: bool,
}

impl Default for HostConfig {
    fn default() -> Self {
        Self {
            host: "*".into(),
            prefix: Name::new(),
            mapping: NameMapping::Identity,
            query: false,
            vary: Vec::new(),
            index: "index.html".into(),
            listing: true,
        }
    }
}

/// Interests in, HTTP out.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OriginConfig {
    /// The prefix of the names that are served.
    pub prefix: Name,
    /// How these names become names of the network.
    #[serde(default, deserialize_with = "mapping")]
    pub mapping: NameMapping,
    /// Content bytes per segment; `None`: [`NameMapping::segment_size_default`].
    #[serde(default)]
    pub segment_size: Option<Size>,
    /// The server: `http://HOST/PATH`, `https://HOST/PATH` or `s3://BUCKET/PREFIX`. The path
    /// segments of the name are appended.
    pub url: String,
    /// Live content: packets that leave the output buffer are not kept, and requests for the next
    /// segment of a playlist wait for it.
    #[serde(default)]
    pub live: bool,
    /// Memory for signed packets.
    #[serde(default = "default_buffer")]
    pub buffer: Size,
    /// How long a response without a statement is fresh.
    #[serde(default = "default_freshness")]
    pub freshness: Time,
    /// How long the server may take to connect, to begin a response, and between two pieces of it.
    #[serde(default = "default_origin_timeout")]
    pub timeout: Time,
    /// How long a stale response is served while the server does not answer.
    #[serde(default = "default_stale")]
    pub stale: Time,
    /// Upper bound of concurrent requests to the server.
    #[serde(default = "default_requests_max")]
    pub requests_max: usize,
    /// Upper bound of a response without a stated length, which is held in memory.
    #[serde(default = "default_unsized_max")]
    pub unsized_max: Size,
    /// Methods that are passed to the server: `PUT`, `POST`, `DELETE`.
    #[serde(default)]
    pub methods: Vec<String>,
    /// Request headers that names may carry to the server: those that its responses name in `Vary`.
    #[serde(default)]
    pub vary: Vec<String>,
}

fn mapping<'de, D: Deserializer<'de>>(text: D) -> Result<NameMapping, D::Error> {
    String::deserialize(text)?.parse().map_err(serde::de::Error::custom)
}

fn default_buffer() -> Size {
    mib(256)
}

fn default_freshness() -> Time {
    s(0)
}

fn default_origin_timeout() -> Time {
    s(10)
}

fn default_stale() -> Time {
    s(86_400)
}

fn default_requests_max() -> usize {
    256
}

fn default_unsized_max() -> Size {
    mib(64)
}

impl OriginConfig {
    /// An origin with the defaults.
    pub fn new(prefix: Name, url: String) -> Self {
        Self {
            prefix,
            mapping: NameMapping::Identity,
            segment_size: None,
            url,
            live: false,
            buffer: default_buffer(),
            freshness: default_freshness(),
            timeout: default_origin_timeout(),
            stale: default_stale(),
            requests_max: default_requests_max(),
            unsized_max: default_unsized_max(),
            methods: Vec::new(),
            vary: Vec::new(),
        }
    }
}
