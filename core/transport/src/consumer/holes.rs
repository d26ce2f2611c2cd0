//! Holes: units of an object that get no answer while others do, such as those that a router's
//! store has evicted and whose producer is down.
//!
//! A unit that the scoreboard gives up is set aside, and the fetch carries on with the others:
//!
//! 1. A *pass* goes through the object in order, with window and controller as always. A unit that
//!    is not answered after its retries in the window is set aside ([`HoleRules`]).
//! 2. *Rounds* of at most [`ROUND_UNITS`] Interests a lifetime request again what is set aside,
//!    outside the window, so that a producer that comes back is noticed.
//! 3. When a timeout passes without any answer, the pass has met a hole of unknown length. A round
//!    at once requests units at growing distances and some all over the rest. If one is
//!    answered, the pass skips to it, and sets aside what it skips. If none is, the pass ends.
//! 4. When a pass has ended and anything came since the last one, another pass goes over what is
//!    set aside. So an island in a hole, found by one unit, comes at full speed.
//! 5. It is over when nothing has been verified for as long as all retries of one unit take
//!    (retries times lifetime), or, where routers refuse everything for want of a route, after one
//!    more round.
//!
//! Segments whose manifest part is missing cannot be verified: they are set aside with it, and
//! asked for again when it is there. A reader that wants all in order gets nothing from behind a
//! hole: nothing is skipped to then, and half of its room stays free for what is set aside.
//!
//! Until a unit is set aside nothing of this exists, and no packet that comes costs anything more.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use core::ops::Range;

use rangemap::RangeSet;
use weir_base::{Instant, NS_PER_MS, NS_PER_S};
use weir_security::manifest::Listed;

use super::layout::Layout;
use super::missing::RANGES_MAX;
use super::naming::Naming;
use super::path::Answer;
use super::requests::Purpose;
use super::scoreboard::{Failed, GiveUp, HoleRules, Scoreboard};
use super::target::Part;
use super::verify::Verifying;
use super::{Consumer, ConsumerError, ConsumerOutbox, MissingSegments, Stage};

/// Units of an object at most. A stranger may say that there are any number, and what is set aside
/// is looked through part by part.
const UNITS_MAX: u64 = 1 << 32;
/// Units that a pass over what is set aside skips one by one. Before it skips more, it waits until
/// all its Interests are answered.
const GAP_UNITS: u64 = 1 << 12;
/// Units asked for again in one round at most: half of them in order, half spread over all.
const ROUND_UNITS: u64 = 64;
/// Units spread over the rest of the object that are asked for where a pass meets a hole, besides
/// those at distances 1, 2, 4 and so on.
const SPREAD_UNITS: u64 = 16;

/// How long an answer from behind a hole is waited for, at least.
const SEEK_NS: u64 = NS_PER_S;
/// Ranges of what is set aside whose ends are sought at one time, and distances before each.
const SOUGHT_RANGES: usize = 8;
const SOUGHT_DISTANCES: usize = 8;

/// What is set aside, and how far the search for it is.
#[derive(Debug)]
pub(super) struct Holes {
    /// Units that were asked for without an answer, and those that a pass skipped.
    aside: RangeSet<u64>,
    /// The pass goes over `aside` alone; units that it requests leave it.
    is_again: bool,
    /// The pass has met a hole of unknown length, and a round seeks its end, until this time at
    /// least.
    is_seeking: bool,
    seeks_until: Instant,
    /// When the next round may start, where in `aside` it begins, and how many there were since
    /// something was verified.
    round_at: Instant,
    round_from: u64,
    idle_rounds: u64,
    /// What had been verified when the pass began, and at the last look, and when that was new.
    verified_before: u64,
    verified: u64,
    verified_at: Instant,
    /// When the first unit was set aside.
    met_at: Instant,
    /// Manifest parts verified since.
    parts: u64,
    /// Units got no answer since something was verified, and units were refused.
    has_unanswered: bool,
    has_refused: bool,
    reason: GiveUp,
}

