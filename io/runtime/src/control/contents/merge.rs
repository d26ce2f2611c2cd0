//! Merges the shards' answers into one.

use std::collections::BTreeMap;

use weir_forward::StoreEvent;
use weir_store::{Holding, HoldingChange, HoldingChanges, SegmentRange, Tier};
use weir_wire::Name;

use crate::contents_request::{ContentsCursor, ContentsError, ContentsPage};

/// Merges the shards' pages. `waiting` is the set of shards that did not answer.
pub(super) fn merge_pages(
    parts: Vec<(u16, StoreEvent)>,
    shards: usize,
    waiting: u64,
) -> Result<ContentsPage, ContentsError> {
    let mut cursors = vec![None; shards];
    let mut ranges: BTreeMap<(Name, Tier), Vec<SegmentRange>> = BTreeMap::new();
    let mut is_partial = waiting != 0;
    for (shard, event) in parts {
        let StoreEvent::Listed { page: Some(page), .. } = event else {
            return Err(ContentsError::NotTracked);
        };
        is_partial |= page.is_partial;
        cursors[usize::from(shard)] = page.next;
        for holding in page.holdings {
            ranges.entry((holding.name, holding.tier)).or_default().extend(holding.ranges);
        }
    }
    let holding =
        |((name, tier), ranges)| Holding { name, tier, ranges: SegmentRange::join(ranges) };
    let holdings = ranges.into_iter().map(holding).collect();
    let has_more = cursors.iter().any(Option::is_some);
    let next = has_more.then_some(ContentsCursor { shards: cursors });
    Ok(ContentsPage { holdings, next, is_partial })
}

/// Merges the shards' batches of changes into one batch.
pub(super) fn merge_changes(
    batches: impl Iterator<Item = HoldingChanges>,
    generation: u64,
    sequence: u64,
) -> HoldingChanges {
    let mut has_more = false;
    let mut merged: BTreeMap<(Name, Tier), [Vec<SegmentRange>; 2]> = BTreeMap::new();
    for batch in batches {
        has_more |= batch.has_more;
        for change in batch.changes {
            let [added, removed] = merged.entry((change.name, change.tier)).or_default();
            added.extend(change.added);
            removed.extend(change.removed);
        }
    }
    let change = |((name, tier), [added, removed]): (_, [Vec<SegmentRange>; 2])| {
        let (added, removed) = (SegmentRange::join(added), SegmentRange::join(removed));
        HoldingChange { name, tier, added, removed }
    };
    let changes = merged.into_iter().map(change).collect();
    HoldingChanges { generation, sequence, changes, has_more }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(first: u64, last: u64) -> SegmentRange {
        SegmentRange { first, last }
    }

    fn listed(ranges: Vec<SegmentRange>, is_partial: bool) -> StoreEvent {
        let holding = Holding { name: "/a/v=1".parse().unwrap(), tier: Tier::Memory, ranges };
        let page = weir_store::HoldingsPage { holdings: vec![holding], next: None, is_partial };
        StoreEvent::Listed { transaction: 1, page: Some(page) }
    }

    #[test]
    fn merges_interleaved_ranges() {
        let one = listed(vec![range(0, 63), range(128, 191)], false);
        let two = listed(vec![range(64, 127), range(200, 210)], false);
        let parts = vec![(1, two.clone()), (0, one.clone())];
        let page = merge_pages(parts, 2, 0).unwrap();
        assert_eq!(page.holdings.len(), 1);
        assert_eq!(page.holdings[0].ranges, [range(0, 191), range(200, 210)]);
        assert!(!page.is_partial && page.next.is_none());
        // A shard that is late or incomplete makes the result partial.
        assert!(merge_pages(vec![(0, one)], 2, 0b10).unwrap().is_partial);
        let parts = vec![(0, listed(vec![], true)), (1, two)];
        assert!(merge_pages(parts, 2, 0).unwrap().is_partial);
        let untracked = StoreEvent::Listed { transaction: 1, page: None };
        assert_eq!(merge_pages(vec![(0, untracked)], 1, 0), Err(ContentsError::NotTracked));
    }

    #[test]
    fn joins_up_to_last_segment_number() {
        let joined = SegmentRange::join(vec![range(5, u64::MAX), range(0, 3), range(4, 4)]);
        assert_eq!(joined, [range(0, u64::MAX)]);
    }
}
