//! Calls consumers and producers, and checks what they report.

use weir_base::{FaceId, Instant, Packet};
use weir_wire::LpHeader;

use super::links::Delivery;
use super::timeline::Timeline;
use crate::check::liveness::Progress;
use crate::check::octets::{self, ProducedData};
use crate::check::{CheckFailure, liveness};
use crate::peek::Peek;
use weir_plan::app::{App, AppInput, AppOutbox, PathId};
use weir_plan::event::EventKind;

/// A consumer or producer of the network.
pub(super) struct AppNode {
    pub(super) app: App,
    pub(super) progress: Option<Progress>,
}

/// What excuses an application that makes no progress or gets wrong octets.
#[derive(Clone, Copy)]
pub(super) struct FaultEffects {
    /// When the last fault so far has ended or will have, ns.
    pub(super) until_ns: u64,
    /// A fault has damaged frames. What was damaged may lie in a store for long.
    pub(super) has_damage: bool,
}

/// What it takes to call any application, and what is known about all of them.
pub(super) struct Apps {
    inputs: Vec<AppInput>,
    outbox: AppOutbox,
    /// Only where a fault of the plan flips octets.
    produced: Option<ProducedData>,
    /// The links lose too much for progress to be promised.
    is_lossy: bool,
    damage_noticed: u64,
    /// The plan is over: applications are not called any more.
    is_closed: bool,
}

impl Apps {
    pub(super) fn new(produced: Option<ProducedData>, is_lossy: bool) -> Self {
        let (inputs, outbox) = (Vec::new(), AppOutbox::default());
        Self { inputs, outbox, produced, is_lossy, damage_noticed: 0, is_closed: false }
    }

    /// Times that a consumer found wrong octets in Data.
    pub(super) fn damage_noticed(&self) -> u64 {
        self.damage_noticed
    }

    pub(super) fn close(&mut self) {
        self.is_closed = true;
    }

    /// A Data exists from now on.
    pub(super) fn on_produced(&mut self, packet: &[u8]) {
        if let Some(produced) = &mut self.produced {
            produced.on_produced(packet);
        }
    }

    /// Keeps a packet for an application until it is called next.
    pub(super) fn receive(
        &mut self,
        app: &mut AppNode,
        delivery: Delivery,
        timeline: &Timeline,
    ) -> Result<(), CheckFailure> {
        let Delivery { node, face, header, packet, .. } = delivery;
        if let Some(progress) = &mut app.progress {
            progress
                .on_delivery(timeline.now_ns())
                .map_err(|what| CheckFailure::liveness(node, what))?;
        }
        self.inputs.push(AppInput { path: path_of(face), header, packet });
        Ok(())
    }

    /// Gives an application what came for it, and emits its events. Returns when it wants to be
    /// called next, ns; [`Apps::take_packets`] has what it sends.
    pub(super) fn call(
        &mut self,
        node: u32,
        app: &mut AppNode,
        excuse: FaultEffects,
        timeline: &mut Timeline,
    ) -> Result<Option<u64>, CheckFailure> {
        if self.is_closed {
            self.inputs.clear();
            return Ok(None);
        }
        let is_genuine = self.are_inputs_genuine();
        app.app.handle(timeline.now(), &mut self.inputs, &mut self.outbox);
        self.inputs.clear();
        let wakeup = app.app.next_wakeup();
        let is_producer = matches!(app.app, App::Producer(_));
        liveness::check_wakeup(is_producer || app.app.is_done(), wakeup.is_some())
            .map_err(|what| CheckFailure::liveness(node, what))?;
        if let Some(what) = self.outbox.violation.take() {
            octets::check_complaint(is_genuine, excuse.has_damage, what)
                .map_err(|what| CheckFailure::correctness(node, what))?;
            self.damage_noticed += 1;
        }
        for kind in self.outbox.events.drain(..) {
            let progress = app.progress.as_mut().filter(|_| !self.is_lossy);
            match (&kind, progress) {
                (EventKind::InterestSent { .. }, Some(progress)) => progress
                    .on_interest(timeline.now_ns(), excuse.until_ns)
                    .map_err(|what| CheckFailure::liveness(node, what))?,
                (EventKind::DataReceived { .. }, _) => octets::check_received(is_genuine, true)
                    .map_err(|what| CheckFailure::correctness(node, what))?,
                _ => {}
            }
            timeline.emit(node, kind);
        }
        if let (true, Some(produced)) = (is_producer, &mut self.produced) {
            self.outbox.packets.iter().for_each(|(.., packet)| produced.on_produced(packet));
        }
        Ok(wakeup.map(Instant::as_ns))
    }

    /// What the application that was called last sends, and by which of its links.
    pub(super) fn take_packets(
        &mut self,
    ) -> impl Iterator<Item = (PathId, LpHeader, Packet)> + use<'_> {
        self.outbox.packets.drain(..)
    }

    /// Whether no Data that an application is about to get was damaged.
    fn are_inputs_genuine(&self) -> bool {
        let Some(produced) = &self.produced else { return true };
        self.inputs.iter().all(|input| {
            Peek::of(&input.packet).is_some_and(|peek| peek.is_interest)
                || produced.is_genuine(&input.packet)
        })
    }
}

/// The link of an application that a face of its node is.
pub(super) fn path_of(face: FaceId) -> PathId {
    PathId((face.0 - FaceId::FIRST.0) as u16)
}