impl Holes {
    fn new(since: Instant, now: Instant, verified: u64) -> Self {
        Self {
            aside: RangeSet::new(),
            is_again: false,
            is_seeking: false,
            seeks_until: now,
            round_at: now,
            round_from: 0,
            idle_rounds: 0,
            verified_before: verified,
            verified,
            verified_at: since,
            met_at: now,
            parts: 0,
            has_unanswered: false,
            has_refused: false,
            reason: GiveUp::Unanswered,
        }
    }

    /// Whether the pass requests a unit, which `is_needed` or not. A unit that it requests leaves
    /// what is set aside.
    pub(super) fn admits(
        &mut self,
        index: u64,
        is_needed: bool,
        layout: &Layout,
        verification: &Verifying,
    ) -> bool {
        if !is_needed {
            self.forget(index);
            return false;
        }
        let is_aside = self.aside.contains(&index);
        let part = layout.part_of(index);
        if self.is_again {
            let is_asked = is_aside && verification.can_check(layout, part);
            if is_asked {
                self.forget(index);
            }
            return is_asked;
        }
        if self.lacks_lister(layout, part) {
            self.set_aside(index);
            return false;
        }
        !is_aside
    }

    /// The next unit from `from` on that a pass over what is set aside requests, or `end`.
    fn next_aside(
        &self,
        mut from: u64,
        end: u64,
        layout: &Layout,
        verification: &Verifying,
    ) -> u64 {
        while let Some(range) = self.aside.overlapping(from..end).next() {
            from = from.max(range.start);
            let part = layout.part_of(from);
            if verification.can_check(layout, part) {
                return from;
            }
            let lister = layout.lister_of(part).and_then(|lister| layout.end_of_part(lister));
            from = lister.unwrap_or(from).max(from + 1);
        }
        end
    }

    /// Before a pass over what is set aside requests the next unit: skips what is not needed.
    /// Whether it may request one now.
    pub(super) fn skip_gap(
        &self,
        scoreboard: &mut Scoreboard,
        layout: &Layout,
        verification: &Verifying,
        end: u64,
    ) -> bool {
        let next = scoreboard.next_index();
        if !self.is_again || next >= end {
            return true;
        }
        let to = self.next_aside(next, end, layout, verification);
        if to - next <= GAP_UNITS {
            return true;
        }
        let is_idle = scoreboard.unanswered() == 0;
        if is_idle {
            scoreboard.skip_to(to);
        }
        is_idle
    }

    /// Whether the manifest part that lists a part is aside.
    fn lacks_lister(&self, layout: &Layout, part: Part) -> bool {
        let lister = layout.lister_of(part).and_then(|lister| layout.index_of(lister));
        lister.is_some_and(|at| self.aside.contains(&at))
    }

    /// A unit need not be asked for again.
    fn forget(&mut self, index: u64) {
        self.aside.remove(index..index + 1);
    }

    fn set_aside(&mut self, index: u64) {
        self.aside.insert(index..index + 1);
    }

    fn contains(&self, index: u64) -> bool {
        self.aside.contains(&index)
    }

    /// Units that may be asked for and unread, of `units_max`: where the reader wants all in order,
    /// half of its room stays free for what is set aside, which it needs first.
    pub(super) fn units_max(&self, units_max: u32, is_in_order: bool) -> u32 {
        if is_in_order && !self.is_again { units_max / 2 } else { units_max }
    }

    /// Whether routers refuse everything that is asked for, and did in a round, too.
    fn is_refused(&self) -> bool {
        self.has_refused && !self.has_unanswered && self.idle_rounds > 0
    }

    pub(super) fn part_verified(&mut self) {
        self.parts += 1;
    }

    fn units(&self) -> u64 {
        self.aside.iter().map(|range| range.end - range.start).sum()
    }

    /// Units at growing distances before the ends of the next ranges from `from` on. Where a pass
    /// has skipped to an island, its beginning lies there.
    fn ends_behind(&self, from: u64) -> impl Iterator<Item = u64> {
        let ranges = self.aside.iter().filter(move |range| range.end > from).take(SOUGHT_RANGES);
        ranges.flat_map(|range| {
            let len = range.end - range.start;
            let near = doubling().take(SOUGHT_DISTANCES).take_while(move |&at| at < len);
            near.map(|at| range.end - 1 - at)
        })
    }

