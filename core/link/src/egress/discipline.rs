use weir_base::{Instant, Packet};

use super::outlet::{Outgoing, Outlet, PacketKind};
use super::ready::Load;
use crate::counters::LinkDrop;

/// In which order and when the packets of one face leave.
///
/// It knows of the network what passes its link, and nothing else: what comes in and what leaves.
/// The bound on the octets that wait is the link's and holds for every discipline.
pub(crate) trait Discipline: Sized {
    /// What can be chosen; the default is used when a configuration names the discipline alone.
    type Config: Default;

    /// Whether it ever keeps a packet. One that does not is never polled.
    const KEEPS: bool = true;

    /// A discipline whose draws and hashes, if it has any, follow from `seed`.
    fn new(config: &Self::Config, seed: u64) -> Self;

    /// Sets option `key` of the text form to `value`. False: there is no such option, or the value
    /// is none that it may have.
    fn set(_config: &mut Self::Config, _key: &str, _value: u64) -> bool {
        false
    }

    /// Takes a packet that is to leave: gives it to `out`, or keeps it for [`Self::poll`].
    fn enqueue(
        &mut self,
        now: Instant,
        outgoing: Outgoing,
        out: &mut Outlet<'_>,
    ) -> Result<(), LinkDrop>;

    /// A whole packet came in.
    fn on_received(&mut self, _now: Instant, _kind: PacketKind, _packet: &Packet) {}

    /// Gives to `out` what may leave by now. Called when [`Self::next_wakeup`] is due, and each
    /// time the socket has taken frames.
    fn poll(&mut self, _now: Instant, _out: &mut Outlet<'_>) {}

    /// When [`Self::poll`] is to be called, whatever the socket does.
    fn next_wakeup(&self) -> Option<Instant> {
        None
    }

    /// What it keeps.
    fn held(&self) -> Load {
        Load::default()
    }

    /// Takes back the newest packet that it keeps.
    fn drop_newest(&mut self) -> Option<Outgoing> {
        None
    }

    /// Gives all that it keeps to `out`: the face goes down, or gets another discipline.
    fn release(&mut self, _now: Instant, _out: &mut Outlet<'_>) {}
}
