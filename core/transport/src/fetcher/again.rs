//! Packets that the driver could not verify, asked for again one by one, outside the pipeline.

use alloc::vec::Vec;

use weir_base::{Instant, Rng};
use weir_wire::{InterestView, NackReason, Name};

use super::DISCOVERY_TRIES;
use super::layout::{Layout, Part};
use crate::interest::{InterestBatch, Selectors};
use crate::pipeline::GiveUp;
use crate::request::Request;

/// Asked for again at one time at most.
pub(crate) const AGAIN_MAX: usize = 256;

/// One packet that is asked for again.
#[derive(Debug)]
struct Again {
    part: Part,
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

    /// Asks for `part` again, with its digest if that is known: routers then pass over what they
    /// have of its name. False when there are too many.
    pub(crate) fn ask(
        &mut self,
        layout: &Layout,
        part: Part,
        digest: Option<[u8; 32]>,
        selectors: Selectors,
        now: Instant,
    ) -> bool {
        if self.all.len() >= AGAIN_MAX {
            return false;
        }
        let request = request(layout, part, digest, selectors, now);
        let is_by_digest = digest.is_some();
        self.all.push(Again { part, is_by_digest, selectors, request });
        true
    }

    /// Whether `part`, which has come, was asked for again; it is no more. The driver finds out
    /// whether it is better now.
    pub(crate) fn is_answered(&mut self, part: Part) -> bool {
        let answered = self.all.iter().position(|again| again.part == part);
        answered.map(|index| self.all.swap_remove(index)).is_some()
    }

    /// Takes a Nack; the name of what is given up for it. `None` when the Nack is of another
    /// Interest.
    pub(crate) fn nacked(
        &mut self,
        layout: &Layout,
        interest: &InterestView<'_>,
        reason: NackReason,
        now: Instant,
    ) -> Option<Result<(), (Name, GiveUp)>> {
        let again = self.all.iter_mut().find(|again| again.request.name() == interest.name)?;
        let result = again.request.nacked(interest, reason, now);
        Some(result.or_else(|give_up| again.fall_back(layout, give_up, now)))
    }

    /// Sends what is due.
    pub(crate) fn poll(
        &mut self,
        layout: &Layout,
        now: Instant,
        rng: &mut Rng,
        out: &mut InterestBatch,
    ) -> Result<(), (Name, GiveUp)> {
        for again in &mut self.all {
            if let Err(give_up) = again.request.poll(now, rng, out) {
                again.fall_back(layout, give_up, now)?;
                // It is sent for the first time: that does not fail.
                let _ = again.request.poll(now, rng, out);
            }
        }
        Ok(())
    }

    /// When the next is due.
    pub(crate) fn next_wakeup(&self) -> Option<Instant> {
        self.all.iter().map(|again| again.request.due_at()).min()
    }
}

impl Again {
    /// Nobody has the packet of this digest: a producer may have signed the object anew, so that
    /// any packet of the name may do.
    fn fall_back(
        &mut self,
        layout: &Layout,
        give_up: GiveUp,
        now: Instant,
    ) -> Result<(), (Name, GiveUp)> {
        if !core::mem::take(&mut self.is_by_digest) {
            return Err((layout.name_of(self.part), give_up));
        }
        self.request = request(layout, self.part, None, self.selectors, now);
        Ok(())
    }
}

fn request(
    layout: &Layout,
    part: Part,
    digest: Option<[u8; 32]>,
    selectors: Selectors,
    now: Instant,
) -> Request {
    let mut name = layout.name_of(part);
    if let Some(digest) = digest {
        name.append_implicit_digest(digest);
    }
    Request::new(name.value().to_vec(), selectors, DISCOVERY_TRIES, now)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Refuses what is asked for until it is asked for otherwise or no more.
    fn refuse(
        asked: &mut AskedAgain,
        layout: &Layout,
        wire: &[u8],
        now: &mut Instant,
    ) -> Result<Vec<u8>, (Name, GiveUp)> {
        let mut rng = Rng::from_seed(1);
        let mut wire = wire.to_vec();
        loop {
            let interest = InterestView::decode(&wire).unwrap();
            asked.nacked(layout, &interest, NackReason::NoRoute, *now).expect("it is ours")?;
            *now = asked.next_wakeup().unwrap().max(*now);
            let mut out = InterestBatch::default();
            asked.poll(layout, *now, &mut rng, &mut out)?;
            let next = out.iter().next().unwrap().to_vec();
            if InterestView::decode(&next).unwrap().name != interest.name {
                return Ok(next);
            }
            wire = next;
        }
    }

    #[test]
    fn what_nobody_has_by_its_digest_is_asked_for_by_name_alone() {
        let name: Name = "/a/54=%01".parse().unwrap();
        let layout = Layout::new(name.as_view());
        let part = Part::Segment(3);
        let segment = layout.name_of(part);
        let mut full = segment.clone();
        full.append_implicit_digest([7; 32]);
        let (mut asked, mut now) = (AskedAgain::default(), Instant::from_ns(1));
        assert!(asked.ask(&layout, part, Some([7; 32]), Selectors::default(), now));
        let mut out = InterestBatch::default();
        asked.poll(&layout, now, &mut Rng::from_seed(1), &mut out).unwrap();
        let first = out.iter().next().unwrap();
        assert_eq!(InterestView::decode(first).unwrap().name, full.as_view());

        let plain = refuse(&mut asked, &layout, first, &mut now).unwrap();
        assert_eq!(InterestView::decode(&plain).unwrap().name, segment.as_view());
        let given_up = refuse(&mut asked, &layout, &plain, &mut now).unwrap_err();
        assert_eq!(given_up, (segment, GiveUp::NoRoute));
        assert!(!asked.is_answered(Part::Segment(4)));
        assert!(asked.is_answered(part) && asked.is_empty());
    }

    #[test]
    fn only_so_many_are_asked_for_again_at_one_time() {
        let layout = Layout::new(Name::new().as_view());
        let mut asked = AskedAgain::default();
        for segment in 0..=AGAIN_MAX as u64 {
            let part = Part::Segment(segment);
            let has_room =
                asked.ask(&layout, part, None, Selectors::default(), Instant::from_ns(1));
            assert_eq!(has_room, segment < AGAIN_MAX as u64);
        }
    }
}
