//! The named delivery: gateway fronts, routers, and a gateway origin before the cache server.

use std::fmt::Write as _;
use std::net::SocketAddr;

use weir_scenario::trial::PREFIX;

use super::super::super::RealError;
use super::super::super::testbed::Testbed;
use super::super::hls::channel_name;
use super::super::processes::write;
use super::super::routers_at;
use super::{Setup, free_address};

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
    let config = setup.group.dir().join("gateway.toml");
    write(&config, origin_text(last, server, setup.video().channels).as_bytes())?;
    let config = config.display().to_string();
    start_gateway(setup, &["gateway", "run", "-c", &config])?;
    let mut fronts = Vec::new();
    for router in front_routers {
        let address = free_address()?;
        let listen = address.to_string();
        start_gateway(
            setup,
            &["gateway", "front", "--listen", &listen, "--prefix", PREFIX, "--router", router],
        )?;
        fronts.push(address);
    }
    Ok(fronts)
}

fn start_gateway(setup: &mut Setup<'_, '_>, arguments: &[&str]) -> Result<(), RealError> {
    let id = setup.group.command(arguments)?;
    setup.working.push(id);
    setup.network.push(setup.group.system_id(id));
    Ok(())
}

fn origin_text(router: &str, server: SocketAddr, channels: u32) -> String {
    let mut text = format!("router = \"{router}\"\n");
    for channel in (0..channels).map(channel_name) {
        // Writing to a String cannot fail.
        let _ = write!(
            text,
            "\n[[origin]]\nprefix = \"{PREFIX}/{channel}\"\nurl = \"http://{server}/{channel}\"\n\
             live = true\nbuffer = \"{BUFFER}\"\n"
        );
    }
    text
}
