//! Whose turn it is before a disk.

use super::config::Contention;

/// What a disk may do next.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Turn {
    Read,
    Write,
}

/// Numbers for reads and writes in the order in which they began to wait.
#[derive(Default)]
pub(super) struct Tickets(u64);

impl Tickets {
    pub(super) fn next(&mut self) -> u64 {
        self.0 += 1;
        self.0
    }
}

/// Whose turn it is. Reads and writes that wait are given by the tickets of the first of each.
#[inline]
pub(super) fn turn(contention: Contention, read: Option<u64>, write: Option<u64>) -> Option<Turn> {
    match (read, write) {
        (None, None) => None,
        (Some(_), None) => Some(Turn::Read),
        (None, Some(_)) => Some(Turn::Write),
        (Some(read), Some(write)) => Some(match contention {
            Contention::Fifo if read < write => Turn::Read,
            Contention::Fifo | Contention::DataFirst => Turn::Write,
            Contention::InterestFirst => Turn::Read,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contention_says_whose_turn_it_is() {
        let of = |contention| turn(contention, Some(2), Some(1));
        assert_eq!(of(Contention::Fifo), Some(Turn::Write));
        assert_eq!(of(Contention::DataFirst), Some(Turn::Write));
        assert_eq!(of(Contention::InterestFirst), Some(Turn::Read));
        assert_eq!(turn(Contention::Fifo, Some(1), Some(2)), Some(Turn::Read));
        assert_eq!(turn(Contention::DataFirst, Some(1), None), Some(Turn::Read));
        assert_eq!(turn(Contention::InterestFirst, None, Some(1)), Some(Turn::Write));
        assert_eq!(turn(Contention::Fifo, None, None), None);
    }
}