    /// Units of the next round: some in order, and unless `is_in_order` some spread over all.
    fn round(&mut self, is_in_order: bool) -> BTreeSet<u64> {
        let mut units = BTreeSet::new();
        let from = if is_in_order { 0 } else { self.round_from };
        let in_order = if is_in_order { ROUND_UNITS } else { ROUND_UNITS / 2 };
        let after = self.aside.iter().flat_map(|range| range.start.max(from)..range.end);
        let before = self.aside.iter().flat_map(|range| range.start..range.end.min(from));
        let mut next_from = 0;
        for index in after.chain(before).take(in_order as usize) {
            units.insert(index);
            next_from = index + 1;
        }
        self.round_from = next_from;
        if is_in_order {
            return units;
        }
        let step = self.units().div_ceil(ROUND_UNITS / 2).max(1);
        // Another unit of each step in every round.
        let mut skip = self.idle_rounds % step;
        for range in self.aside.iter() {
            let len = range.end - range.start;
            while skip < len {
                units.insert(range.start + skip);
                skip += step;
            }
            skip -= len;
        }
        units
    }
}

/// Distances 1, 2, 4 and so on, less one.
fn doubling() -> impl Iterator<Item = u64> {
    (0..u64::BITS).map(|bit| (1_u64 << bit) - 1)
}

/// Units behind a hole that begins at `rest.start`: at distances 1, 2, 4 and so on, and some all
/// over the rest.
fn seek(rest: &Range<u64>) -> impl Iterator<Item = u64> {
    let len = rest.end.saturating_sub(rest.start);
    let start = rest.start;
    let near = doubling().take_while(move |&at| at < len);
    let step = len.div_ceil(SPREAD_UNITS).max(1);
    let all_over = (1..=SPREAD_UNITS).map(move |at| at * step - 1).take_while(move |&at| at < len);
    near.chain(all_over).map(move |at| start + at)
}

impl Consumer {
    /// Whether a unit that gets no answer can be set aside: the object has a known end and does not
    /// grow.
    fn may_set_aside(&self) -> bool {
        self.config.sets_aside
            && self.config.is_reliable
            && self.live.is_none()
            && matches!(self.stage, Stage::Fetching)
            && matches!(self.naming, Naming::Object(_))
            && self.end_index().is_some_and(|end| end <= UNITS_MAX)
    }

    fn end_index(&self) -> Option<u64> {
        match &self.naming {
            Naming::Object(layout) => layout.end_index(self.last_segment),
            Naming::Sequence(_) => None,
        }
    }

    /// Segments and manifest parts verified so far.
    fn verified_count(&self) -> u64 {
        self.stats.units + self.holes.as_ref().map_or(0, |holes| holes.parts)
    }

    /// A unit cannot be had. It is set aside if that is possible; otherwise the object fails.
    pub(super) fn unit_failed(&mut self, now: Instant, failed: Failed, out: &mut ConsumerOutbox) {
        if !self.config.is_reliable {
            return self.miss(failed.index, out);
        }
        if !self.may_set_aside() {
            let name = self.naming.name_of(failed.index);
            let error = self.error_of(name, failed.reason);
            return self.fail_unit(failed.index, error, out);
        }
        if self.scoreboard.is_asked(failed.index) {
            // A pass has asked for it meanwhile.
            return;
        }
        if self.holes.is_none() {
            // As long as nothing is there, waiting counts from the first Interest, as for any name.
            let since = self.scoreboard.silent_since().filter(|_| self.has_nothing());
            let since = since.unwrap_or(now);
            let holes = Holes::new(since, now, self.stats.units);
            self.holes = Some(Box::new(holes));
            self.leave_units_soon();
        }
        let Some(holes) = &mut self.holes else { return };
        holes.has_unanswered |= failed.reason == GiveUp::Unanswered;
        holes.has_refused |= failed.reason != GiveUp::Unanswered;
        holes.reason = failed.reason;
        holes.set_aside(failed.index);
        if let Part::Manifest(_) = self.naming.part_of(failed.index).1 {
            self.drop_unverifiable();
        }
    }

    /// Units without an answer are set aside soon from now on. In order nothing is gained by that,
    /// and as long as nothing is there they may all be missing.
    fn leave_units_soon(&mut self) {
        if !self.scoreboard.is_in_order() && !self.has_nothing() {
            self.scoreboard.set_hole_rules(HoleRules::Known);
        }
    }

