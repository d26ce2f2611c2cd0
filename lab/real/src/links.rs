//! Emulated links, each with a thread of the coordinator.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

use weir_plan::LinkPlan;
use weir_plan::event::{Event, EventKind};

use super::{RealError, proc};
use crate::emulator::{
    DirectionStats, Emulator, EmulatorConfig, EmulatorControl, EmulatorError, EmulatorStats,
    UdpEnds,
};

/// A link that runs from [`EmulatedLink::begin`] on. Dropping it stops it.
pub(super) struct EmulatedLink {
    index: usize,
    /// The addresses that side a and side b send to.
    pub(super) a: SocketAddr,
    pub(super) b: SocketAddr,
    control: Arc<EmulatorControl>,
    /// Present until it runs.
    emulator: Option<Emulator>,
    thread: Option<JoinHandle<Result<EmulatorStats, EmulatorError>>>,
}

fn failed(index: usize, error: &EmulatorError) -> RealError {
    RealError::System {
        what: format!("cannot emulate link {index}"),
        source: std::io::Error::other(error.to_string()),
    }
}

impl EmulatedLink {
    /// Binds the ports of link `index`, so that their addresses are known before it runs.
    pub(super) fn bind(index: usize, plan: &LinkPlan, seed: u64) -> Result<Self, RealError> {
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let config = EmulatorConfig {
            b_to_a: plan.b_to_a.clone(),
            seed,
            ..EmulatorConfig::symmetric(plan.a_to_b.clone())
        };
        let emulator = Emulator::bind(UdpEnds::new(any, any), config)
            .map_err(|error| failed(index, &error))?;
        let (a, b) = (emulator.local_a(), emulator.local_b());
        let (control, emulator, thread) = (Arc::default(), Some(emulator), None);
        Ok(Self { index, a, b, control, emulator, thread })
    }

    /// Starts forwarding between two UDP ports on `cores` (empty for all).
    pub(super) fn begin(
        &mut self,
        peers: (SocketAddr, SocketAddr),
        cores: &[usize],
    ) -> Result<(), RealError> {
        let Some(mut emulator) = self.emulator.take() else { return Ok(()) };
        emulator.set_peers(peers.0, peers.1).map_err(|error| failed(self.index, &error))?;
        let cores = cores.to_vec();
        let thread = std::thread::Builder::new()
            .name(format!("weir-link-{}", self.index))
            .spawn({
                let control = Arc::clone(&self.control);
                move || {
                    // The cores were checked when the applications started.
                    if !cores.is_empty() {
                        let _ = proc::pin(&cores);
                    }
                    emulator.run_controlled(&control)
                }
            })
            .map_err(|source| RealError::System { what: "cannot start a thread".into(), source })?;
        self.thread = Some(thread);
        Ok(())
    }

    /// Takes the link up or down in both directions.
    pub(super) fn set_up(&self, is_up: bool) {
        self.control.a_to_b_is_up.store(is_up, Ordering::Relaxed);
        self.control.b_to_a_is_up.store(is_up, Ordering::Relaxed);
    }

    /// Sets the fraction of its rate in both directions, in steps of a thousandth.
    pub(super) fn set_rate_share(&self, share: f64) {
        self.control.rate_permille.store((share * 1000.0).round() as u32, Ordering::Relaxed);
    }

    /// Stops it, and returns its counters.
    pub(super) fn finish(&mut self) -> Result<EmulatorStats, RealError> {
        self.control.stop.store(true, Ordering::Relaxed);
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(Ok(stats))) => Ok(stats),
            Some(Ok(Err(error))) => Err(failed(self.index, &error)),
            Some(Err(_)) => Err(RealError::System {
                what: format!("link {}", self.index),
                source: std::io::Error::other("its thread panicked"),
            }),
            None => Ok(EmulatorStats::default()),
        }
    }
}

impl Drop for EmulatedLink {
    fn drop(&mut self) {
        let _ = self.finish();
    }
}

/// Counters of both directions, as events at `at_ns`.
pub(super) fn samples(
    index: usize,
    plan: &LinkPlan,
    stats: &EmulatorStats,
    at_ns: u64,
) -> [Event; 2] {
    let event = |node: usize, direction: &DirectionStats| Event {
        at_ns,
        node: node as u32,
        kind: EventKind::LinkSample {
            link: index as u32,
            frames: direction.sent_frames,
            bytes: direction.sent_bytes,
            dropped: direction.dropped_frames() + direction.dropped_socket,
            waiting_bytes: 0,
        },
    };
    [event(plan.a, &stats.a_to_b), event(plan.b, &stats.b_to_a)]
}
