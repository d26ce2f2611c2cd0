//! `[[pin]]`: prefixes whose Data the store keeps in memory from the start.

use anyhow::bail;
use serde::Deserialize;
use weir_base::units::Size;
use weir_store::{Retention, Rule, Rules, RulesError, SegmentRange};

use super::text::Prefix;

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(expecting = "a table", deny_unknown_fields)]
pub(crate) struct PinSection {
    pub(crate) prefix: Prefix,
    pub(crate) size: Size,
}

impl PinSection {
    fn rule(&self) -> Rule {
        Rule {
            prefix: self.prefix.0.clone(),
            segments: SegmentRange { first: 0, last: u64::MAX },
            retention: Retention::Keep { bytes_max: self.size.bytes },
        }
    }
}

/// Checks that a store of this size accepts all pins.
pub(super) fn check(pins: &[PinSection], store: Size) -> anyhow::Result<()> {
    let rules = Rules { generation: 1, rules: pins.iter().map(PinSection::rule).collect() };
    match rules.check(store.bytes) {
        Ok(()) => Ok(()),
        Err(RulesError::KeepTooMuch { bytes, bytes_max }) => bail!(
            "the sizes of all [[pin]] add up to {}, but they may use at most {}, fifteen \
             sixteenths of [store] `size` = \"{store}\"; reduce them, or raise the \
             size of the store",
            Size { bytes },
            Size { bytes: bytes_max }
        ),
        Err(RulesError::Ambiguous(prefix)) => {
            bail!("several [[pin]] have the prefix {prefix}; keep one of them")
        }
        Err(error) => bail!("[[pin]]: {error}"),
    }
}