    /// Sets aside the packets that wait for a manifest part which is missing.
    fn drop_unverifiable(&mut self) {
        let held = core::mem::take(&mut self.verification.held);
        for (index, incoming) in held {
            if !self.set_aside_unverifiable(index) {
                self.verification.held.push((index, incoming));
            }
        }
    }

    /// Sets a unit that came aside if the manifest part that lists it is. Whether it did.
    pub(super) fn set_aside_unverifiable(&mut self, index: u64) -> bool {
        let (Some(holes), Naming::Object(layout)) = (&mut self.holes, &self.naming) else {
            return false;
        };
        if !holes.lacks_lister(layout, layout.part_of(index)) {
            return false;
        }
        holes.set_aside(index);
        self.unread -= 1;
        true
    }

    /// Data came for a unit that was not asked for in its order: one that is set aside, or one that
    /// a round seeks behind a hole. Whether it is wanted.
    pub(super) fn answered_aside(&mut self, index: u64, answer: &Answer, was_asked: bool) -> bool {
        if was_asked {
            // A pass may have asked for it meanwhile, or may be about to.
            self.scoreboard.give_up(index);
            self.scoreboard.answered_early(index);
        }
        let Some(holes) = &mut self.holes else { return was_asked };
        if !was_asked && !holes.contains(index) {
            return false;
        }
        holes.forget(index);
        if !was_asked {
            // The answer to an Interest that was given up; when it was sent is not known any more.
            self.scoreboard.note_answer(index, Some(answer.path), 0, answer);
        }
        let now = answer.now;
        self.scoreboard.heard_aside(answer.path, now);
        self.scoreboard.answered_early(index);
        // There may be more of it.
        holes.round_at = now;
        if core::mem::take(&mut holes.is_seeking) && !self.scoreboard.is_in_order() {
            self.skip_to_answered(index);
        }
        true
    }

    /// The pass skips a hole: it carries on with the unit `index`, which was answered, or with the
    /// first manifest part that is needed to verify it.
    fn skip_to_answered(&mut self, index: u64) {
        let next = self.scoreboard.next_index();
        let to = self.needed_first(index);
        let to = if to < next { index } else { to };
        if to > next {
            self.skip(to);
        }
    }

    /// The pass carries on with the unit `to`; those before it are set aside.
    fn skip(&mut self, to: u64) {
        let Some(holes) = &mut self.holes else { return };
        for index in self.scoreboard.abandon_open() {
            holes.set_aside(index);
        }
        let next = self.scoreboard.next_index();
        let done = self.scoreboard.skip_to(to);
        if !holes.is_again && to > next {
            holes.aside.insert(next..to);
            done.into_iter().for_each(|index| holes.forget(index));
        }
        self.drop_unverifiable();
    }

    /// Requests again what is set aside, and ends passes. `has_room`: the reader takes more.
    /// Whether a pass begins.
    pub(super) fn advance_holes(
        &mut self,
        now: Instant,
        has_room: bool,
        out: &mut ConsumerOutbox,
    ) -> bool {
        let (verified, is_in_order) = (self.verified_count(), self.scoreboard.is_in_order());
        let is_stuck = !has_room && self.scoreboard.unanswered() == 0;
        let is_passing = !self.scoreboard.is_done() && !is_stuck;
        let is_silent = self.scoreboard.is_silent();
        let has_nothing = self.has_nothing();
        let Some(holes) = &mut self.holes else { return false };
        if verified != holes.verified {
            (holes.verified, holes.verified_at) = (verified, now);
            (holes.has_unanswered, holes.has_refused, holes.idle_rounds) = (false, false, 0);
            self.leave_units_soon();
        }
        let Some(holes) = &mut self.holes else { return false };
        if is_passing && !holes.is_again && holes.aside.is_empty() {
            // All of it came after all.
            self.end_holes();
            return false;
        }
        let is_in_hole = is_silent || (has_nothing && holes.has_refused);
        let is_lost = is_passing && is_in_hole && !is_in_order;
        holes.is_seeking &= is_lost;
        if is_lost && !holes.is_seeking {
            holes.is_seeking = true;
            holes.seeks_until = now.plus_ns(SEEK_NS);
            self.start_round(now, true);
        } else if is_passing && !self.requests.has_again() {
            if is_lost && now >= holes.seeks_until {
                // The round found nothing behind the hole.
                holes.is_seeking = false;
                self.skip(self.end_index().unwrap_or(self.scoreboard.next_index()));
            } else if !is_lost && is_in_order && holes.is_refused() {
                self.fail_incomplete(out);
            } else if !is_lost && now >= holes.round_at {
                self.start_round(now, false);
            }
        }
        let is_idle = !self.requests.has_again() && self.verification.is_idle();
        let begins = is_idle && (self.scoreboard.is_done() || is_stuck) && self.end_pass(now, out);
        if self.verification.is_idle() && now >= self.patience_ends() {
            self.fail_incomplete(out);
        }
        begins && !self.is_over()
    }

