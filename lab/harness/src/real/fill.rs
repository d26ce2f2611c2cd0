//! Stores that hold something from the start: Data that nobody asked for, over a Unix socket.

use std::time::{Duration, Instant};

use weir_face::FaceUri;
use weir_netsim::plan::{Plan, Role};
use weir_socket::Client;
use weir_wire::LpHeader;

use super::router::Router;
use super::{RealError, check, metrics};

/// Data between two looks at the store.
const CHUNK: usize = 256;
/// How long a router may take to store a chunk.
const PATIENCE: Duration = Duration::from_secs(20);

/// Puts into the store of `router` what the plan says, as far as it fits.
pub(super) fn fill(plan: &Plan, router: &mut Router) -> Result<(), RealError> {
    let Role::Router(settings) = &plan.nodes[router.node].role else {
        return Ok(());
    };
    if settings.store_filled <= 0.0 || settings.store_bytes == 0 {
        return Ok(());
    }
    let name = router.name.clone();
    let failed = |reason: String| RealError::Command {
        router: name.clone(),
        what: "Data for its store".into(),
        reason,
    };
    let mut packets = plan
        .stored_at_start(router.node)
        .map_err(|error| RealError::Unsupported(error.to_string()))?
        .peekable();
    let uri = FaceUri::Unix(router.at.unix.clone());
    let mut client = Client::connect(&uri).map_err(|error| failed(error.to_string()))?;
    // What management has answered was stored too.
    let before =
        metrics::fetch_store(router.at.metrics).map_err(|error| failed(error.to_string()))?;
    let mut sent = before.insertions;
    while packets.peek().is_some() {
        for packet in packets.by_ref().take(CHUNK) {
            client
                .send(LpHeader::default(), packet)
                .map_err(|drop| failed(drop.name().to_owned()))?;
            sent += 1;
        }
        let store = await_store(&mut client, router, sent).map_err(failed)?;
        if store.evictions > 0 {
            break;
        }
    }
    router.set_admission(settings.store_admits)
}

/// Puts on the disks of `router` what the plan says.
pub(super) fn fill_disks(plan: &Plan, router: &Router) -> Result<(), RealError> {
    let failed = |reason: String| RealError::Command {
        router: router.name.clone(),
        what: "Data for its disks".into(),
        reason,
    };
    let mut packets = plan
        .on_disk_at_start(router.node)
        .map_err(|error| RealError::Unsupported(error.to_string()))?
        .peekable();
    let uri = FaceUri::Unix(router.at.unix.clone());
    let mut client = Client::connect(&uri).map_err(|error| failed(error.to_string()))?;
    let counts = || metrics::fetch_disk(router.at.metrics).map_err(|error| error.to_string());
    await_recovery(router).map_err(failed)?;
    let mut settled = counts().map_err(failed)?;
    while packets.peek().is_some() {
        let mut sent = 0;
        for packet in packets.by_ref().take(CHUNK) {
            client
                .send(LpHeader::default(), packet)
                .map_err(|drop| failed(drop.name().to_owned()))?;
            sent += 1;
        }
        let deadline = Instant::now() + PATIENCE;
        let wanted = settled + sent;
        while settled < wanted {
            client.poll_send(None).map_err(|error| failed(error.to_string()))?;
            std::thread::sleep(Duration::from_millis(1));
            settled = counts().map_err(failed)?;
            if Instant::now() > deadline {
                return Err(failed(format!(
                    "{settled} of {wanted} were written; are the disks large enough?"
                )));
            }
        }
    }
    Ok(())
}

/// Waits until a router that has disks knows all that is on them.
pub(super) fn await_disks(plan: &Plan, router: &Router) -> Result<(), RealError> {
    match check::disk(plan, router.node) {
        Some(_) => await_recovery(router).map_err(|reason| RealError::Command {
            router: router.name.clone(),
            what: "a look at its disks".into(),
            reason,
        }),
        None => Ok(()),
    }
}

/// Waits until a router knows what its disks hold: until then it writes nothing.
fn await_recovery(router: &Router) -> Result<(), String> {
    let deadline = Instant::now() + PATIENCE;
    let is_recovering = || metrics::fetch_gauge(router.at.metrics, "weir_disk_recovering");
    while is_recovering().map_err(|error| error.to_string())? > 0 {
        if Instant::now() > deadline {
            return Err("its disks are still being read in".into());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// Waits until the store has taken in all that was sent.
fn await_store(
    client: &mut Client,
    router: &Router,
    sent: u64,
) -> Result<metrics::StoreCounts, String> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        client.poll_send(None).map_err(|error| error.to_string())?;
        let store = metrics::fetch_store(router.at.metrics).map_err(|error| error.to_string())?;
        if store.insertions >= sent {
            return Ok(store);
        }
        if Instant::now() > deadline {
            return Err(format!(
                "{} of {sent} were stored; is the store large enough for one of them?",
                store.insertions
            ));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}
