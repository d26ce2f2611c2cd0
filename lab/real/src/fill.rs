//! Fills stores before a run: sends unsolicited Data over a Unix socket.

use std::collections::HashSet;
use std::fmt::Display;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use weir_base::{NS_PER_MS, Packet};
use weir_client::Client;
use weir_face::FaceUri;
use weir_plan::{Plan, Role};
use weir_transport::PathId;
use weir_wire::{DataView, LpHeader};

use super::router::Router;
use super::{RealError, check, metrics};

/// Data sent between two checks of the store.
const CHUNK: usize = 256;
/// How long a router may take to store a chunk.
const WAIT_MAX: Duration = Duration::from_secs(20);

/// Sends the plan's initial content to the store of `router`, as far as it fits. Returns the number
/// of packets stored; `None` if not all fit.
pub(super) fn fill(plan: &Plan, router: &mut Router) -> Result<Option<u64>, RealError> {
    let Role::Router(settings) = &plan.nodes[router.node].role else {
        return Ok(Some(0));
    };
    if settings.store_filled <= 0.0 || settings.store.size.bytes == 0 {
        return Ok(Some(0));
    }
    let packets = plan.stored_at_start(router.node).map_err(unsupported)?;
    // Producers with equal names send equal Data, which the store counts once.
    let mut seen = HashSet::new();
    let packets = packets.filter(|packet| {
        let data = DataView::decode(packet);
        data.is_ok_and(|data| seen.insert(data.name.value().to_vec()))
    });
    let held = Filler::connect(router, "Data for its store")?.put(packets, |metrics| {
        let store = metrics::fetch_store(metrics)?;
        Ok(Progress { arrived: store.insertions, is_full: store.evictions > 0 })
    })?;
    router.set_admission(settings.store.admit)?;
    Ok(held)
}

/// Writes the plan's initial content to the disks of `router`.
pub(super) fn fill_disks(plan: &Plan, router: &Router) -> Result<(), RealError> {
    let packets = plan.on_disk_at_start(router.node).map_err(unsupported)?;
    let mut filler = Filler::connect(router, "Data for its disks")?;
    await_recovery(router).map_err(|reason| filler.failed(reason))?;
    let put = filler.put(packets, |metrics| {
        Ok(Progress { arrived: metrics::fetch_disk(metrics)?, is_full: false })
    });
    put.map(drop)
}

fn unsupported(error: impl Display) -> RealError {
    RealError::Unsupported(error.to_string())
}

/// How much of the sent Data a router has stored.
struct Progress {
    /// Data inserted since the router started, including replies of its management.
    arrived: u64,
    /// Whether further Data would only evict earlier Data.
    is_full: bool,
}

/// Sends Data to a router.
struct Filler<'a> {
    router: &'a Router,
    client: Client,
    what: &'static str,
}

impl<'a> Filler<'a> {
    fn connect(router: &'a Router, what: &'static str) -> Result<Self, RealError> {
        let uri = FaceUri::Unix(router.at.unix.clone());
        let client = Client::connect(&uri).map_err(|error| failure(router, what, error))?;
        Ok(Self { router, client, what })
    }

    fn failed(&self, reason: impl Display) -> RealError {
        failure(self.router, self.what, reason)
    }

    /// Sends all packets, or as many as fit, and waits until they are stored. Returns their number;
    /// `None` if not all fit.
    fn put(
        &mut self,
        packets: impl Iterator<Item = Packet>,
        progress: impl Fn(SocketAddr) -> io::Result<Progress>,
    ) -> Result<Option<u64>, RealError> {
        let mut packets = packets.peekable();
        let mut put = 0;
        let look = || progress(self.router.at.metrics);
        let mut seen = look().map_err(|error| self.failed(error))?;
        while packets.peek().is_some() {
            let mut wanted = seen.arrived;
            for packet in packets.by_ref().take(CHUNK) {
                let sent = self.client.send(PathId::default(), LpHeader::default(), packet);
                sent.map_err(|drop| self.failed(drop.name()))?;
                wanted += 1;
                put += 1;
            }
            let deadline = Instant::now() + WAIT_MAX;
            while seen.arrived < wanted {
                if Instant::now() > deadline {
                    return Err(self.failed(format!(
                        "{} of {wanted} have arrived; check the capacity",
                        seen.arrived
                    )));
                }
                let soon = self.client.now().plus_ns(NS_PER_MS);
                let sent = self.client.poll(Some(soon), &mut Vec::new());
                sent.map_err(|error| self.failed(error))?;
                seen = look().map_err(|error| self.failed(error))?;
            }
            if seen.is_full {
                return Ok(None);
            }
        }
        Ok(Some(put))
    }
}

fn failure(router: &Router, what: &str, reason: impl Display) -> RealError {
    RealError::Command {
        router: router.name.clone(),
        what: what.into(),
        reason: reason.to_string(),
    }
}

/// Waits until a router with disks has read their indexes.
pub(super) fn await_disks(plan: &Plan, router: &Router) -> Result<(), RealError> {
    match check::disk(plan, router.node) {
        Some(_) => {
            await_recovery(router).map_err(|reason| failure(router, "a look at its disks", reason))
        }
        None => Ok(()),
    }
}

/// Waits until a router has recovered its disks. It writes nothing before that.
fn await_recovery(router: &Router) -> Result<(), String> {
    let deadline = Instant::now() + WAIT_MAX;
    let is_recovering = || metrics::fetch_gauge(router.at.metrics, "weir_disk_recovering");
    while is_recovering().map_err(|error| error.to_string())? > 0 {
        if Instant::now() > deadline {
            return Err("the recovery of its disks has not finished".into());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}