    /// Whether no segment is there.
    fn has_nothing(&self) -> bool {
        self.stats.units == 0 && self.have.is_empty()
    }

    fn end_holes(&mut self) {
        self.scoreboard.set_hole_rules(HoleRules::Watch);
        self.holes = None;
    }

    /// A pass is over. Another one begins if anything came since it began, or for the first time;
    /// whether it does.
    fn end_pass(&mut self, now: Instant, out: &mut ConsumerOutbox) -> bool {
        let end = self.end_index().unwrap_or(self.scoreboard.next_index());
        let rest = self.scoreboard.next_index()..end;
        let has_nothing = self.has_nothing();
        let Some(holes) = &mut self.holes else { return false };
        if !rest.is_empty() && !holes.is_again {
            // The reader has no room for it before the hole is filled.
            holes.aside.insert(rest);
        }
        let done = self.scoreboard.skip_to(end);
        done.into_iter().for_each(|index| holes.forget(index));
        let Some(first) = holes.aside.first().map(|range| range.start) else {
            self.end_holes();
            return false;
        };
        let is_first = !core::mem::replace(&mut holes.is_again, true);
        if (is_first && !has_nothing) || holes.verified != holes.verified_before {
            holes.is_seeking = false;
            holes.verified_before = holes.verified;
            self.scoreboard.skip_to(first);
            return true;
        }
        if holes.is_refused() {
            self.fail_incomplete(out);
        } else if now >= holes.round_at {
            self.start_round(now, false);
        }
        false
    }

    /// Asks once for some of what is set aside, and if `is_seeking` for units behind it.
    fn start_round(&mut self, now: Instant, is_seeking: bool) {
        let is_in_order = self.scoreboard.is_in_order();
        let rest = self.scoreboard.next_index()..self.end_index().unwrap_or(0);
        let Some(holes) = &mut self.holes else { return };
        let mut units = holes.round(is_in_order);
        if is_seeking && !is_in_order {
            match holes.is_again {
                true => units.extend(holes.ends_behind(rest.start)),
                false => units.extend(seek(&rest)),
            }
        }
        holes.round_at = now.plus_ns(self.config.lifetime_ms.saturating_mul(NS_PER_MS));
        holes.idle_rounds += 1;
        for index in units {
            // Behind a hole there may be parts of the manifest and no segments: only segments show
            // that the hole has ended.
            let is_behind = index >= rest.start && !self.is_aside(index);
            let index = if is_behind { index } else { self.needed_first(index) };
            let is_asked =
                self.requests.contains(Purpose::Again(index)) || self.scoreboard.is_asked(index);
            if !is_asked && !self.is_had(index) && !self.scoreboard.is_answered_early(index) {
                let (name, selectors) = (self.naming.name_of(index), self.selectors());
                self.requests.ask_again(index, name, None, selectors, 0, now);
            }
        }
    }

    fn is_aside(&self, index: u64) -> bool {
        self.holes.as_ref().is_some_and(|holes| holes.contains(index))
    }

    /// The unit, or the part of the manifest without which it cannot be verified.
    fn needed_first(&self, index: u64) -> u64 {
        let Naming::Object(layout) = &self.naming else { return index };
        let mut part = layout.part_of(index);
        while let Some(Listed::Unknown) = self.listed(part)
            && let Some(lister) = layout.lister_of(part)
        {
            part = lister;
        }
        layout.index_of(part).unwrap_or(index)
    }

