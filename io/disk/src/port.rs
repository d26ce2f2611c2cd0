use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};

use rtrb::{Consumer, Producer, RingBuffer};
use weir_store::disk::{DiskFailure, DiskOp, DiskOpId, DiskOutcome};

use crate::engine::DiskShared;

/// Rouses the thread that holds a [`DiskPorts`]. Called by engine threads; must not block.
pub type Waker = Arc<dyn Fn() + Send + Sync>;

/// One shard's way to all disks of its store. Belongs to one thread; never blocks.
///
/// A turn of its thread: [`drain`](Self::drain), let the store work, [`submit`](Self::submit) what
/// it wants, [`flush`](Self::flush). The waker of the shard is called after outcomes came in, once
/// until the next `drain`.
pub struct DiskPorts {
    lanes: Vec<PortLane>,
    signal: Arc<Signal>,
}

/// Whether a port has been told of outcomes that it has not looked for yet.
pub(crate) struct Signal {
    is_set: AtomicBool,
    waker: Waker,
}

impl Signal {
    /// Calls the waker unless it was called since the last [`Self::clear`].
    pub(crate) fn set(&self) {
        // What was pushed before must be seen by whoever clears the flag after.
        fence(Ordering::SeqCst);
        if !self.is_set.load(Ordering::Relaxed) && !self.is_set.swap(true, Ordering::SeqCst) {
            (self.waker)();
        }
    }

    fn clear(&self) {
        self.is_set.store(false, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }
}

/// The port's side of the rings of one disk and shard.
struct PortLane {
    ops: Producer<DiskOp>,
    outcomes: Consumer<(DiskOpId, DiskOutcome)>,
    shared: Arc<DiskShared>,
    under_way: VecDeque<DiskOpId>,
    depth: usize,
    has_new: bool,
}

/// The engine's side.
pub(crate) struct EngineLane {
    pub(crate) ops: Consumer<DiskOp>,
    pub(crate) outcomes: Producer<(DiskOpId, DiskOutcome)>,
    pub(crate) signal: Arc<Signal>,
    /// Whether outcomes were pushed that nobody was told of.
    pub(crate) has_news: bool,
}

impl EngineLane {
    /// Hands an outcome over.
    ///
    /// # Panics
    /// When there are more outcomes than operations, which no port allows.
    pub(crate) fn answer(&mut self, id: DiskOpId, outcome: DiskOutcome) {
        let is_in = self.outcomes.push((id, outcome)).is_ok();
        assert!(is_in, "there are as many places for outcomes as for operations");
        self.has_news = true;
    }

    pub(crate) fn notify(&mut self) {
        if std::mem::take(&mut self.has_news) {
            self.signal.set();
        }
    }
}

/// Makes the ports of all shards to `disks`, and the other sides: `lanes[disk][shard]`.
pub(crate) fn connect(
    disks: &[Arc<DiskShared>],
    depth: usize,
    wakers: Vec<Waker>,
) -> (Vec<DiskPorts>, Vec<Vec<EngineLane>>) {
    let mut engine_lanes: Vec<Vec<EngineLane>> = disks.iter().map(|_| Vec::new()).collect();
    let ports = wakers.into_iter().map(|waker| {
        let signal = Arc::new(Signal { is_set: AtomicBool::new(false), waker });
        let lanes = disks.iter().zip(&mut engine_lanes).map(|(shared, engine_lanes)| {
            let (ops, engine_ops) = RingBuffer::new(depth);
            let (engine_outcomes, outcomes) = RingBuffer::new(depth);
            engine_lanes.push(EngineLane {
                ops: engine_ops,
                outcomes: engine_outcomes,
                signal: Arc::clone(&signal),
                has_news: false,
            });
            PortLane {
                ops,
                outcomes,
                shared: Arc::clone(shared),
                under_way: VecDeque::with_capacity(depth),
                depth,
                has_new: false,
            }
        });
        DiskPorts { lanes: lanes.collect(), signal: Arc::clone(&signal) }
    });
    (ports.collect(), engine_lanes)
}

impl DiskPorts {
    /// Takes an operation. The engine may begin before [`Self::flush`], and surely does after it.
    ///
    /// # Panics
    /// When the disk does not exist, or has as many operations under way as it was started for: the
    /// store never asks for more.
    pub fn submit(&mut self, op: DiskOp) {
        let lane = &mut self.lanes[usize::from(op.disk)];
        assert!(lane.under_way.len() < lane.depth, "a store keeps to its depth");
        lane.under_way.push_back(op.id);
        lane.has_new = true;
        // The ring has a place for each operation under way. One that the engine left behind when
        // it died is among them.
        assert!(lane.ops.push(op).is_ok() || lane.shared.is_dead(), "a store keeps to its depth");
    }

    /// Rouses the engines that were given something. Once a turn, whatever happened in it.
    pub fn flush(&mut self) {
        for lane in &mut self.lanes {
            if std::mem::take(&mut lane.has_new) {
                lane.shared.doorbell.ring_if_asleep();
                if lane.shared.is_dead() {
                    self.signal.set();
                }
            }
        }
    }

    /// Appends what has ended since the last call.
    pub fn drain(&mut self, out: &mut Vec<(DiskOpId, DiskOutcome)>) {
        self.signal.clear();
        for lane in &mut self.lanes {
            lane.drain(out);
        }
    }

    /// Operations that were submitted and not drained yet.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.lanes.iter().map(|lane| lane.under_way.len()).sum()
    }
}

impl PortLane {
    fn drain(&mut self, out: &mut Vec<(DiskOpId, DiskOutcome)>) {
        // Looked at first: what the engine answered before it died is in the ring then.
        let is_dead = self.shared.is_dead();
        while let Ok((id, outcome)) = self.outcomes.pop() {
            let place = self.under_way.iter().position(|&under_way| under_way == id);
            if place.is_none() && is_dead {
                continue; // It was given up, and has come back to life.
            }
            let place = place.expect("an engine answers what it was asked, once");
            self.under_way.swap_remove_front(place);
            out.push((id, outcome));
        }
        if is_dead {
            let failed = DiskOutcome::Failed(DiskFailure::Io);
            out.extend(self.under_way.drain(..).map(|id| (id, failed.clone())));
        }
    }
}

impl fmt::Debug for DiskPorts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DiskPorts")
            .field("disks", &self.lanes.len())
            .field("under_way", &self.under_way())
            .finish_non_exhaustive()
    }
}
