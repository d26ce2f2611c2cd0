//! Space for objects in high demand, taken from objects in low demand.

use alloc::string::String;
use alloc::vec::Vec;

use weir_wire::Name;

use super::{PlanContext, Plans};
use crate::file::File;
use crate::placement::{Candidate, Placement};
use crate::plan::{Plan, segment_count};

/// Maximum number of routers whose parts are examined (the nearest to the consumer), and of objects
/// that one request may displace.
const NEAR_MAX: usize = 8;
const MOVED_MAX: usize = 4;

impl Plans {
    /// Removes parts of objects with less demand from the routers nearest to a consumer, until
    /// `segments` segments of a file find space there. Returns the displaced objects; the caller
    /// must re-examine them when the file has its plan.
    pub(super) fn displace_less_demanded(
        &mut self,
        cx: &mut PlanContext<'_>,
        consumer: &str,
        file: &File,
        segments: u64,
    ) -> Vec<Name> {
        // An object that some router holds completely needs no parts.
        if cx.config.placement != Placement::ByDemand || segments == 0 || self.is_fully_held(file) {
            return Vec::new();
        }
        let mut near = self.keeper_candidates(cx, consumer, &file.name, file, |_| 0);
        // Ties are broken by name, so that all controllers decide alike.
        near.sort_by(|one, other| {
            (one.distance, &one.router).cmp(&(other.distance, &other.router))
        });
        near.truncate(NEAR_MAX);
        let free: u64 = near.iter().map(|one| self.free_bytes(cx, &one.router)).sum();
        let mut lacking = (segments * file.stored_bytes_per_segment()).saturating_sub(free);
        let mut moved = Vec::new();
        for object in self.less_demanded(&near, &file.name) {
            if lacking == 0 || moved.len() == MOVED_MAX {
                break;
            }
            lacking = lacking.saturating_sub(self.remove_parts_near(cx, &near, &object));
            moved.push(object);
        }
        moved
    }

    /// Removes the parts of an object at the given routers. Returns how many bytes that frees.
    fn remove_parts_near(
        &mut self,
        cx: &mut PlanContext<'_>,
        near: &[Candidate],
        object: &Name,
    ) -> u64 {
        let Some(file) = self.map.objects.file(object).cloned() else { return 0 };
        let Some(active) = self.map.plan(object) else { return 0 };
        let Plan { mut parts, spread, consumers, .. } = active.plan.clone();
        let before = segment_count(&parts);
        let is_near = |router: &String| near.iter().any(|one| one.router == *router);
        parts.retain(|part| !is_near(&part.router));
        let left = segment_count(&parts);
        if parts.is_empty() {
            self.withdraw(cx, object);
        } else {
            self.make_plan(cx, &file, parts, spread, consumers);
        }
        (before - left) * file.stored_bytes_per_segment()
    }
}
