//! Prefixes that operators have pinned, in addition to the plan of a controller.

use weir_store::{Retention, Rule, Rules, SegmentRange};
use weir_wire::Name;

const ALL_SEGMENTS: SegmentRange = SegmentRange { first: 0, last: u64::MAX };

/// The pinned prefixes with their limits in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Pins(Vec<(Name, u64)>);

impl Pins {
    pub(super) fn list(&self) -> &[(Name, u64)] {
        &self.0
    }

    /// The pins with another one, which replaces that of the same prefix.
    pub(super) fn with(&self, prefix: Name, bytes_max: u64) -> Self {
        let mut pins = self.without(&prefix).0;
        pins.push((prefix, bytes_max));
        pins.sort();
        Self(pins)
    }

    pub(super) fn without(&self, prefix: &Name) -> Self {
        Self(self.0.iter().filter(|(pinned, _)| pinned != prefix).cloned().collect())
    }

    /// The limit of a prefix, if it is pinned.
    pub(super) fn bytes_max(&self, prefix: &Name) -> Option<u64> {
        self.0.iter().find(|(pinned, _)| pinned == prefix).map(|(_, bytes_max)| *bytes_max)
    }

    /// The rules of a plan with those of the pins, under a number of their own. A pin replaces the
    /// plan's rules for the pinned prefix and below.
    pub(super) fn combine(&self, plan: &Rules, generation: u64) -> Rules {
        let is_pinned =
            |name: &Name| self.0.iter().any(|(pin, _)| pin.as_view().is_prefix_of(name.as_view()));
        let planned = plan.rules.iter().filter(|rule| !is_pinned(&rule.prefix)).cloned();
        let pinned = self.0.iter().map(|(prefix, bytes_max)| Rule {
            prefix: prefix.clone(),
            segments: ALL_SEGMENTS,
            retention: Retention::Keep { bytes_max: *bytes_max },
        });
        Rules { generation, rules: planned.chain(pinned).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pins_replace_rules_below_them() {
        let rule = |prefix: &str| Rule {
            prefix: prefix.parse().unwrap(),
            segments: ALL_SEGMENTS,
            retention: Retention::Refuse,
        };
        let plan = Rules { generation: 4, rules: vec![rule("/a/b"), rule("/c")] };
        let pins = Pins::default().with("/a".parse().unwrap(), 10).with("/d".parse().unwrap(), 20);
        let pins = pins.with("/d".parse().unwrap(), 30);
        let combined = pins.combine(&plan, 9);
        assert_eq!(combined.generation, 9);
        let prefixes: Vec<String> =
            combined.rules.iter().map(|rule| rule.prefix.to_string()).collect();
        assert_eq!(prefixes, ["/c", "/a", "/d"]);
        assert_eq!(pins.bytes_max(&"/d".parse().unwrap()), Some(30));
        assert_eq!(pins.without(&"/d".parse().unwrap()).list().len(), 1);
        combined.check(1 << 30).unwrap();
    }
}
