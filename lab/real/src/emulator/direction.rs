use std::collections::VecDeque;
use std::io;

use weir_base::{Instant, Packet};
use weir_netem::{LinkConfig, LinkModel, Transit};

use super::port::UdpEnd;
use super::stats::{DirectionStats, LatenessHistogram, LatenessStats};

/// Frames sent before the sockets are read again, so that neither direction starves the other.
const SEND_BATCH_MAX: usize = 64;
/// Initial capacity of the pending queue, in frames.
const PENDING_RESERVED: usize = 4_096;

/// A frame in flight.
struct Pending {
    due_ns: u64,
    cuts: u32,
    frame: Packet,
}

/// One direction: the model, the frames in flight, and the frames that are due.
pub(crate) struct Direction {
    model: LinkModel,
    /// By due time, then by arrival.
    pending: VecDeque<Pending>,
    in_flight_bytes: usize,
    in_flight_bytes_max: usize,
    /// Frames that are due but not yet sent. `due_ns` has their due times.
    due: Vec<Packet>,
    due_ns: Vec<u64>,
    lateness: LatenessHistogram,
    stats: DirectionStats,
}

impl Direction {
    pub(crate) fn new(link: LinkConfig, seed: u64, in_flight_bytes_max: usize) -> Self {
        Self {
            model: LinkModel::new(link, seed),
            pending: VecDeque::with_capacity(PENDING_RESERVED),
            in_flight_bytes: 0,
            in_flight_bytes_max,
            due: Vec::with_capacity(SEND_BATCH_MAX),
            due_ns: Vec::with_capacity(SEND_BATCH_MAX),
            lateness: LatenessHistogram::default(),
            stats: DirectionStats::default(),
        }
    }

    /// Passes a frame that arrived at `arrived_ns` to the model. Without a peer at the other side,
    /// the frame is dropped first.
    pub(crate) fn accept(&mut self, arrived_ns: u64, frame: Packet, has_peer: bool) {
        self.stats.received_frames += 1;
        self.stats.received_bytes += frame.len() as u64;
        if !has_peer {
            self.stats.dropped_no_peer += 1;
            return;
        }
        if self.in_flight_bytes + frame.len() > self.in_flight_bytes_max {
            self.stats.dropped_memory += 1;
            return;
        }
        let bytes = u32::try_from(frame.len()).unwrap_or(u32::MAX);
        let Transit::Arrives(due) = self.model.send(Instant::from_ns(arrived_ns), bytes) else {
            return;
        };
        self.in_flight_bytes += frame.len();
        let pending = Pending { due_ns: due.as_ns(), cuts: self.model.cuts(), frame };
        self.insert(pending);
    }

    /// Keeps the queue in order of due times. Only a frame that the model delays to reorder it is
    /// due after frames that arrive later.
    fn insert(&mut self, pending: Pending) {
        match self.pending.back() {
            Some(last) if last.due_ns > pending.due_ns => {
                let index = self.pending.partition_point(|other| other.due_ns <= pending.due_ns);
                self.pending.insert(index, pending);
            }
            _ => self.pending.push_back(pending),
        }
    }

    pub(crate) fn set_up(&mut self, is_up: bool) {
        if is_up != self.model.is_up() {
            self.model.set_up(is_up);
        }
    }

    /// Sets the fraction of its rate that the link has from now on.
    pub(crate) fn set_rate_share(&mut self, share: f64) {
        self.model.set_rate_share(share);
    }

    /// When the next frame is due; `None` also while frames wait for the socket.
    pub(crate) fn next_due_ns(&self) -> Option<u64> {
        if self.is_blocked() {
            return None;
        }
        self.pending.front().map(|first| first.due_ns)
    }

    /// Whether frames wait for the socket.
    pub(crate) fn is_blocked(&self) -> bool {
        !self.due.is_empty()
    }

    /// Sends the frames that are due by `now_ns` to `port`, at most one batch.
    pub(crate) fn send_due(
        &mut self,
        now_ns: u64,
        port: &mut UdpEnd,
        clock_ns: impl Fn() -> u64,
    ) -> io::Result<()> {
        while self.due.len() < SEND_BATCH_MAX
            && self.pending.front().is_some_and(|first| first.due_ns <= now_ns)
            && let Some(first) = self.pending.pop_front()
        {
            let bytes = u32::try_from(first.frame.len()).unwrap_or(u32::MAX);
            if self.model.survives(first.cuts, bytes) {
                self.due.push(first.frame);
                self.due_ns.push(first.due_ns);
            } else {
                self.in_flight_bytes -= first.frame.len();
            }
        }
        if self.due.is_empty() {
            return Ok(());
        }
        // The socket may accept only some. The others stay in `due` and block this direction.
        let sent = port.send(&self.due)?;
        let sent_ns = clock_ns();
        let mut bytes = 0;
        for (frame, due_ns) in self.due.drain(..sent.done).zip(self.due_ns.drain(..sent.done)) {
            bytes += frame.len();
            self.lateness.record(sent_ns.saturating_sub(due_ns));
        }
        self.in_flight_bytes -= bytes;
        self.stats.sent_frames += (sent.done - sent.refused) as u64;
        self.stats.sent_bytes += (bytes - sent.refused_bytes) as u64;
        self.stats.dropped_send += sent.refused as u64;
        Ok(())
    }

    /// The counters, with those of the receiving port.
    pub(crate) fn stats(&self, receiving: &UdpEnd) -> DirectionStats {
        let mut stats = self.stats.clone();
        stats.add_link(self.model.stats());
        stats.in_flight_frames = (self.pending.len() + self.due.len()) as u64;
        stats.strangers = receiving.foreign_frames();
        stats.dropped_socket = receiving.overflows();
        stats.lateness = LatenessStats::of(&self.lateness);
        stats
    }
}
