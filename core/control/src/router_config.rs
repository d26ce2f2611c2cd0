//! A configuration in the terms of a router: the same for routers of this machine and simulated
//! ones.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::vec::Vec;

use weir_base::FaceId;
use weir_store::{self as store, SegmentRange};
use weir_wire::Name;

use crate::message::{Configuration, Distribution, Retention, StoreRule};

/// The strategy that asks several next hops for the parts of an object, and its version.
const STRATEGY: &str = "multipath";
const STRATEGY_VERSION: u64 = 1;

impl Configuration {
    /// What the store is to keep and refuse.
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
    /// The name of the strategy instance that asks for each part where it is, and for the rest
    /// those that it is spread over or else the routes, given the face to each router and those
    /// that ordinary routes lead by. A part whose router has no face goes as the rest does.
    pub fn strategy(&self, face_of: impl Fn(&str) -> Option<FaceId>, routes: &[FaceId]) -> Name {
        let mut name = Name::new();
        name.append_str("localhost").append_str("nfd").append_str("strategy");
        name.append_str(STRATEGY).append_version(STRATEGY_VERSION);
        let spread = self.spread.iter();
        let mut weights: BTreeMap<FaceId, u64> =
            spread.filter_map(|share| Some((face_of(&share.router)?, share.weight))).collect();
        // Of the next hops there are, those that no weight is named for have one.
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

    /// The routers that it speaks of.
    pub fn routers(&self) -> impl Iterator<Item = &str> {
        let parts = self.parts.iter().map(|part| part.router.as_str());
        parts.chain(self.spread.iter().map(|share| share.router.as_str()))
    }
}