    /// Whether a unit is there or not wanted.
    fn is_had(&self, index: u64) -> bool {
        match &self.naming {
            Naming::Object(layout) => {
                layout.is_had(layout.part_of(index), &self.have, self.last_segment)
            }
            Naming::Sequence(_) => false,
        }
    }

    /// When it is given up unless something is verified before.
    fn patience_ends(&self) -> Instant {
        let lifetime_ns = self.config.lifetime_ms.saturating_mul(NS_PER_MS);
        let patience_ns = lifetime_ns.saturating_mul(u64::from(self.config.retries_max.max(1)));
        let Some(holes) = &self.holes else { return Instant::FAR_FUTURE };
        // However few the retries are, there is time for a round.
        let round_ns = SEEK_NS + lifetime_ns;
        holes.verified_at.plus_ns(patience_ns).max(holes.met_at.plus_ns(round_ns))
    }

    /// When [`Consumer::advance_holes`] has something to do, if no packet comes before.
    pub(super) fn holes_wakeup(&self) -> Option<Instant> {
        let holes = self.holes.as_ref()?;
        if !self.verification.is_idle() {
            // A verdict comes first.
            return None;
        }
        let round_at = if holes.is_seeking { holes.seeks_until } else { holes.round_at };
        let round_at = (!self.requests.has_again()).then_some(round_at);
        round_at.into_iter().chain([self.patience_ends()]).min()
    }

    /// Nothing more comes.
    fn fail_incomplete(&mut self, out: &mut ConsumerOutbox) {
        let Some(mut holes) = self.holes.take() else { return };
        for index in self.scoreboard.abandon_open() {
            holes.set_aside(index);
        }
        let rest = self.scoreboard.next_index()..self.end_index().unwrap_or(0);
        if !rest.is_empty() && !holes.is_again {
            holes.aside.insert(rest);
        }
        let first = holes.aside.first().map_or(0, |range| range.start);
        if self.has_nothing() {
            let error = self.error_of(self.naming.name_of(first), holes.reason);
            return self.fail(error, out);
        }
        let missing = self.missing_of(&holes);
        if missing.missing > 0 {
            self.fail(ConsumerError::Incomplete(Box::new(missing)), out);
        }
    }

    fn missing_of(&self, holes: &Holes) -> MissingSegments {
        let Naming::Object(layout) = &self.naming else { unreachable!("only objects have holes") };
        let mut segments: RangeSet<u64> = RangeSet::new();
        for range in holes.aside.iter() {
            let range = layout.segments_at(range);
            if !range.is_empty() {
                segments.insert(range);
            }
        }
        // What an earlier fetch had may lie in what a pass skipped.
        self.have.ranges().for_each(|range| segments.remove(range));
        let mut parts = BTreeSet::new();
        for part in segments.iter().flat_map(|range| layout.parts_above(range)) {
            parts.extend(layout.index_of(part).filter(|&at| holes.contains(at)));
        }
        let missing = segments.iter().map(|range| range.end - range.start).sum();
        let wanted = layout.wanted_segments(self.last_segment);
        let reason = if holes.has_unanswered { GiveUp::Unanswered } else { holes.reason };
        let metadata = self.metadata.as_ref();
        let is_whole = wanted.start == 0 && self.last_segment == wanted.end.checked_sub(1);
        let sizes = metadata.and_then(|it| it.size_bytes.zip(it.segment_size));
        let octets = sizes.filter(|_| is_whole).map(|(all, size)| {
            let of = |range: &Range<u64>| {
                (range.end.saturating_mul(size).min(all))
                    .saturating_sub(range.start.saturating_mul(size))
            };
            (all.saturating_sub(segments.iter().map(of).sum()), all)
        });
        MissingSegments {
            versioned: metadata.map(|it| it.versioned.clone()).unwrap_or_default(),
            segments: wanted.end - wanted.start,
            missing,
            first_ranges: segments.iter().take(RANGES_MAX).cloned().collect(),
            ranges: segments.iter().count() as u64,
            manifest_parts: parts.len() as u64,
            octets,
            reason,
        }
    }
}
