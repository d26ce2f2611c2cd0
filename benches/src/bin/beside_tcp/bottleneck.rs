//! What is seen at the bottleneck.

use weir_harness::emulator::Offered;
use weir_netem::LinkConfig;

/// TCP port that the transfer with this index is sent from.
pub(crate) fn tcp_port(index: usize) -> u16 {
    5001 + index as u16
}

const UDP: u8 = 17;
const TCP: u8 = 6;

/// What of one transfer was seen.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct Transfer {
    /// Octets of IP packets that arrived at the far side in the window.
    pub(crate) delivered_bytes: u64,
    /// Packets offered in the window.
    pub(crate) offered: u64,
    /// Those of them that were dropped.
    pub(crate) dropped: u64,
}

/// Sees each IP packet that is offered to the bottleneck. Times are since the emulator started.
#[derive(Clone, Debug)]
pub(crate) struct Bottleneck {
    window_ns: std::ops::Range<u64>,
    delay_ns: u64,
    rate_bps: u64,
    /// Which transfer is over UDP, if any.
    over_udp: Option<usize>,
    pub(crate) transfers: [Transfer; 2],
    /// Octets times nanoseconds that they waited.
    waiting_byte_ns: u128,
    pub(crate) packet_bytes_max: usize,
}

impl Bottleneck {
    pub(crate) fn new(
        link: &LinkConfig,
        window_ns: std::ops::Range<u64>,
        over_udp: Option<usize>,
    ) -> Self {
        Self {
            window_ns,
            over_udp,
            delay_ns: link.delay_ns,
            rate_bps: link.rate_bps.unwrap_or(u64::MAX),
            transfers: Default::default(),
            waiting_byte_ns: 0,
            packet_bytes_max: 0,
        }
    }

    pub(crate) fn see(&mut self, offered: Offered<'_>) {
        let bytes = offered.frame.len();
        self.packet_bytes_max = self.packet_bytes_max.max(bytes);
        let is_in_window = self.window_ns.contains(&offered.arrived_ns);
        if is_in_window && let Some(due_ns) = offered.due_ns {
            let sending_ns = bytes as u64 * 8_000_000_000 / self.rate_bps;
            let waited_ns = due_ns.saturating_sub(offered.arrived_ns + self.delay_ns + sending_ns);
            self.waiting_byte_ns += bytes as u128 * u128::from(waited_ns);
        }
        let Some(index) = transfer_of(offered.frame, self.over_udp) else { return };
        let transfer = &mut self.transfers[index];
        if is_in_window {
            transfer.offered += 1;
            transfer.dropped += u64::from(offered.due_ns.is_none());
        }
        if offered.due_ns.is_some_and(|due_ns| self.window_ns.contains(&due_ns)) {
            transfer.delivered_bytes += bytes as u64;
        }
    }

    /// Mean over the window of the octets that wait: by Little's law, those that came in it times
    /// how long each of them waited.
    pub(crate) fn queue_bytes(&self) -> f64 {
        self.waiting_byte_ns as f64 / (self.window_ns.end - self.window_ns.start) as f64
    }
}

/// Whose packet it is: of TCP by the port it is sent from, of UDP that of the only transfer there.
fn transfer_of(packet: &[u8], over_udp: Option<usize>) -> Option<usize> {
    let first = *packet.first()?;
    if first >> 4 != 4 {
        return None;
    }
    match *packet.get(9)? {
        UDP => over_udp,
        TCP => {
            let at = usize::from(first & 15) * 4;
            let port = u16::from_be_bytes([*packet.get(at)?, *packet.get(at + 1)?]);
            (0..2).find(|&index| port == tcp_port(index))
        }
        _ => None,
    }
}
