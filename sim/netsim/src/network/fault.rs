//! Faults begin and end.

use weir_base::{FaceId, Instant};

use super::disk::DiskFaults;
use super::end::End;
use super::queue::{Due, Moment};
use super::{Network, NodeKind};
use crate::check::Broken;
use crate::check::recent::Happened;
use weir_plan::app::PathId;
use weir_plan::event::{EventKind, Observer};
use weir_plan::{Fault, FaultPlan};

impl Network {
    /// Puts all faults into the event queue.
    pub(super) fn schedule_faults(&mut self) {
        for (index, FaultPlan { at_ns, fault }) in self.faults.iter().enumerate() {
            let begins = self.queue.moment(*at_ns, Due::Fault(2 * index as u32));
            self.queue.push(begins);
            let ends_ns = at_ns.saturating_add(fault.for_ns());
            let ends = self.queue.moment(ends_ns, Due::Fault(2 * index as u32 + 1));
            self.queue.push(ends);
        }
    }

    /// Fault `number / 2` begins or ends.
    pub(super) fn change_fault(
        &mut self,
        number: u32,
        observer: &mut dyn Observer,
    ) -> Result<(), Broken> {
        let (fault, begins) = (number / 2, number.is_multiple_of(2));
        let FaultPlan { at_ns, fault: what } = self.faults[fault as usize].clone();
        let ends_ns = at_ns.saturating_add(what.for_ns());
        self.excused_until_ns = self.excused_until_ns.max(ends_ns);
        let node = match what {
            Fault::LinkDown { link, .. } => self.set_link(link, begins),
            Fault::LinkSlow { link, share, .. } => {
                self.set_rate_share(link, if begins { share } else { 1.0 })
            }
            Fault::Crash { node, .. } if begins => self.crash(node),
            Fault::Crash { node, .. } => self.restart(node),
            Fault::StoreStall { node, .. } => self.stall_store(node, begins, ends_ns),
            Fault::WrongBytes { link, probability, .. } => {
                self.set_damage(link, if begins { probability } else { -probability })
            }
            Fault::DiskStall { node, disk, .. } if begins => self.stall_disk(node, disk, ends_ns),
            Fault::DiskStall { node, .. } => node as u32,
            Fault::DiskErrors { node, disk, probability, .. } => {
                let faults = DiskFaults { errors: probability, ..DiskFaults::default() };
                self.change_disk(node, disk, faults, begins)
            }
            Fault::DiskDamage { node, disk, flipped, lost, torn, .. } => {
                let faults = DiskFaults { flipped, lost, torn, ..DiskFaults::default() };
                self.change_disk(node, disk, faults, begins)
            }
            Fault::DiskFull { node, disk, .. } => {
                let faults = DiskFaults { full: 1.0, ..DiskFaults::default() };
                self.change_disk(node, disk, faults, begins)
            }
        };
        let changed = if begins { Happened::FaultBegins } else { Happened::FaultEnds };
        self.note(node, 0, changed, fault);
        self.emit(node, EventKind::FaultChanged { fault, begins }, observer);
        if let Fault::LinkDown { link, .. } = what {
            self.tell_of_link(link, observer)?;
        }
        if matches!(self.nodes[node as usize].kind, NodeKind::Router(_)) {
            self.after_router(node, 0)?;
        }
        Ok(())
    }

    /// The node at `a`, of which events speak.
    fn set_link(&mut self, link: usize, goes_down: bool) -> u32 {
        for end in &mut self.ends[2 * link..2 * link + 2] {
            match goes_down {
                true => end.downs += 1,
                false => end.downs -= 1,
            }
            end.model.set_up(end.downs == 0);
        }
        self.ends[2 * link].node
    }

    /// Of faults that overlap the last to begin or end counts.
    fn set_rate_share(&mut self, link: usize, share: f64) -> u32 {
        for end in &mut self.ends[2 * link..2 * link + 2] {
            end.model.set_rate_share(share);
        }
        self.ends[2 * link].node
    }

    /// Tells a consumer with several links that one of them has gone, or is back: its host sees
    /// that.
    fn tell_of_link(&mut self, link: usize, observer: &mut dyn Observer) -> Result<(), Broken> {
        for end in 2 * link..2 * link + 2 {
            let End { node, face, downs, .. } = self.ends[end];
            let state = &mut self.nodes[node as usize];
            if let NodeKind::App(app) = &mut state.kind
                && state.ends.len() > 1
            {
                app.set_path(PathId((face.0 - FaceId::FIRST.0) as u16), downs == 0);
                self.call_app(node, observer)?;
            }
        }
        Ok(())
    }

    /// Faults that overlap add up; at the end of the last one nothing is left over.
    fn set_damage(&mut self, link: usize, change: f64) -> u32 {
        for end in &mut self.ends[2 * link..2 * link + 2] {
            let probability = end.wrong_bytes + change;
            end.wrong_bytes = if probability < 1e-12 { 0.0 } else { probability };
        }
        self.ends[2 * link].node
    }

    fn crash(&mut self, node: usize) -> u32 {
        let now = self.now();
        let state = &mut self.nodes[node];
        state.downs += 1;
        state.wake = Moment::NEVER;
        if state.downs == 1
            && let NodeKind::Router(router) = &mut state.kind
        {
            router.crash(now, &mut self.library);
            for &end in &state.ends {
                self.ends[end as usize].restart();
            }
        }
        node as u32
    }

    fn restart(&mut self, node: usize) -> u32 {
        let now = self.now();
        let state = &mut self.nodes[node];
        state.downs -= 1;
        if state.downs == 0
            && let NodeKind::Router(router) = &mut state.kind
        {
            router.restart(now, &mut self.outbox);
            self.tell_again(node as u32);
        }
        node as u32
    }

    fn stall_store(&mut self, node: usize, begins: bool, ends_ns: u64) -> u32 {
        let now = self.now();
        let NodeKind::Router(router) = &mut self.nodes[node].kind else { return node as u32 };
        match begins {
            true => router.begin_stall(now, Instant::from_ns(ends_ns), &mut self.outbox),
            false => router.end_stall(now, &mut self.outbox),
        }
        node as u32
    }

    fn stall_disk(&mut self, node: usize, disk: u8, ends_ns: u64) -> u32 {
        let now = self.now();
        if let NodeKind::Router(router) = &mut self.nodes[node].kind
            && let Some(disks) = &mut router.disks
        {
            disks.stall(now, Some(disk), Instant::from_ns(ends_ns));
        }
        node as u32
    }

    fn change_disk(&mut self, node: usize, disk: u8, faults: DiskFaults, begins: bool) -> u32 {
        if let NodeKind::Router(router) = &mut self.nodes[node].kind
            && let Some(disks) = &mut router.disks
        {
            disks.change_faults(disk, faults, begins);
        }
        node as u32
    }
}
