//! Interests that are sent one by one, outside the window: those of discovery, and those for units
//! that came damaged or forged.

use alloc::vec::Vec;

use weir_base::{Instant, Rng};
use weir_wire::{DataView, InterestView, Name};

use super::SINGLE_TRIES;
use super::scoreboard::GiveUp;
use crate::PathId;
use crate::interest::{InterestBatch, Selectors};
use crate::request::{Nack, Request, Tries};

/// Units asked for again at one time at most.
pub(crate) const AGAIN_MAX: usize = 256;

/// What a request is for.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// The name of the version.
    Discovery,
    /// The first part of a manifest, if there is one.
    Manifest,
    /// The first segment, while it is not known whether there is a manifest.
    FirstSegment,
    /// Whether an object that grows still does.
    Renewal,
    /// The unit of this place, which came damaged or forged.
    Again(u64),
}

#[derive(Debug)]
struct Entry {
    purpose: Purpose,
    request: Request,
    /// What to go on with when the request comes to nothing.
    otherwise: Option<Request>,
}

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    all: Vec<Entry>,
}

impl Requests {
    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        self.all.clear();
    }

    pub(crate) fn contains(&self, purpose: Purpose) -> bool {
        self.all.iter().any(|entry| entry.purpose == purpose)
    }

    /// Whether a unit is being asked for again.
    pub(crate) fn has_again(&self) -> bool {
        self.all.iter().any(|entry| matches!(entry.purpose, Purpose::Again(_)))
    }

    /// Sends what is due from now on.
    pub(crate) fn add(&mut self, purpose: Purpose, request: Request) {
        self.all.push(Entry { purpose, request, otherwise: None });
    }

    /// Asks for a unit again, with its digest if that is known: routers then pass over what they
    /// have of its name. Should no one have the packet of this digest, any of the name may do: a
    /// producer may have signed the object anew, and is asked as often as for any other unit. False
    /// when there are too many.
    pub(crate) fn ask_again(
        &mut self,
        index: u64,
        mut name: Name,
        digest: Option<[u8; 32]>,
        selectors: Selectors,
        retries_max: u32,
        now: Instant,
    ) -> bool {
        if self.all.len() >= AGAIN_MAX {
            return false;
        }
        let sends_max = retries_max.saturating_add(1);
        let tries = Tries { sends_max, ..SINGLE_TRIES };
        let mut request = Request::new(&name, selectors, tries, now);
        let mut otherwise = None;
        if let Some(digest) = digest {
            name.append_implicit_digest(digest);
            otherwise = Some(request);
            request = Request::new(&name, selectors, SINGLE_TRIES, now);
        }
        self.all.push(Entry { purpose: Purpose::Again(index), request, otherwise });
        true
    }

    /// Takes the request for this off the list, if it is there.
    pub(crate) fn take(&mut self, purpose: Purpose) -> Option<Request> {
        let at = self.all.iter().position(|entry| entry.purpose == purpose)?;
        Some(self.all.swap_remove(at).request)
    }

    /// Takes the request off the list that `data` answers.
    pub(crate) fn take_answered(&mut self, data: &DataView<'_>) -> Option<(Purpose, Request)> {
        let at = self.all.iter().position(|entry| entry.request.is_answered_by(data))?;
        let Entry { purpose, request, .. } = self.all.swap_remove(at);
        Some((purpose, request))
    }

    /// Takes the request for this off the list, if `data` answers it.
    pub(crate) fn take_if_answered(&mut self, purpose: Purpose, data: &DataView<'_>) -> bool {
        let is_it = |entry: &Entry| entry.purpose == purpose && entry.request.is_answered_by(data);
        let found = self.all.iter().position(is_it);
        found.map(|at| self.all.swap_remove(at)).is_some()
    }

    /// Takes a Nack; what is given up for it, and if nothing is, whether all paths have refused.
    /// `None` when the Nack is of another Interest.
    pub(crate) fn nacked(
        &mut self,
        interest: &InterestView<'_>,
        nack: Nack,
        now: Instant,
    ) -> Option<(Purpose, Result<bool, GiveUp>)> {
        for at in 0..self.all.len() {
            let Entry { purpose, request, .. } = &mut self.all[at];
            let purpose = *purpose;
            match request.nacked(interest, nack, now) {
                Ok(false) => {}
                Ok(true) => return Some((purpose, Ok(request.is_refused_by_all()))),
                Err(give_up) => {
                    return Some((purpose, self.fall_back(at, give_up).map(|()| true)));
                }
            }
        }
        None
    }

    /// Sends what is due on one of `paths`, and calls `sent` of each. Stops at one that is given
    /// up.
    pub(crate) fn poll(
        &mut self,
        paths: &[PathId],
        now: Instant,
        rng: &mut Rng,
        out: &mut InterestBatch,
        mut sent: impl FnMut(Purpose, PathId),
    ) -> Result<(), (Purpose, GiveUp)> {
        for at in 0..self.all.len() {
            let purpose = self.all[at].purpose;
            let mut polled = self.all[at].request.poll(paths, now, rng, out);
            if let Err(give_up) = polled {
                self.fall_back(at, give_up).map_err(|give_up| (purpose, give_up))?;
                polled = self.all[at].request.poll(paths, now, rng, out);
            }
            if let (Ok(true), Some(path)) = (polled, self.all[at].request.path()) {
                sent(purpose, path);
            }
        }
        Ok(())
    }

    /// A path is no more.
    pub(crate) fn path_removed(&mut self, path: PathId, now: Instant) {
        for entry in &mut self.all {
            entry.request.path_removed(path, now);
        }
    }

    /// Forgets the units that are not wanted any more.
    pub(crate) fn retain(&mut self, mut is_wanted: impl FnMut(u64) -> bool) {
        self.all.retain(|entry| match entry.purpose {
            Purpose::Again(index) => is_wanted(index),
            _ => true,
        });
    }

    /// When the next is due.
    pub(crate) fn next_wakeup(&self) -> Option<Instant> {
        self.all.iter().map(|entry| entry.request.due_at()).min()
    }

    /// Goes on with what is to be asked otherwise, or takes the request off the list.
    fn fall_back(&mut self, at: usize, reason: GiveUp) -> Result<(), GiveUp> {
        match self.all[at].otherwise.take() {
            Some(request) => self.all[at].request = request,
            None => {
                self.all.swap_remove(at);
                return Err(reason);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use weir_wire::NackReason;

    use super::*;

    const NACK: Nack = Nack { reason: NackReason::NoRoute, is_of_first_router: true };

    /// Refuses what is asked for until it is asked for otherwise or no more.
    fn refuse(
        asked: &mut Requests,
        wire: &[u8],
        now: &mut Instant,
    ) -> Result<Vec<u8>, (Purpose, GiveUp)> {
        let mut rng = Rng::from_seed(1);
        let mut wire = wire.to_vec();
        loop {
            let interest = InterestView::decode(&wire).unwrap();
            let (purpose, result) = asked.nacked(&interest, NACK, *now).unwrap();
            result.map_err(|give_up| (purpose, give_up))?;
            *now = asked.next_wakeup().unwrap().max(*now);
            let mut out = InterestBatch::default();
            asked.poll(&[PathId(0)], *now, &mut rng, &mut out, |_, _| {})?;
            let next = out.iter().next().unwrap().1.to_vec();
            if InterestView::decode(&next).unwrap().name != interest.name {
                return Ok(next);
            }
            wire = next;
        }
    }

    #[test]
    fn what_is_nowhere_by_its_digest_is_asked_for_by_name_alone() {
        let segment: Name = "/a/54=%01/50=%03".parse().unwrap();
        let mut full = segment.clone();
        full.append_implicit_digest([7; 32]);
        let (mut asked, mut now) = (Requests::default(), Instant::from_ns(1));
        assert!(asked.ask_again(3, segment.clone(), Some([7; 32]), Selectors::default(), 15, now));
        let mut out = InterestBatch::default();
        let mut rng = Rng::from_seed(1);
        asked.poll(&[PathId(0)], now, &mut rng, &mut out, |_, _| {}).unwrap();
        let (_, first) = out.iter().next().unwrap();
        assert_eq!(InterestView::decode(first).unwrap().name, full.as_view());

        let plain = refuse(&mut asked, first, &mut now).unwrap();
        assert_eq!(InterestView::decode(&plain).unwrap().name, segment.as_view());
        let given_up = refuse(&mut asked, &plain, &mut now).unwrap_err();
        assert_eq!(given_up, (Purpose::Again(3), GiveUp::NoRoute));
        assert!(asked.is_empty());
    }

    #[test]
    fn the_units_asked_for_again_at_one_time_are_bounded() {
        let mut asked = Requests::default();
        let now = Instant::from_ns(1);
        for index in 0..=AGAIN_MAX as u64 {
            let has_room = asked.ask_again(index, Name::new(), None, Selectors::default(), 15, now);
            assert_eq!(has_room, index < AGAIN_MAX as u64);
        }
        assert!(asked.take(Purpose::Again(4)).is_some());
        assert!(asked.take(Purpose::Again(4)).is_none());
    }
}
