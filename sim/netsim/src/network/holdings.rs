//! Routers that tell consumers what they hold (docs/holdings.md), as those of `weir router` do with
//! `holdings_for_neighbours`. That takes no time in the router itself.

use weir_base::Packet;
use weir_store::HoldingsStatus;
use weir_wire::{Component, Data, InterestView, LpHeader, Name};

use super::{Network, NodeKind};
use crate::check::Broken;

/// The value of `/localhop/nfd/cs/holdings`.
const QUESTION: &[u8] = b"\x08\x08localhop\x08\x03nfd\x08\x02cs\x08\x08holdings";
/// Octets of Content in a segment of an answer.
const SEGMENT_BYTES: usize = 8000;
const FRESHNESS_MS: u64 = 1000;

/// What is asked for, if a packet that is an Interest is such a question.
pub(super) fn asked(packet: &[u8]) -> Option<Name> {
    // Most packets are no such question, and this is looked at for each.
    let is_it = packet.windows(QUESTION.len()).take(8).any(|octets| octets == QUESTION);
    let interest = is_it.then(|| InterestView::decode(packet).ok())??;
    interest.name.value().starts_with(QUESTION).then(|| interest.name.to_name())
}

impl Network {
    /// Answers the question at the end of the link that it came by.
    #[cold]
    pub(super) fn tell_holdings_at(&mut self, end_index: u32, asked: &Name) -> Result<(), Broken> {
        let now = self.now();
        let node = self.ends[end_index as usize].node;
        let NodeKind::Router(router) = &mut self.nodes[node as usize].kind else { return Ok(()) };
        let mut components = asked.as_view().components().skip(4);
        let object = components.next().and_then(|one| HoldingsStatus::object_of(one.value));
        let Some(object) = object else { return Ok(()) };
        let number = components.last().and_then(|last| last.as_segment()).unwrap_or(0);
        let status = router.holdings_of(now, object);
        let content = status.encode();
        let last = content.len().div_ceil(SEGMENT_BYTES).max(1) as u64 - 1;
        let from = (number.min(last) as usize) * SEGMENT_BYTES;
        let part = &content[from..content.len().min(from + SEGMENT_BYTES)];
        let mut name = HoldingsStatus::dataset_name(prefix(), &status.object);
        name.append_version(0).append_segment(number.min(last));
        let data = Data::new(name)
            .freshness_ms(FRESHNESS_MS)
            .final_block_id(Component::segment(last))
            .content(part);
        let packet = Packet::from(data.encode_with_digest().as_slice());
        self.send(end_index, LpHeader::default(), packet)
    }
}

fn prefix() -> Name {
    let mut prefix = Name::new();
    prefix.append_str("localhop").append_str("nfd");
    prefix
}
