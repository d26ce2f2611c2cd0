//! This thread's shard of the router, with the batch that it is fed and the outbox that it fills.

use std::mem;

use weir_base::{FaceId, Instant};
use weir_forward::{
    Command, Driver, Extension, FaceAttributes, FaceScope, Input, Outbox, Router, RouterConfig,
    RouterStats,
};
use weir_store::disk::DiskTierStats;

/// Inputs handed to the router at once.
const BATCH_INPUTS: usize = 64;

/// The router and what waits for it.
pub(super) struct Shard {
    router: Router,
    /// What handles its inputs, if it does not itself.
    driver: Option<Box<dyn Driver>>,
    inputs: Vec<Input>,
    /// What the last batch left to be carried out.
    pub(super) outbox: Outbox,
}

impl Shard {
    pub(super) fn new(
        now: Instant,
        config: RouterConfig,
        extension: Option<&dyn Extension>,
    ) -> Self {
        let mut router = Router::new(now, config);
        // Management is a program of this machine behind a face that has no socket.
        let internal = Input::Command(Command::AddFace {
            face: FaceId::INTERNAL,
            attributes: FaceAttributes::point_to_point(FaceScope::Local),
        });
        Self {
            driver: extension.and_then(|extension| extension.extend(&mut router)),
            router,
            inputs: vec![internal],
            outbox: Outbox::default(),
        }
    }

    /// Adds an input to the batch.
    #[inline]
    pub(super) fn push(&mut self, input: Input) {
        self.inputs.push(input);
    }

    pub(super) fn command(&mut self, command: Command) {
        self.inputs.push(Input::Command(command));
    }

    pub(super) fn has_inputs(&self) -> bool {
        !self.inputs.is_empty()
    }

    /// Whether the batch is as large as one should be.
    #[inline]
    pub(super) fn is_batch_full(&self) -> bool {
        self.inputs.len() >= BATCH_INPUTS
    }

    pub(super) fn next_wakeup(&self) -> Option<Instant> {
        self.router.next_wakeup()
    }

    pub(super) fn run_timers(&mut self, now: Instant) {
        if self.router.next_wakeup().is_some_and(|at| at <= now) {
            self.inputs.push(Input::Wakeup);
        }
    }

    /// Takes all inputs, for [`Self::handle`]. [`Self::end_round`] gives their memory back.
    pub(super) fn begin_round(&mut self) -> Vec<Input> {
        mem::take(&mut self.inputs)
    }

    pub(super) fn batches(inputs: &mut [Input]) -> impl Iterator<Item = &mut [Input]> {
        inputs.chunks_mut(BATCH_INPUTS)
    }

    /// Handles one batch. The outbox must be emptied before the next.
    #[inline]
    pub(super) fn handle(&mut self, now: Instant, batch: &mut [Input]) {
        match &mut self.driver {
            Some(driver) => driver.handle(&mut self.router, now, batch, &mut self.outbox),
            None => self.router.handle(now, batch, &mut self.outbox),
        }
    }

    /// Inputs that came during the round, of faces that closed as they were sent to, wait for the
    /// next one.
    pub(super) fn end_round(&mut self, mut inputs: Vec<Input>) {
        inputs.clear();
        inputs.append(&mut self.inputs);
        self.inputs = inputs;
    }

    pub(super) fn stats(&self) -> RouterStats {
        self.router.stats()
    }

    pub(super) fn disk_stats(&self) -> DiskTierStats {
        self.router.stats().store.disk
    }
}
