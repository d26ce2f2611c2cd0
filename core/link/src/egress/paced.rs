//! Pacing of datagrams.
//!
//! A datagram that finds the receive buffer of its peer full is lost, and no one reports that. The
//! usual buffer on Linux has 208 KiB (`net.core.rmem_default`). Most programs keep it, NFD and ndnd
//! among them. It is full after 92 datagrams of 1,420 bytes, the Data of 15 Interests, and a
//! window of Interests is answered faster than such a peer reads. Routers of Weir request larger
//! buffers. They send offers ([`RunOffer`](weir_wire::RunOffer)), and are not paced from then on.
//!
//! A token bucket limits what a peer gets. A full bucket allows [`BURST_BYTES`], which fits the
//! usual buffer. Bytes are counted as the peer's kernel charges them. The peer's speed is unknown,
//! so the rate follows two signs of it:
//!
//! - What was sent in [`WINDOW_NS`] is at least half of the rate, and the peer has sent a packet
//!   for each that it was sent. So it reads what it gets: the rate grows, by a sixteenth. Close to
//!   the rate of the last loss it grows by a 128th.
//! - More than one of [`LOSS_SHARE`] Interests in [`LOSS_WINDOW_NS`] requests Data again that the
//!   peer was sent at the present rate. So Data were lost: the rate falls to seven tenths. If most
//!   do, a consumer fetches the same object again.
//!
//! A peer that is not scheduled for a while reads nothing, and sends nothing. After
//! [`UNHEARD_BYTES_MAX`] without a sign of life the sender pauses once, for [`PAUSE_NS`].
//!
//! Packets that wait count for congestion marks, so consumers that react to them request less
//! before anything is lost.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec;

use weir_base::{HashKey, Instant, NS_PER_MS, NS_PER_S, Packet};
use weir_wire::PacketView;

use super::discipline::Discipline;
use super::outlet::{Outgoing, Outlet, PacketKind};
use super::ready::Load;
use crate::counters::LinkDrop;

/// What a full bucket allows to leave at once, in charged bytes: six tenths of a buffer of 208 KiB.
const BURST_BYTES: u64 = 128 << 10;
/// Linux charges a datagram with this much more than its own bytes (measured in decision 0055).
const DATAGRAM_BYTES: u64 = 832;
/// The first rate in charged bytes per second: 128 Mbit/s in datagrams of 1,420 bytes.
const RATE_START: u64 = 25_000_000;
const RATE_MIN: u64 = RATE_START / 2;
/// The rate stops growing here, because no bucket is needed above it.
const RATE_MAX: u64 = 10_000_000_000;
/// A driver's timers may be late by this much. The bucket then covers it.
const TIMER_NS: u64 = 2 * NS_PER_MS;
const WINDOW_NS: u64 = 50 * NS_PER_MS;
const LOSS_WINDOW_NS: u64 = 500 * NS_PER_MS;
const LOSS_SHARE: u64 = 256;
/// Less than the usual buffer.
const UNHEARD_BYTES_MAX: u64 = 192 << 10;
/// A few time slices of a busy system. The last window of an object waits as long, because no
/// Interests follow it.
const PAUSE_NS: u64 = 30 * NS_PER_MS;
/// Names of this many Data are remembered, at least until others take their places.
const RECENT_NAMES: usize = 4096;

/// Limits the rate of all packets of a face with datagrams.
#[derive(Debug)]
pub(super) struct Paced {
    key: HashKey,
    waiting: VecDeque<Outgoing>,
    load: Load,
    /// Charged bytes per second.
    rate: u64,
    /// The rate of the last loss.
    loss_rate: u64,
    /// When the bucket is full: the theoretical arrival time of the generic cell rate algorithm
    /// (ITU-T I.371).
    full_at: Instant,
    window: Window,
    loss_window: LossWindow,
    /// Charged bytes that were sent since the peer was heard.
    unheard_bytes: u64,
    /// Nothing leaves until then. `None`: the peer was heard since the last pause.
    paused_until: Option<Instant>,
    /// How often the rate has fallen.
    falls: u16,
    /// Sent Data. Empty until the bucket limits for the first time.
    recent: Box<[RecentData]>,
}

/// Data that was sent: a part of the hash of its name, and the value of [`Paced::falls`] then.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
struct RecentData {
    tag: u16,
    falls: u16,
}

/// What happened since `begun_at`.
#[derive(Debug)]
struct Window {
    begun_at: Instant,
    sent_bytes: u64,
    /// Packets.
    sent: u64,
    received: u64,
}

impl Window {
    fn new(begun_at: Instant) -> Self {
        Self { begun_at, sent_bytes: 0, sent: 0, received: 0 }
    }
}

/// The Interests since `begun_at`.
#[derive(Debug)]
struct LossWindow {
    begun_at: Instant,
    interests: u64,
    /// How many of them requested recently sent Data.
    repeats: u64,
}

impl LossWindow {
    fn new(begun_at: Instant) -> Self {
        Self { begun_at, interests: 0, repeats: 0 }
    }
}

