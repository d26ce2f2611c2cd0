use weir_base::Instant;

use super::discipline::Discipline;
use super::outlet::{Outgoing, Outlet};
use crate::counters::LinkDrop;

/// First in, first out: the default.
#[derive(Debug)]
pub(crate) struct Fifo;

impl Discipline for Fifo {
    type Config = ();

    const KEEPS: bool = false;

    fn new((): &(), _seed: u64) -> Self {
        Self
    }

    #[inline]
    fn enqueue(
        &mut self,
        _now: Instant,
        outgoing: Outgoing,
        out: &mut Outlet<'_>,
    ) -> Result<(), LinkDrop> {
        out.send(outgoing)
    }
}
