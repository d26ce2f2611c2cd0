//! Queue disciplines, and how text chooses one.

use alloc::boxed::Box;
use core::fmt;
use core::str::FromStr;

use weir_base::{Instant, Packet};

use super::choice::{self, ChoiceError, ExternalChoice, ExternalKind};
use super::outlet::{Outgoing, Outlet, PacketKind};
use super::ready::Load;
use crate::counters::LinkDrop;

/// Decides the order and the time in which packets of one face leave, if this is not first in,
/// first out. Other crates implement it; `weir-baselines` has the disciplines of papers.
///
/// A discipline sees only the packets that arrive and leave by its link. All packets that it holds
/// count towards the limit on queued bytes. The link enforces the limit.
pub trait Discipline: fmt::Debug + Send {
    /// Accepts a packet: passes it to `out`, or holds it for [`Self::poll`].
    ///
    /// # Errors
    /// The packet is dropped for this reason, and the link counts the drop.
    fn enqueue(
        &mut self,
        now: Instant,
        outgoing: Outgoing,
        out: &mut Outlet<'_>,
    ) -> Result<(), LinkDrop>;

    /// A whole packet was received.
    fn on_received(&mut self, _now: Instant, _kind: PacketKind, _packet: &Packet) {}

    /// Passes packets that may leave now to `out`. Called when [`Self::next_wakeup`] is due, and
    /// each time the socket has accepted frames.
    fn poll(&mut self, now: Instant, out: &mut Outlet<'_>);

    /// The latest time of the next [`Self::poll`].
    fn next_wakeup(&self) -> Option<Instant>;

    /// The size of all packets that it holds.
    fn load(&self) -> Load;

    /// Removes the newest packet that it holds, because memory is short.
    fn drop_newest(&mut self) -> Option<Outgoing>;

    /// Passes everything that it holds to `out`, because the face goes down or gets another
    /// discipline.
    fn release(&mut self, now: Instant, out: &mut Outlet<'_>);
}

/// The options of a [`Discipline`]. They create one for each face.
pub trait DisciplineOptions: fmt::Debug + Send + Sync {
    /// Creates a discipline. Its random numbers and hashes, if any, are derived from `seed`.
    fn make(&self, seed: u64) -> Box<dyn Discipline>;
}

/// A kind of [`Discipline`] that text can choose.
pub type DisciplineKind = ExternalKind<dyn DisciplineOptions>;

/// The order and the time in which packets of a face leave.
///
/// As text: `fifo`, `paced`, or the name of another kind with options as `key=value`, for example
/// `interest-rate interests_per_s=5000 burst=64`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum DisciplineConfig {
    /// First in, first out.
    #[default]
    Fifo,
    /// First in, first out, at a rate that the peer's receive buffer can take. For faces with
    /// datagrams.
    Paced,
    External(ExternalChoice<dyn DisciplineOptions>),
}

const CHOICE_NAME: &str = "queue discipline";
const FIFO: &str = "fifo";
const PACED: &str = "paced";

impl DisciplineConfig {
    /// Parses a text that chooses `fifo`, `paced` or one of `others`.
    ///
    /// # Errors
    /// If there is no such discipline, or it has no such options.
    pub fn read(text: &str, others: &[DisciplineKind]) -> Result<Self, ChoiceError> {
        match choice::split(text) {
            (FIFO, options) => {
                choice::read_options((CHOICE_NAME, FIFO), options, |_, _| false)?;
                Ok(Self::Fifo)
            }
            (PACED, options) => {
                choice::read_options((CHOICE_NAME, PACED), options, |_, _| false)?;
                Ok(Self::Paced)
            }
            _ => {
                let builtin = &[FIFO, PACED];
                ExternalChoice::read((CHOICE_NAME, builtin), text, others).map(Self::External)
            }
        }
    }
}

impl FromStr for DisciplineConfig {
    type Err = ChoiceError;

    /// Accepts only built-in disciplines.
    fn from_str(text: &str) -> Result<Self, ChoiceError> {
        Self::read(text, &[])
    }
}

impl fmt::Display for DisciplineConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fifo => f.write_str(FIFO),
            Self::Paced => f.write_str(PACED),
            Self::External(other) => other.fmt(f),
        }
    }
}
