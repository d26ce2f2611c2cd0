//! Interests sent one by one, outside the window: those of discovery, and those for packets that
//! arrived damaged or got no answer.

use alloc::vec::Vec;

use weir_base::{Instant, Rng};
use weir_wire::{DataView, InterestView};

use super::scoreboard::FailReason;
use crate::PathId;
use crate::interest::InterestBatch;
use crate::request::{Nack, Request, RetryLimits};

/// How many requests [`Requests::has_room`] allows.
const REQUESTS_MAX: usize = 256;

/// Retry limits of a single Interest: 1 + 2 + 4 + 4 s with the default lifetime.
pub(super) const SINGLE_TRIES: RetryLimits =
    RetryLimits { sends_max: 4, nacks_max: 6, needs_route: false };

#[derive(Debug)]
struct PendingRequest<P> {
    purpose: P,
    request: Request,
    /// The request that replaces this one if it fails.
    fallback: Option<Request>,
}

/// Requests, each for a purpose `P`.
#[derive(Debug)]
pub(super) struct Requests<P> {
    all: Vec<PendingRequest<P>>,
}

impl<P> Default for Requests<P> {
    fn default() -> Self {
        Self { all: Vec::new() }
    }
}

impl<P: Copy + PartialEq> Requests<P> {
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(super) fn has_room(&self) -> bool {
        self.all.len() < REQUESTS_MAX
    }

    pub(super) fn clear(&mut self) {
        self.all.clear();
    }

    pub(super) fn contains(&self, purpose: P) -> bool {
        self.any(|one| one == purpose)
    }

    pub(super) fn any(&self, mut is_it: impl FnMut(P) -> bool) -> bool {
        self.all.iter().any(|entry| is_it(entry.purpose))
    }

    /// Adds a request, to be sent when it is due.
    pub(super) fn add(&mut self, purpose: P, request: Request) {
        self.all.push(PendingRequest { purpose, request, fallback: None });
    }

    /// Adds a request, and another one to replace it if it fails.
    pub(super) fn add_with_fallback(&mut self, purpose: P, request: Request, fallback: Request) {
        self.all.push(PendingRequest { purpose, request, fallback: Some(fallback) });
    }

    /// Removes the request for this purpose.
    pub(super) fn take(&mut self, purpose: P) -> Option<Request> {
        let at = self.all.iter().position(|entry| entry.purpose == purpose)?;
        Some(self.all.swap_remove(at).request)
    }

    /// Removes the request that `data` answers.
    pub(super) fn take_answered(&mut self, data: &DataView<'_>) -> Option<(P, Request)> {
        let at = self.all.iter().position(|entry| entry.request.is_answered_by(data))?;
        let PendingRequest { purpose, request, .. } = self.all.swap_remove(at);
        Some((purpose, request))
    }

    /// Removes the request for this purpose if `data` answers it. Returns whether it does.
    pub(super) fn take_if_answered(&mut self, purpose: P, data: &DataView<'_>) -> bool {
        let is_it = |entry: &PendingRequest<P>| {
            entry.purpose == purpose && entry.request.is_answered_by(data)
        };
        let found = self.all.iter().position(is_it);
        found.map(|at| self.all.swap_remove(at)).is_some()
    }

    /// Takes a Nack. Returns the purpose, and whether all paths have refused; the error is a failed
    /// request. `None` if the Nack belongs to another Interest.
    pub(super) fn on_nack(
        &mut self,
        interest: &InterestView<'_>,
        nack: Nack,
        now: Instant,
    ) -> Option<(P, Result<bool, FailReason>)> {
        for at in 0..self.all.len() {
            let PendingRequest { purpose, request, .. } = &mut self.all[at];
            let purpose = *purpose;
            match request.on_nack(interest, nack, now) {
                Ok(false) => {}
                Ok(true) => return Some((purpose, Ok(request.is_refused_by_all_paths()))),
                Err(give_up) => {
                    return Some((purpose, self.fall_back(at, give_up).map(|()| true)));
                }
            }
        }
        None
    }

