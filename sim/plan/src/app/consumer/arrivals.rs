//! Single Interests at moments of their own.

use weir_base::{Instant, NS_PER_MS, NS_PER_S, Rng};

use super::{AppOutbox, Core};
use crate::workload::random::{below, mix};
use crate::workload::{
    ArrivalProcess, ConsumerPlan, Demand, ObjectChooser, Popularity, WorkloadError,
};

/// Interests in flight that a plan may bring about.
const IN_FLIGHT_MAX: f64 = (1 << 22) as f64;
/// How far above its mean the number in flight may go, and how far at least.
const IN_FLIGHT_SPARE: f64 = 2.0;
const IN_FLIGHT_LEAST: f64 = 1024.0;
/// Who asked.
const OWNER: u64 = 0;

/// An open loop: Interests leave whatever becomes of those before.
#[derive(Debug)]
pub(super) struct OpenLoop {
    process: ArrivalProcess,
    next: Option<Instant>,
    segments: SegmentChooser,
    /// With more in flight the oldest is given up, as if its lifetime were over.
    in_flight_max: usize,
}

impl OpenLoop {
    pub(super) fn new(plan: &ConsumerPlan, core: &Core, seed: u64) -> Result<Self, WorkloadError> {
        let Demand::Arrivals { arrivals } = &plan.demand else { unreachable!("the caller looked") };
        let mut process = ArrivalProcess::new(arrivals, plan.start_ns, mix(seed ^ 1))?;
        let lifetime_ns = (plan.lifetime_ms * NS_PER_MS) as f64;
        let in_flight = arrivals.peak_rate_hz() * lifetime_ns / NS_PER_S as f64;
        if in_flight > IN_FLIGHT_MAX {
            let problem = format!(
                "makes {in_flight:.0} Interests be in flight when none is answered within \
                 lifetime_ms; shorten that, or stay below {IN_FLIGHT_MAX}"
            );
            return Err(WorkloadError::value("rate_hz", problem));
        }
        let next = Some(Instant::from_ns(process.next_ns())).filter(|&at| at < core.stop);
        Ok(Self {
            process,
            next,
            segments: SegmentChooser::new(&plan.names.popularity, mix(seed ^ 2))?,
            in_flight_max: (IN_FLIGHT_SPARE * in_flight + IN_FLIGHT_LEAST) as usize,
        })
    }

    pub(super) fn advance(&mut self, core: &mut Core, out: &mut AppOutbox) {
        while let Some(at) = self.next.filter(|&at| at <= core.now) {
            debug_assert!(at < core.stop);
            self.next = Some(Instant::from_ns(self.process.next_ns())).filter(|&at| at < core.stop);
            if !core.may_send() {
                // A driver that is late: the run is over.
                self.next = None;
                return;
            }
            if core.pending.len() >= self.in_flight_max
                && let Some(oldest) = core.pending.expire_oldest()
            {
                core.timed_out(oldest, out);
                core.pending.remove(oldest);
            }
            let asked = self.segments.next_segment(core);
            core.send(asked, OWNER, 1, out);
        }
    }

    pub(super) fn next_wakeup(&self) -> Option<Instant> {
        self.next
    }
}

/// Draws single segments: those of a trace; all of one object after another, when objects are
/// sequential; else any segment of an object that is drawn.
#[derive(Debug)]
pub(super) struct SegmentChooser {
    objects: ObjectChooser,
    rng: Rng,
    is_sequential: bool,
    /// The object at hand, its next segment, and its segments.
    current: Option<(u64, u64, u64)>,
}

impl SegmentChooser {
    fn new(popularity: &Popularity, seed: u64) -> Result<Self, WorkloadError> {
        Ok(Self {
            objects: ObjectChooser::new(popularity, seed)?,
            rng: Rng::from_seed(mix(seed)),
            is_sequential: matches!(popularity, Popularity::Sequential { .. }),
            current: None,
        })
    }

    fn next_segment(&mut self, core: &Core) -> (u64, u64) {
        if let Some((object, segment, segments)) = self.current {
            self.current = (segment + 1 < segments).then_some((object, segment + 1, segments));
            return (object, segment);
        }
        let (object, segment) = self.objects.next_request();
        if let Some(segment) = segment {
            return (object, segment);
        }
        let segments = core.collection.shape(object).segments;
        if !self.is_sequential {
            return (object, if segments == 1 { 0 } else { below(&mut self.rng, segments) });
        }
        self.current = (segments > 1).then_some((object, 1, segments));
        (object, 0)
    }
}
