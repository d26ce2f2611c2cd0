//! Nacks of the upstreams of an entry.

use weir_base::{FaceId, Instant};
use weir_wire::NackReason;

use crate::table::pit::PitEntry;

/// The state of an entry after a Nack (NFD, ProcessNack). `OnlyDownstreamLeft` means that only one
/// upstream can still answer, and it is also a downstream.
pub(crate) enum NackVerdict {
    AllRefused(NackReason),
    OnlyDownstreamLeft(FaceId, NackReason),
    Wait,
}

pub(crate) fn judge_nacks(now: Instant, entry: &PitEntry) -> NackVerdict {
    let mut reason: Option<NackReason> = None;
    let mut waiting = None;
    let mut waiting_count = 0;
    for record in entry.upstreams() {
        match record.nacked {
            Some(theirs) => {
                reason = Some(reason.map_or(theirs, |known| known.less_severe(theirs)));
            }
            None if record.expiry > now => {
                waiting = Some(record.face);
                waiting_count += 1;
            }
            None => {}
        }
    }
    let reason = reason.unwrap_or(NackReason::None);
    match waiting {
        None => NackVerdict::AllRefused(reason),
        Some(face)
            if waiting_count == 1 && entry.downstreams().any(|record| record.face == face) =>
        {
            NackVerdict::OnlyDownstreamLeft(face, reason)
        }
        Some(_) => NackVerdict::Wait,
    }
}
