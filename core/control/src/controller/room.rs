//! Room for what is asked for more, where what is asked for less has it.

use alloc::string::String;
use alloc::vec::Vec;

use weir_wire::Name;

use super::Controller;
use super::planning::holds_all;
use crate::file::File;
use crate::placement::{Candidate, Placement};
use crate::plan::{Part, Plan};

/// Routers whose parts are looked at, the nearest, and parts of them; and objects that one question
/// may have moved.
const NEAR_MAX: usize = 8;
const LOOKED_AT_MAX: usize = 64;
const MOVED_MAX: usize = 4;
/// An object gives way to one that is asked for so many times as much: with less the two would
/// change places again and again.
const AHEAD: u64 = 2;

impl Controller {
    /// An object that has no plan is to be planned: its parts, and which objects were moved.
    pub(super) fn room_for_new(
        &mut self,
        consumer: &str,
        file: &File,
        parts: &[Part],
    ) -> Vec<Name> {
        let kept: u64 = parts.iter().map(|part| part.last - part.first + 1).sum();
        self.make_room(consumer, file, file.segments - kept)
    }

    /// An object that has a plan is asked for: segments that are in no part get one, if others are
    /// asked for less.
    pub(super) fn grow(&mut self, object: &Name) {
        let Some(file) = self.map.objects.file(object).cloned() else { return };
        let Some(active) = self.map.plan(object) else { return };
        let kept: u64 = active.plan.parts.iter().map(|part| part.last - part.first + 1).sum();
        let Some(consumer) = self.first_there(&active.plan.consumers) else { return };
        let moved = self.make_room(&consumer, &file, file.segments - kept);
        if !moved.is_empty() {
            self.examine(object);
            moved.iter().for_each(|object| self.examine(object));
        }
    }

    /// Takes parts of objects that are asked for less from the routers nearest to a consumer, until
    /// so many segments of a file find room there. Returns the objects, which are to be examined
    /// when the file has its plan.
    fn make_room(&mut self, consumer: &str, file: &File, segments: u64) -> Vec<Name> {
        if self.config.placement != Placement::ByDemand || segments == 0 || self.is_held(file) {
            return Vec::new();
        }
        let mut near = self.keepers(consumer, &file.name, file, |_| 0);
        near.sort_by(|one, other| {
            (one.distance, &one.router).cmp(&(other.distance, &other.router))
        });
        near.truncate(NEAR_MAX);
        let free: u64 = near.iter().map(|one| self.free_bytes(&one.router)).sum();
        let mut lacking = (segments * file.stored_bytes_each()).saturating_sub(free);
        let mut moved = Vec::new();
        for object in self.less_wanted(&near, &file.name) {
            if lacking == 0 || moved.len() == MOVED_MAX {
                break;
            }
            lacking = lacking.saturating_sub(self.move_from(&near, &object));
            moved.push(object);
        }
        moved
    }

    /// Whether some router holds all of a file: it needs no room.
    fn is_held(&self, file: &File) -> bool {
        self.map.objects.holders(&file.name).values().any(|held| holds_all(held, file))
    }

    /// Objects with parts at some routers that are asked for less than another, the least first.
    fn less_wanted(&self, near: &[Candidate], than: &Name) -> Vec<Name> {
        let wanted = self.demand.of(than);
        let with_part = near.iter().flat_map(|one| {
            let plans = self.map.plans_of(&one.router);
            plans.filter(|active| active.plan.parts.iter().any(|part| part.router == one.router))
        });
        let objects = with_part.take(LOOKED_AT_MAX).map(|active| &active.plan.object);
        let less = objects.filter(|object| *object != than);
        let mut less: Vec<(u64, &Name)> = less
            .map(|object| (self.demand.of(object), object))
            .filter(|(asked, _)| asked.saturating_mul(AHEAD) <= wanted)
            .collect();
        less.sort_unstable();
        less.dedup();
        less.into_iter().map(|(_, object)| object.clone()).collect()
    }

    /// Takes the parts of an object that some routers keep. Returns how many octets that frees.
    fn move_from(&mut self, near: &[Candidate], object: &Name) -> u64 {
        let Some(file) = self.map.objects.file(object).cloned() else { return 0 };
        let Some(active) = self.map.plan(object) else { return 0 };
        let Plan { mut parts, spread, consumers, .. } = active.plan.clone();
        let before: u64 = parts.iter().map(|part| part.last - part.first + 1).sum();
        let is_near = |router: &String| near.iter().any(|one| one.router == *router);
        parts.retain(|part| !is_near(&part.router));
        let left: u64 = parts.iter().map(|part| part.last - part.first + 1).sum();
        if parts.is_empty() {
            self.withdraw(object);
        } else {
            self.make_plan(&file, parts, spread, consumers);
        }
        (before - left) * file.stored_bytes_each()
    }
}
