//! Units that came damaged or forged, asked for again one by one, outside the window.

use alloc::vec::Vec;

use weir_base::{Instant, Rng};
use weir_wire::{InterestView, NackReason};

use super::DISCOVERY_TRIES;
use super::naming::Naming;
use super::scoreboard::{Failed, GiveUp};
use crate::PathId;
use crate::interest::{InterestBatch, Selectors};
use crate::request::Request;

/// Asked for again at one time at most.
pub(crate) const AGAIN_MAX: usize = 256;

/// One unit that is asked for again.
#[derive(Debug)]
struct Again {
    index: u64,
    /// It is asked for with its implicit digest.
    is_by_digest: bool,
    selectors: Selectors,
    request: Request,
}

/// All that are asked for again.
#[derive(Debug, Default)]
pub(crate) struct AskedAgain {
    all: Vec<Again>,
}

impl AskedAgain {
    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Asks for a unit again, with its digest if that is known: routers then pass over what they
    /// have of its name. False when there are too many.
    pub(crate) fn ask(
        &mut self,
        naming: &Naming,
        index: u64,
        digest: Option<[u8; 32]>,
        selectors: Selectors,
        now: Instant,
    ) -> bool {
        if self.all.len() >= AGAIN_MAX {
            return false;
        }
        let request = request(naming, index, digest, selectors, now);
        let is_by_digest = digest.is_some();
        self.all.push(Again { index, is_by_digest, selectors, request });
        true
    }

    /// Takes the unit `index`, which has come, off the list if it is there: the path that it was
    /// asked for on, and how long ago. Whether it is better now shows later.
    pub(crate) fn take_answered(
        &mut self,
        index: u64,
        now: Instant,
    ) -> Option<(Option<PathId>, u64)> {
        let at = self.all.iter().position(|again| again.index == index)?;
        let request = self.all.swap_remove(at).request;
        Some((request.path(), request.elapsed_ns(now)))
    }

    /// Takes a Nack; what is given up for it. `None` when the Nack is of another Interest.
    pub(crate) fn nacked(
        &mut self,
        naming: &Naming,
        interest: &InterestView<'_>,
        reason: NackReason,
        now: Instant,
    ) -> Option<Result<(), Failed>> {
        let at = self.all.iter().position(|again| again.request.name() == interest.name)?;
        let again = &mut self.all[at];
        let result = again.request.nacked(interest, reason, now);
        let result = result.map(|_| ()).or_else(|give_up| again.fall_back(naming, give_up, now));
        if result.is_err() {
            self.all.swap_remove(at);
        }
        Some(result)
    }

    /// Sends what is due on `path`, and calls `sent` of each.
    pub(crate) fn poll(
        &mut self,
        naming: &Naming,
        path: PathId,
        now: Instant,
        rng: &mut Rng,
        out: &mut InterestBatch,
        mut sent: impl FnMut(u64),
    ) -> Result<(), Failed> {
        for at in 0..self.all.len() {
            let again = &mut self.all[at];
            let mut polled = again.request.poll(path, now, rng, out);
            if let Err(give_up) = polled {
                if let Err(failed) = again.fall_back(naming, give_up, now) {
                    self.all.swap_remove(at);
                    return Err(failed);
                }
                polled = again.request.poll(path, now, rng, out);
            }
            if polled == Ok(true) {
                sent(again.index);
            }
        }
        Ok(())
    }

    /// A path is no more.
    pub(crate) fn path_removed(&mut self, path: PathId, now: Instant) {
        for again in &mut self.all {
            again.request.path_removed(path, now);
        }
    }

    /// Forgets the units that are not wanted any more.
    pub(crate) fn retain(&mut self, mut is_wanted: impl FnMut(u64) -> bool) {
        self.all.retain(|again| is_wanted(again.index));
    }

    /// When the next is due.
    pub(crate) fn next_wakeup(&self) -> Option<Instant> {
        self.all.iter().map(|again| again.request.due_at()).min()
    }
}

impl Again {
    /// No one has the packet of this digest: a producer may have signed the object anew, so that
    /// any packet of the name may do.
    fn fall_back(&mut self, naming: &Naming, reason: GiveUp, now: Instant) -> Result<(), Failed> {
        if !core::mem::take(&mut self.is_by_digest) {
            return Err(Failed { index: self.index, reason });
        }
        self.request = request(naming, self.index, None, self.selectors, now);
        Ok(())
    }
}

fn request(
    naming: &Naming,
    index: u64,
    digest: Option<[u8; 32]>,
    selectors: Selectors,
    now: Instant,
) -> Request {
    let mut name = naming.name_of(index);
    if let Some(digest) = digest {
        name.append_implicit_digest(digest);
    }
    Request::new(name.value().to_vec(), selectors, DISCOVERY_TRIES, now)
}

#[cfg(test)]
mod tests {
    use weir_wire::Name;

    use super::super::layout::Layout;
    use super::*;

    /// Refuses what is asked for until it is asked for otherwise or no more.
    fn refuse(
        asked: &mut AskedAgain,
        naming: &Naming,
        wire: &[u8],
        now: &mut Instant,
    ) -> Result<Vec<u8>, Failed> {
        let mut rng = Rng::from_seed(1);
        let mut wire = wire.to_vec();
        loop {
            let interest = InterestView::decode(&wire).unwrap();
            asked.nacked(naming, &interest, NackReason::NoRoute, *now).expect("it is ours")?;
            *now = asked.next_wakeup().unwrap().max(*now);
            let mut out = InterestBatch::default();
            asked.poll(naming, PathId(0), *now, &mut rng, &mut out, |_| {})?;
            let next = out.iter().next().unwrap().1.to_vec();
            if InterestView::decode(&next).unwrap().name != interest.name {
                return Ok(next);
            }
            wire = next;
        }
    }

    #[test]
    fn what_is_nowhere_by_its_digest_is_asked_for_by_name_alone() {
        let name: Name = "/a/54=%01".parse().unwrap();
        let naming = Naming::Object(Layout::new(name.as_view()));
        let segment = naming.name_of(3);
        let mut full = segment.clone();
        full.append_implicit_digest([7; 32]);
        let (mut asked, mut now) = (AskedAgain::default(), Instant::from_ns(1));
        assert!(asked.ask(&naming, 3, Some([7; 32]), Selectors::default(), now));
        let mut out = InterestBatch::default();
        let mut rng = Rng::from_seed(1);
        asked.poll(&naming, PathId(0), now, &mut rng, &mut out, |_| {}).unwrap();
        let (_, first) = out.iter().next().unwrap();
        assert_eq!(InterestView::decode(first).unwrap().name, full.as_view());

        let plain = refuse(&mut asked, &naming, first, &mut now).unwrap();
        assert_eq!(InterestView::decode(&plain).unwrap().name, segment.as_view());
        let given_up = refuse(&mut asked, &naming, &plain, &mut now).unwrap_err();
        assert_eq!(given_up, Failed { index: 3, reason: GiveUp::NoRoute });
        assert!(asked.is_empty());
    }

    #[test]
    fn the_units_asked_for_again_at_one_time_are_bounded() {
        let naming = Naming::Object(Layout::new(Name::new().as_view()));
        let mut asked = AskedAgain::default();
        for index in 0..=AGAIN_MAX as u64 {
            let has_room =
                asked.ask(&naming, index, None, Selectors::default(), Instant::from_ns(1));
            assert_eq!(has_room, index < AGAIN_MAX as u64);
        }
        assert!(asked.take_answered(4, Instant::from_ns(1)).is_some());
        assert!(asked.take_answered(4, Instant::from_ns(1)).is_none());
    }
}
