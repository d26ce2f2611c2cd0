//! Divides the rules of the router among its shards.

use weir_base::HashKey;
use weir_forward::shard::shard_of_name;
use weir_store::{Retention, Rule, Rules, SegmentRange};

/// Consecutive segments that belong to the same shard (decision 0014).
const RANGE_SEGMENTS: u64 = 64;
/// Maximum number of ranges, over all rules, whose shards are computed. Rules with further ranges
/// are divided evenly.
const RANGES_COUNTED_MAX: u64 = 1 << 20;
/// A store may keep all but this fraction (1/16) of its capacity.
const SPARE_SHARE: u64 = 16;

/// Bytes of a range of [`RANGE_SEGMENTS`] segments of the default size, in memory.
const RANGE_BYTES: u64 = RANGE_SEGMENTS * 9000;

/// Rules of the whole router. The last `pins` of them are pins of operators.
pub(super) struct PinnedRules<'a> {
    pub(super) rules: &'a Rules,
    pub(super) pins: usize,
}

/// Returns the rules of each shard. The bytes of a rule are divided by the number of its segments
/// in each shard. If a shard's rules exceed its limit, they are all reduced by the same factor.
pub(super) fn shares(
    pinned: PinnedRules<'_>,
    key: &HashKey,
    shards: u16,
    capacity_bytes: u64,
) -> Vec<Rules> {
    let PinnedRules { rules, pins } = pinned;
    let first_pin = rules.rules.len() - pins;
    let mut shares = vec![Rules { generation: rules.generation, rules: Vec::new() }; shards.into()];
    let mut blocks_left = RANGES_COUNTED_MAX;
    for (at, rule) in rules.rules.iter().enumerate() {
        if let (true, Retention::Keep { bytes_max }) = (at >= first_pin, rule.retention) {
            let retention = Retention::Keep { bytes_max: pin_share(bytes_max, shards) };
            shares.iter_mut().for_each(|share| {
                share.rules.push(Rule { retention, ..rule.clone() });
            });
            continue;
        }
        let counts = match rule.retention {
            Retention::Keep { .. } if shards > 1 => {
                segments_per_shard(rule, key, shards, &mut blocks_left)
            }
            _ => vec![1; shards.into()],
        };
        let total = counts.iter().sum::<u64>().max(1);
        for (share, count) in shares.iter_mut().zip(counts) {
            let retention = match rule.retention {
                Retention::Keep { bytes_max } => {
                    Retention::Keep { bytes_max: scale(bytes_max, count, total) }
                }
                other => other,
            };
            share.rules.push(Rule { retention, ..rule.clone() });
        }
    }
    let capacity_bytes = capacity_bytes / u64::from(shards);
    for share in &mut shares {
        fit_into(share, capacity_bytes - capacity_bytes / SPARE_SHARE);
    }
    shares
}

/// The limit of a pin in each shard. Which shard has how many ranges of an object is random, so a
/// shard may keep more than an equal share, by three standard deviations. A small object may be in
/// one shard alone.
fn pin_share(bytes_max: u64, shards: u16) -> u64 {
    let equal = bytes_max / u64::from(shards);
    let deviation = equal.saturating_mul(RANGE_BYTES).isqrt();
    bytes_max.min(equal + 3 * deviation + RANGE_BYTES)
}

/// `bytes * count / total`.
fn scale(bytes: u64, count: u64, total: u64) -> u64 {
    (u128::from(bytes) * u128::from(count) / u128::from(total)) as u64
}

/// Number of a rule's segments in each shard. The numbers are equal if the rule has too many
/// segments to count, as a rule for all segments (0 to `u64::MAX`) always does. A shorter range is
/// counted as if `prefix` were the name of one object.
fn segments_per_shard(rule: &Rule, key: &HashKey, shards: u16, blocks_left: &mut u64) -> Vec<u64> {
    let SegmentRange { first, last } = rule.segments;
    let even = vec![1; shards.into()];
    if first > last {
        return even;
    }
    let blocks = last / RANGE_SEGMENTS - first / RANGE_SEGMENTS + 1;
    if blocks > *blocks_left {
        return even;
    }
    *blocks_left -= blocks;
    let mut counts = vec![0; shards.into()];
    for block in first / RANGE_SEGMENTS..=last / RANGE_SEGMENTS {
        let mut name = rule.prefix.clone();
        name.append_segment(block * RANGE_SEGMENTS);
        let shard = shard_of_name(key, name.as_view(), shards);
        let (from, to) = (
            first.max(block * RANGE_SEGMENTS),
            last.min(block * RANGE_SEGMENTS + (RANGE_SEGMENTS - 1)),
        );
        counts[usize::from(shard)] += to - from + 1;
    }
    counts
}

