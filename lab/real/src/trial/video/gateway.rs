//! The named delivery: gateway fronts, routers, and a gateway origin before the cache server.

use std::net::{Ipv4Addr, SocketAddr};
use std::{fs, iter};

use serde::{Serialize, Serializer};
use serde_json::Value;
use weir_base::units::Size;
use weir_scenario::trial::{PREFIX, Trial};
use weir_transport::NameMapping;
use weir_wire::Name;

use super::super::super::RealError;
use super::super::super::testbed::Testbed;
use super::super::hls::channel_name;
use super::super::routers_at;
use super::{Setup, system};

/// Signed packets that the origin keeps for each channel: more than the segments of a playlist in
/// the highest quality.
const BUFFER: Size = Size { bytes: 16 << 20 };

/// Starts a gateway origin at the last router, with a producer for each channel, and a front at
/// each other router. Returns the addresses of the fronts.
pub(super) fn start(
    setup: &mut Setup<'_, '_>,
    testbed: &Testbed<'_>,
    server: SocketAddr,
) -> Result<Vec<SocketAddr>, RealError> {
    let routers = routers_at(testbed);
    let (last, others) = routers.split_last().expect("a plan has routers");
    let front_routers = if others.is_empty() { &routers[..] } else { others };
    setup.network.extend(testbed.routers.values().map(|router| router.process.id()));
    let channels: Vec<Channel> =
        (0..setup.video().channels).map(|number| Channel::new(setup.trial, number)).collect();
    // The origin creates the key of this run, which fronts trust because it is their user's own.
    let origins = channels.iter().map(|channel| channel.origin(setup.trial, server)).collect();
    let origin = GatewayFile { origins, ..GatewayFile::default() };
    start_gateway(setup, last, "origin.toml", &origin)?;
    // Each channel has a host, too, which states the mapping of its names.
    let all = Host { host: "*".into(), prefix: PREFIX.into(), mapping: NameMapping::Identity };
    let hosts = iter::once(all).chain(channels.iter().map(Channel::host)).collect();
    let listen = [SocketAddr::from((Ipv4Addr::LOCALHOST, 0))];
    let front = GatewayFile { front: Some(FrontFile { listen, hosts }), ..GatewayFile::default() };
    front_routers
        .iter()
        .map(|router| front_address(&start_gateway(setup, router, "front.toml", &front)?))
        .collect()
}

/// Starts a gateway at a router. Returns its ready line.
fn start_gateway(
    setup: &mut Setup<'_, '_>,
    router: &str,
    file: &str,
    config: &GatewayFile,
) -> Result<Value, RealError> {
    let path = setup.folder.join(file);
    let text = toml::to_string(config).expect("a configuration is plain data");
    fs::write(&path, text).map_err(system("cannot write the configuration of a gateway"))?;
    let path = path.display().to_string();
    let arguments = ["gateway", "--router", router, "--json", "run", "--config", &path];
    let id = setup.group.command(&arguments)?;
    let ready = setup.group.value(id, "ready")?;
    setup.working.push(id);
    setup.network.push(setup.group.system_id(id));
    Ok(ready)
}

/// A channel as gateways know it.
struct Channel {
    name: String,
    prefix: Name,
    mapping: NameMapping,
}

impl Channel {
    fn new(trial: &Trial, number: u32) -> Self {
        let name = channel_name(number);
        let mut prefix: Name = PREFIX.parse().expect("a name");
        prefix.append_str(&name);
        let number = u16::try_from(number).expect("at most 1,000 channels");
        Self { name, prefix, mapping: trial.mapping(number) }
    }

    fn origin(&self, trial: &Trial, server: SocketAddr) -> OriginFile {
        OriginFile {
            prefix: self.prefix.to_string(),
            mapping: self.mapping,
            segment_size: trial.segment,
            url: format!("http://{server}/{}", self.name),
            live: true,
            buffer: BUFFER,
        }
    }

    fn host(&self) -> Host {
        Host { host: self.name.clone(), prefix: self.prefix.to_string(), mapping: self.mapping }
    }
}

/// The file of `weir gateway run`, with the keys that differ from their defaults.
#[derive(Default, Serialize)]
struct GatewayFile {
    #[serde(skip_serializing_if = "Option::is_none")]
    front: Option<FrontFile>,
    #[serde(rename = "origin")]
    origins: Vec<OriginFile>,
}

#[derive(Serialize)]
struct FrontFile {
    listen: [SocketAddr; 1],
    #[serde(rename = "host")]
    hosts: Vec<Host>,
}

#[derive(Serialize)]
struct Host {
    host: String,
    prefix: String,
    #[serde(serialize_with = "as_text")]
    mapping: NameMapping,
}

#[derive(Serialize)]
struct OriginFile {
    prefix: String,
    #[serde(serialize_with = "as_text")]
    mapping: NameMapping,
    segment_size: Size,
    url: String,
    live: bool,
    buffer: Size,
}

fn as_text<S: Serializer>(mapping: &NameMapping, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(mapping)
}

fn front_address(ready: &Value) -> Result<SocketAddr, RealError> {
    let address = |url: &str| url.strip_prefix("http://")?.strip_suffix('/')?.parse().ok();
    ready["urls"][0].as_str().and_then(address).ok_or_else(|| RealError::System {
        what: format!("a gateway front does not report its address: {ready}"),
        source: std::io::ErrorKind::InvalidData.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn ready_line_holds_the_address() {
        let ready = json!({ "ready": true, "urls": ["http://127.0.0.1:8080/"] });
        assert_eq!(front_address(&ready).unwrap().port(), 8080);
        assert!(front_address(&json!({ "ready": true, "urls": [] })).is_err());
    }
}