impl Paced {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            key: HashKey::new([seed, !seed]),
            waiting: VecDeque::new(),
            load: Load::default(),
            rate: RATE_START,
            loss_rate: RATE_MAX,
            full_at: Instant::ZERO,
            window: Window::new(Instant::ZERO),
            loss_window: LossWindow::new(Instant::ZERO),
            unheard_bytes: 0,
            paused_until: None,
            falls: 0,
            recent: Box::default(),
        }
    }

    /// What the peer's kernel charges for a packet of `packet_bytes` in datagrams of `mtu` bytes.
    fn charge_of(packet_bytes: usize, mtu: usize) -> u64 {
        let datagrams = packet_bytes.div_ceil(mtu.max(1)) as u64;
        packet_bytes as u64 + datagrams * DATAGRAM_BYTES
    }

    fn duration_ns(&self, bytes: u64) -> u64 {
        bytes.saturating_mul(NS_PER_S) / self.rate
    }

    /// When the next packet may leave.
    fn credit_at(&self) -> Instant {
        let burst_ns = self.duration_ns(BURST_BYTES).max(TIMER_NS);
        let credit_at = Instant::from_ns(self.full_at.as_ns().saturating_sub(burst_ns));
        self.paused_until.map_or(credit_at, |until| until.max(credit_at))
    }

    fn send(
        &mut self,
        now: Instant,
        outgoing: Outgoing,
        out: &mut Outlet<'_>,
    ) -> Result<(), LinkDrop> {
        let charge = Self::charge_of(outgoing.packet.len(), out.codec.mtu);
        self.full_at = self.full_at.max(now).plus_ns(self.duration_ns(charge));
        self.window.sent += 1;
        self.window.sent_bytes += charge;
        self.unheard_bytes += charge;
        if self.unheard_bytes >= UNHEARD_BYTES_MAX && self.paused_until.is_none() {
            self.paused_until = Some(now.plus_ns(PAUSE_NS));
        }
        if outgoing.kind == PacketKind::Data
            && let Some((place, recent)) = self.recent_place(&outgoing.packet)
        {
            self.recent[place] = recent;
        }
        out.held_bytes = self.load.wire_bytes;
        out.send(outgoing)
    }

    /// Where Data with the name of a packet is remembered, and as what.
    fn recent_place(&self, packet: &Packet) -> Option<(usize, RecentData)> {
        if self.recent.is_empty() {
            return None;
        }
        let hash = self.key.hash(PacketView::decode(packet).ok()?.name().value());
        // A tag of 0 marks an empty place.
        let tag = ((hash >> 32) as u16).max(1);
        Some((hash as usize % RECENT_NAMES, RecentData { tag, falls: self.falls }))
    }

    /// Adapts the rate at the end of a window.
    fn end_windows(&mut self, now: Instant) {
        if now.ns_since(self.loss_window.begun_at) >= LOSS_WINDOW_NS {
            let LossWindow { interests, repeats, .. } = self.loss_window;
            if repeats > interests / LOSS_SHARE && repeats <= interests / 2 {
                self.loss_rate = self.rate;
                self.rate = (self.rate / 10 * 7).max(RATE_MIN);
                self.falls = self.falls.wrapping_add(1);
            }
            self.loss_window = LossWindow::new(now);
        }
        let window_ns = now.ns_since(self.window.begun_at);
        if window_ns < WINDOW_NS {
            return;
        }
        let Window { sent_bytes, sent, received, .. } = self.window;
        self.window = Window::new(now);
        let is_used = self.duration_ns(sent_bytes) >= window_ns / 2;
        // A consumer's window changes by a few segments in the meantime.
        if is_used && received * 100 >= sent * 98 {
            let is_near_loss = self.rate >= self.loss_rate / 4 * 3;
            let share = if is_near_loss { 128 } else { 16 };
            self.rate = (self.rate + self.rate / share).min(RATE_MAX);
        }
    }

    fn send_allowed(&mut self, now: Instant, out: &mut Outlet<'_>) {
        while !self.waiting.is_empty() && self.credit_at() <= now {
            self.send_oldest(now, out);
        }
    }

    fn send_oldest(&mut self, now: Instant, out: &mut Outlet<'_>) {
        let Some(outgoing) = self.waiting.pop_front() else { return };
        self.load.remove(outgoing.packet.len());
        if let Err(reason) = self.send(now, outgoing, out) {
            out.counters.drops.count(reason);
        }
    }
}

impl Discipline for Paced {
    fn enqueue(
        &mut self,
        now: Instant,
        outgoing: Outgoing,
        out: &mut Outlet<'_>,
    ) -> Result<(), LinkDrop> {
        self.end_windows(now);
        if self.waiting.is_empty() && self.credit_at() <= now {
            return self.send(now, outgoing, out);
        }
        if self.recent.is_empty() {
            self.recent = vec![RecentData::default(); RECENT_NAMES].into();
        }
        let outgoing = outgoing.detached();
        self.load.add(outgoing.packet.len());
        self.waiting.push_back(outgoing);
        self.send_allowed(now, out);
        Ok(())
    }

    fn on_received(&mut self, _now: Instant, kind: PacketKind, packet: &Packet) {
        self.window.received += 1;
        (self.unheard_bytes, self.paused_until) = (0, None);
        if kind != PacketKind::Interest {
            return;
        }
        self.loss_window.interests += 1;
        if let Some((place, recent)) = self.recent_place(packet)
            && self.recent[place] == recent
        {
            self.recent[place] = RecentData::default();
            self.loss_window.repeats += 1;
        }
    }

    fn poll(&mut self, now: Instant, out: &mut Outlet<'_>) {
        self.end_windows(now);
        self.send_allowed(now, out);
    }

    fn next_wakeup(&self) -> Option<Instant> {
        (!self.waiting.is_empty()).then(|| self.credit_at())
    }

    fn load(&self) -> Load {
        let recent_bytes = size_of_val(&*self.recent) as u64;
        Load { charged_bytes: self.load.charged_bytes + recent_bytes, ..self.load }
    }

    fn drop_newest(&mut self) -> Option<Outgoing> {
        let newest = self.waiting.pop_back()?;
        self.load.remove(newest.packet.len());
        Some(newest)
    }

    fn release(&mut self, now: Instant, out: &mut Outlet<'_>) {
        while !self.waiting.is_empty() {
            self.send_oldest(now, out);
        }
    }
}
