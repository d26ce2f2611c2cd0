//! Calls consumers and producers, and checks what they report.

use weir_base::{FaceId, Instant, Packet};
use weir_wire::LpHeader;

use super::links::Delivery;
use super::timeline::Timeline;
use crate::check::content::{self, ProducedData};
use crate::check::liveness::Progress;
use crate::check::{CheckFailure, liveness};
use crate::peek::Peek;
use weir_plan::app::{App, AppInput, AppOutbox, PathId};
use weir_plan::event::EventKind;

pub(super) struct AppNode {
    pub(super) app: App,
    pub(super) progress: Option<Progress>,
}

/// Effects of faults that relax the checks of an application.
#[derive(Clone, Copy)]
pub(super) struct FaultEffects {
    /// When the latest fault that has begun ends, ns.
    pub(super) until_ns: u64,
    /// A fault has damaged frames. A store may hold the damaged packets for a long time.
    pub(super) has_damage: bool,
}

/// The inputs and outbox of the application that is called, and state that all applications share.
pub(super) struct Apps {
    inputs: Vec<AppInput>,
    outbox: AppOutbox,
    /// Present only if a fault of the plan flips bytes.
    produced: Option<ProducedData>,
    /// The links lose too many frames for a check of progress.
    is_lossy: bool,
    damage_noticed: u64,
    /// The plan is over, and applications are no longer called.
    is_closed: bool,
}

impl Apps {
    pub(super) fn new(produced: Option<ProducedData>, is_lossy: bool) -> Self {
        let (inputs, outbox) = (Vec::new(), AppOutbox::default());
        Self { inputs, outbox, produced, is_lossy, damage_noticed: 0, is_closed: false }
    }

    /// How often a consumer found wrong bytes in a Data.
    pub(super) fn damage_noticed(&self) -> u64 {
        self.damage_noticed
    }

    pub(super) fn close(&mut self) {
        self.is_closed = true;
    }

    /// Records a Data that exists from now on.
    pub(super) fn on_produced(&mut self, packet: &[u8]) {
        if let Some(produced) = &mut self.produced {
            produced.on_produced(packet);
        }
    }

    /// Buffers a packet until the application's next call.
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

    /// Calls an application with its buffered packets and emits its events. Returns its next
    /// wake-up time in ns. [`Apps::take_packets`] then returns the packets to send.
    pub(super) fn call(
        &mut self,
        node: u32,
        app: &mut AppNode,
        effects: FaultEffects,
        timeline: &mut Timeline,
    ) -> Result<Option<u64>, CheckFailure> {
        if self.is_closed {
            self.inputs.clear();
            return Ok(None);
        }
        // Check before the call, because the application drains its inputs.
        let is_genuine = self.are_inputs_genuine();
        app.app.handle(timeline.now(), &mut self.inputs, &mut self.outbox);
        self.inputs.clear();
        let wakeup = app.app.next_wakeup();
        let is_producer = matches!(app.app, App::Producer(_));
        liveness::check_wakeup(is_producer || app.app.is_done(), wakeup.is_some())
            .map_err(|what| CheckFailure::liveness(node, what))?;
        if let Some(what) = self.outbox.violation.take() {
            content::check_complaint(is_genuine, effects.has_damage, what)
                .map_err(|what| CheckFailure::correctness(node, what))?;
            self.damage_noticed += 1;
        }
        for kind in self.outbox.events.drain(..) {
            let progress = app.progress.as_mut().filter(|_| !self.is_lossy);
            match (&kind, progress) {
                (EventKind::InterestSent { .. }, Some(progress)) => progress
                    .on_interest(timeline.now_ns(), effects.until_ns)
                    .map_err(|what| CheckFailure::liveness(node, what))?,
                (EventKind::DataReceived { .. }, _) => content::check_received(is_genuine, true)
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

    /// The packets of the last call, each with the link to send it on.
    pub(super) fn take_packets(
        &mut self,
    ) -> impl Iterator<Item = (PathId, LpHeader, Packet)> + use<'_> {
        self.outbox.packets.drain(..)
    }

    /// Whether all buffered Data is undamaged.
    fn are_inputs_genuine(&self) -> bool {
        let Some(produced) = &self.produced else { return true };
        self.inputs.iter().all(|input| {
            Peek::of(&input.packet).is_some_and(|peek| peek.is_interest)
                || produced.is_genuine(&input.packet)
        })
    }
}

/// The application's link that belongs to a face of its node.
pub(super) fn path_of(face: FaceId) -> PathId {
    PathId((face.0 - FaceId::FIRST.0) as u16)
}
