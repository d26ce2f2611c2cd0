//! Adaptive.

use weir_base::{FaceId, Instant, Rng};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Home {
    pub(crate) queue: u32,
    pub(crate) expected_wait_ns: u64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Trip {
    meter: u32,
}

pub(crate) enum Choice {
    Home,
    Away { hop: usize, is_probe: bool, trip: Option<Trip> },
}

pub(crate) struct Adaptive {
    rng: Rng,
}

impl Adaptive {
    pub(crate) fn new(seed: u64) -> Self {
        Self { rng: Rng::from_seed(seed) }
    }

    pub(crate) fn choose(
        &mut self,
        now: Instant,
        home: Home,
        threshold: u32,
        fib: u32,
        hops: impl Iterator<Item = FaceId>,
    ) -> Choice {
        let _ = (now, fib, home.expected_wait_ns);
        if home.queue >= threshold && hops.count() > 0 {
            return Choice::Away {
                hop: 0,
                is_probe: false,
                trip: Some(Trip { meter: self.rng.next_u32() }),
            };
        }
        Choice::Home
    }

    pub(crate) fn on_read(&mut self, ahead: u32, took_ns: u64) {
        let _ = (ahead, took_ns);
    }

    pub(crate) fn read_ns(&self) -> u64 {
        0
    }

    pub(crate) fn end_trip(
        &mut self,
        now: Instant,
        trip: &Trip,
        took_ns: u64,
        upstream: Option<FaceId>,
    ) {
        let _ = (now, trip.meter, took_ns, upstream);
    }
}
