//! The order of reads and writes that wait for a disk.

use super::config::Contention;

/// What a disk does next.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum NextOp {
    Read,
    Write,
}

/// Numbers reads and writes in the order of their arrival.
#[derive(Default)]
pub(super) struct Tickets(u64);

impl Tickets {
    pub(super) fn next(&mut self) -> u64 {
        self.0 += 1;
        self.0
    }
}

/// Which operation goes first. `read` and `write` are the tickets of the first waiting read and
/// write.
#[inline]
pub(super) fn choose_next(
    contention: Contention,
    read: Option<u64>,
    write: Option<u64>,
) -> Option<NextOp> {
    match (read, write) {
        (None, None) => None,
        (Some(_), None) => Some(NextOp::Read),
        (None, Some(_)) => Some(NextOp::Write),
        (Some(read), Some(write)) => Some(match contention {
            Contention::Fifo if read < write => NextOp::Read,
            Contention::Fifo | Contention::DataFirst => NextOp::Write,
            Contention::InterestFirst => NextOp::Read,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contention_orders_reads_and_writes() {
        let of = |contention| choose_next(contention, Some(2), Some(1));
        assert_eq!(of(Contention::Fifo), Some(NextOp::Write));
        assert_eq!(of(Contention::DataFirst), Some(NextOp::Write));
        assert_eq!(of(Contention::InterestFirst), Some(NextOp::Read));
        assert_eq!(choose_next(Contention::Fifo, Some(1), Some(2)), Some(NextOp::Read));
        assert_eq!(choose_next(Contention::DataFirst, Some(1), None), Some(NextOp::Read));
        assert_eq!(choose_next(Contention::InterestFirst, None, Some(1)), Some(NextOp::Write));
        assert_eq!(choose_next(Contention::Fifo, None, None), None);
    }
}
