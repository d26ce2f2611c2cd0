//! Translates a configuration into the terms of a router. Real and simulated routers use it alike.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::vec::Vec;

use weir_base::FaceId;
use weir_store::{self as store, SegmentRange};
use weir_wire::Name;

use crate::message::{Configuration, Distribution, Retention, StoreRule};

/// The strategy that sends Interests for the parts of an object to several next hops, and its
/// version.
const STRATEGY: &str = "multipath";
const STRATEGY_VERSION: u64 = 1;

impl Configuration {
    pub fn store_rules(&self) -> store::Rules {
        let rule = |rule: &StoreRule| store::Rule {
            prefix: rule.object.clone(),
            segments: SegmentRange { first: rule.first, last: rule.last },
            retention: match rule.retention {
                Retention::Keep { bytes_max } => store::Retention::Keep { bytes_max },
                Retention::Refuse => store::Retention::Refuse,
            },
        };
        let rules: Vec<store::Rule> = self.rules.iter().map(rule).collect();
        store::Rules { generation: self.generation, rules }
    }
}

impl Distribution {
    /// The strategy name for an object: its parameters list the parts and the weights of next hops.
    /// A part is requested over the face to its router. Other segments go to the routers of
    /// `spread`, or to `routes`, the faces of ordinary routes, if `spread` is empty. A part whose
    /// router has no face is treated like the other segments.
    pub fn strategy(&self, face_of: impl Fn(&str) -> Option<FaceId>, routes: &[FaceId]) -> Name {
        let mut name = Name::new();
        name.append_str("localhost").append_str("nfd").append_str("strategy");
        name.append_str(STRATEGY).append_version(STRATEGY_VERSION);
        let spread = self.spread.iter();
        let mut weights: BTreeMap<FaceId, u64> =
            spread.filter_map(|share| Some((face_of(&share.router)?, share.weight))).collect();
        // The strategy gives weight 1 to a next hop that has no `weight` parameter. So next hops
        // that must get no such Interests need an explicit weight of 0.
        if weights.is_empty() {
            weights.extend(routes.iter().map(|&face| (face, 1)));
        } else {
            for &face in routes {
                weights.entry(face).or_insert(0);
            }
        }
        for part in &self.parts {
            if let Some(face) = face_of(&part.router) {
                name.append_str(&format!("part~{}:{}-{}", face.0, part.first, part.last));
                weights.entry(face).or_insert(0);
            }
        }
        for (face, weight) in weights.into_iter().filter(|(_, weight)| *weight != 1) {
            name.append_str(&format!("weight~{}:{weight}", face.0));
        }
        name
    }

    /// All routers that it mentions.
    pub fn routers(&self) -> impl Iterator<Item = &str> {
        let parts = self.parts.iter().map(|part| part.router.as_str());
        parts.chain(self.spread.iter().map(|share| share.router.as_str()))
    }
}
