//! Event sources of the kernel.

use mio::{Interest, Token};

/// Reported when another thread wakes this one, or a disk has answered.
pub(crate) const WAKER_TOKEN: Token = Token(0);

/// A face's own socket, or a shared port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::worker) enum Source {
    Face(u32),
    Port(u32),
}

impl Source {
    pub(super) fn token(self) -> Token {
        match self {
            Self::Face(slot) => Token(1 + 2 * slot as usize),
            Self::Port(slot) => Token(2 + 2 * slot as usize),
        }
    }

    pub(super) fn of(token: Token) -> Option<Self> {
        let number = token.0.checked_sub(1)?;
        let slot = (number / 2) as u32;
        Some(if number % 2 == 0 { Self::Face(slot) } else { Self::Port(slot) })
    }
}

/// The events to watch. Include writability only while a face waits for it. Otherwise, each read by
/// a peer would wake the thread.
pub(super) fn interest(awaits_writable: bool) -> Interest {
    if awaits_writable { Interest::READABLE | Interest::WRITABLE } else { Interest::READABLE }
}
