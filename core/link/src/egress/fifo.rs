use weir_base::Instant;

use super::discipline::Discipline;
use super::marking::Marking;
use super::outlet::{Outgoing, Outlet};
use crate::counters::LinkDrop;

/// First in, first out, with NFD's congestion marks: the default.
#[derive(Debug, Default)]
pub(crate) struct Fifo {
    marking: Marking,
}

impl Discipline for Fifo {
    type Config = ();

    fn new((): &()) -> Self {
        Self::default()
    }

    #[inline]
    fn enqueue(
        &mut self,
        now: Instant,
        mut outgoing: Outgoing,
        out: &mut Outlet<'_>,
    ) -> Result<(), LinkDrop> {
        let is_due = self.marking.on_packet(now, out.waiting_bytes(), out.marking);
        if is_due && outgoing.header.congestion_mark == 0 {
            outgoing.header.congestion_mark = 1;
            out.counters.marks_set += 1;
        }
        out.send(outgoing)
    }
}