fn fit_into(share: &mut Rules, bytes_max: u64) {
    let kept = |rule: &Rule| match rule.retention {
        Retention::Keep { bytes_max } => bytes_max,
        Retention::Refuse | Retention::Admit => 0,
    };
    let bytes = share.rules.iter().map(kept).fold(0, u64::saturating_add);
    if bytes <= bytes_max {
        return;
    }
    for rule in &mut share.rules {
        if let Retention::Keep { bytes_max: own } = &mut rule.retention {
            *own = scale(*own, bytes_max, bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keep(first: u64, last: u64, bytes_max: u64) -> Rules {
        let rule = Rule {
            prefix: "/a/v=1".parse().unwrap(),
            segments: SegmentRange { first, last },
            retention: Retention::Keep { bytes_max },
        };
        Rules { generation: 1, rules: vec![rule] }
    }

    fn plan(rules: &Rules) -> PinnedRules<'_> {
        PinnedRules { rules, pins: 0 }
    }

    #[test]
    fn pins_allow_for_uneven_shards() {
        let key = HashKey::new([1, 2]);
        let kept_with = |bytes, shards| {
            let rules = keep(0, u64::MAX, bytes);
            let pinned = PinnedRules { rules: &rules, pins: 1 };
            kept(&shares(pinned, &key, shards, 64 << 30))
        };
        assert_eq!(kept_with(100_000, 4), [100_000; 4], "an object of one range");
        assert_eq!(kept_with(1 << 30, 1), [1 << 30]);
        let shares = kept_with(1 << 30, 4);
        assert!(shares[0] > 1 << 28 && shares[0] < (1 << 28) * 6 / 5, "{shares:?}");
    }

    fn kept(shares: &[Rules]) -> Vec<u64> {
        let bytes = |rule: &Rule| match rule.retention {
            Retention::Keep { bytes_max } => bytes_max,
            _ => 0,
        };
        shares.iter().map(|share| share.rules.iter().map(bytes).sum()).collect()
    }

    #[test]
    fn rules_follow_segments_of_shards() {
        let key = HashKey::new([1, 2]);
        // 30 segments of one range belong to one shard.
        let bytes = kept(&shares(plan(&keep(70, 99, 30_000)), &key, 4, 1 << 30));
        assert_eq!(bytes.iter().filter(|bytes| **bytes == 30_000).count(), 1);
        assert_eq!(bytes.iter().sum::<u64>(), 30_000);
        // 100 ranges are spread over the shards.
        let bytes = kept(&shares(plan(&keep(0, 6399, 6_400_000)), &key, 2, 1 << 30));
        assert!(bytes.iter().all(|bytes| bytes % 64_000 == 0 && *bytes > 2_000_000), "{bytes:?}");
        assert_eq!(bytes.iter().sum::<u64>(), 6_400_000);
        // All segments: their number is unknown.
        let bytes = kept(&shares(plan(&keep(0, u64::MAX, 6_400_000)), &key, 2, 1 << 30));
        assert_eq!(bytes, [3_200_000; 2]);
    }

    #[test]
    fn shares_fit_each_shard() {
        let key = HashKey::new([1, 2]);
        let rules = keep(70, 99, 3_000_000);
        let capacity_bytes = 4_000_000;
        rules.check(capacity_bytes).unwrap();
        let shares = shares(plan(&rules), &key, 4, capacity_bytes);
        assert!(shares.iter().all(|share| share.check(capacity_bytes / 4).is_ok()));
        assert_eq!(kept(&shares).into_iter().max(), Some(937_500));
    }
}
