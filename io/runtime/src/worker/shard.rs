//! This thread's shard of the router, with its batch of inputs and its outbox.

use std::mem;

use weir_base::{FaceId, Instant};
use weir_forward::{
    Command, Driver, Extension, FaceAttributes, FaceScope, Input, Outbox, Router, RouterConfig,
    RouterStats,
};
use weir_store::disk::DiskTierStats;

/// Number of inputs in a batch.
const BATCH_INPUTS: usize = 64;

/// The router and its pending inputs.
pub(super) struct Shard {
    router: Router,
    /// Replaces the router's handling of inputs in experiments.
    driver: Option<Box<dyn Driver>>,
    inputs: Vec<Input>,
    /// The results of the last batch.
    pub(super) outbox: Outbox,
}

impl Shard {
    pub(super) fn new(
        now: Instant,
        config: RouterConfig,
        extension: Option<&dyn Extension>,
    ) -> Self {
        let mut router = Router::new(now, config);
        // Management is a local program behind a face without a socket. The null face is local as
        // well, so that it can be a next hop for `/localhost`.
        let inputs = [FaceId::INTERNAL, FaceId::NULL].map(|face| {
            let attributes = FaceAttributes::point_to_point(FaceScope::Local);
            Input::Command(Command::AddFace { face, attributes })
        });
        Self {
            driver: extension.and_then(|extension| extension.extend(&mut router)),
            router,
            inputs: inputs.into(),
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

    /// Takes all inputs, for [`Self::handle`]. [`Self::end_round`] returns their memory.
    pub(super) fn begin_round(&mut self) -> Vec<Input> {
        mem::take(&mut self.inputs)
    }

    pub(super) fn batches(inputs: &mut [Input]) -> impl Iterator<Item = &mut [Input]> {
        inputs.chunks_mut(BATCH_INPUTS)
    }

    /// Handles one batch. The caller must empty the outbox before the next.
    #[inline]
    pub(super) fn handle(&mut self, now: Instant, batch: &mut [Input]) {
        match &mut self.driver {
            Some(driver) => driver.handle(&mut self.router, now, batch, &mut self.outbox),
            None => self.router.handle(now, batch, &mut self.outbox),
        }
    }

    /// Returns the inputs' memory. Inputs that were added during the round, for faces that were
    /// closed while sending, wait for the next round.
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
