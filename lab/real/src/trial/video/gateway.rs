//! The named delivery: gateway fronts, routers, and a gateway origin before the cache server.

use std::net::SocketAddr;

use serde_json::Value;
use weir_scenario::trial::PREFIX;

use super::super::super::RealError;
use super::super::super::testbed::Testbed;
use super::super::hls::channel_name;
use super::super::routers_at;
use super::Setup;

/// Signed packets that the origin keeps for each channel: more than the segments of a playlist in
/// the highest quality.
const BUFFER: &str = "16MiB";

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
    let origins: Vec<String> = (0..setup.video().channels)
        .map(channel_name)
        .map(|channel| format!("{PREFIX}/{channel}=http://{server}/{channel}"))
        .collect();
    let mut arguments = vec!["origin", "--live", "--buffer", BUFFER];
    arguments.extend(origins.iter().map(String::as_str));
    // The origin creates the key of this run, which fronts trust because it is their user's own.
    start_gateway(setup, last, &arguments)?;
    let front = ["front", "--listen", "127.0.0.1:0", "--prefix", PREFIX];
    front_routers
        .iter()
        .map(|router| front_address(&start_gateway(setup, router, &front)?))
        .collect()
}

/// Starts a gateway at a router. Returns its ready line.
fn start_gateway(
    setup: &mut Setup<'_, '_>,
    router: &str,
    arguments: &[&str],
) -> Result<Value, RealError> {
    let common = ["gateway", "--router", router, "--json"];
    let id = setup.group.command(&[&common, arguments].concat())?;
    let ready = setup.group.value(id, "ready")?;
    setup.working.push(id);
    setup.network.push(setup.group.system_id(id));
    Ok(ready)
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