    /// How often all paths have refused the request for this purpose.
    pub(super) fn refusals(&self, purpose: P) -> u32 {
        let entry = self.all.iter().find(|entry| entry.purpose == purpose);
        entry.map_or(0, |entry| entry.request.refusals())
    }

    /// Sends requests that are due on one of `paths`, and calls `sent` for each. Returns at the
    /// first failed request.
    pub(super) fn poll(
        &mut self,
        paths: &[PathId],
        now: Instant,
        rng: &mut Rng,
        out: &mut InterestBatch,
        mut sent: impl FnMut(P, PathId),
    ) -> Result<(), (P, FailReason)> {
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

    pub(super) fn path_removed(&mut self, path: PathId, now: Instant) {
        for entry in &mut self.all {
            entry.request.path_removed(path, now);
        }
    }

    pub(super) fn retain(&mut self, mut is_wanted: impl FnMut(P) -> bool) {
        self.all.retain(|entry| is_wanted(entry.purpose));
    }

    /// When the next one is due.
    pub(super) fn next_wakeup(&self) -> Option<Instant> {
        self.all.iter().map(|entry| entry.request.due_at()).min()
    }

    /// Replaces a failed request by its fallback, or removes it.
    fn fall_back(&mut self, at: usize, reason: FailReason) -> Result<(), FailReason> {
        match self.all[at].fallback.take() {
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
    use weir_wire::{NackReason, Name};

    use super::*;
    use crate::interest::Selectors;

    const NACK: Nack = Nack { reason: NackReason::NoRoute, is_from_first_router: true };

    fn request(name: &Name, sends_max: u32, now: Instant) -> Request {
        let tries = RetryLimits { sends_max, ..SINGLE_TRIES };
        Request::new(name, Selectors::default(), tries, now)
    }

    /// Refuses a request until another name is requested, or none.
    fn refuse(
        requests: &mut Requests<u64>,
        wire: &[u8],
        now: &mut Instant,
    ) -> Result<Vec<u8>, (u64, FailReason)> {
        let mut rng = Rng::from_seed(1);
        let mut wire = wire.to_vec();
        loop {
            let interest = InterestView::decode(&wire).unwrap();
            let (purpose, result) = requests.on_nack(&interest, NACK, *now).unwrap();
            result.map_err(|give_up| (purpose, give_up))?;
            *now = requests.next_wakeup().unwrap().max(*now);
            let mut out = InterestBatch::default();
            requests.poll(&[PathId(0)], *now, &mut rng, &mut out, |_, _| {})?;
            let next = out.iter().next().unwrap().1.to_vec();
            if InterestView::decode(&next).unwrap().name != interest.name {
                return Ok(next);
            }
            wire = next;
        }
    }

    #[test]
    fn falls_back_to_name_without_digest() {
        let segment: Name = "/a/54=%01/50=%03".parse().unwrap();
        let mut full = segment.clone();
        full.append_implicit_digest([7; 32]);
        let (mut requests, mut now) = (Requests::default(), Instant::from_ns(1));
        requests.add_with_fallback(3, request(&full, 4, now), request(&segment, 16, now));
        let mut out = InterestBatch::default();
        let mut rng = Rng::from_seed(1);
        requests.poll(&[PathId(0)], now, &mut rng, &mut out, |_, _| {}).unwrap();
        let (_, first) = out.iter().next().unwrap();
        assert_eq!(InterestView::decode(first).unwrap().name, full.as_view());

        let plain = refuse(&mut requests, first, &mut now).unwrap();
        assert_eq!(InterestView::decode(&plain).unwrap().name, segment.as_view());
        let given_up = refuse(&mut requests, &plain, &mut now).unwrap_err();
        assert_eq!(given_up, (3, FailReason::NoRoute));
        assert!(requests.is_empty());
    }

    #[test]
    fn limits_number_of_requests() {
        let mut requests = Requests::default();
        for purpose in 0..REQUESTS_MAX {
            assert!(requests.has_room());
            requests.add(purpose, request(&Name::new(), 16, Instant::from_ns(1)));
        }
        assert!(!requests.has_room());
        assert!(requests.take(4).is_some());
        assert!(requests.take(4).is_none());
    }
}
