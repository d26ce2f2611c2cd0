//! `[[consumer]]`.

use std::num::{NonZeroU32, NonZeroU64};
use std::sync::Arc;

use serde::Deserialize;
use weir_base::Rng;
use weir_base::units::{Frequency, Time};
use weir_baselines::controllers::CONTROLLERS;
use weir_plan::workload::{
    Arrivals, Collection, ConsumerPlan, Demand, Names, Popularity, QualityChoice, Trace,
    WorkloadError,
};
use weir_transport::{CHUNK_SEGMENTS_MAX, Controller, ControllerError, HoldingsMode, PathSchedule};

use super::{GroupContext, ProducerGroup};
use crate::document::{ScenarioError, Tree, suggestion, texts};
use crate::folder::Folder;
use crate::links::{LinkSettings, LinkTable};

/// Limit on the requests of a generated trace.
const REQUESTS_MAX: u64 = 10_000_000;

/// `[[consumer]]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(expecting = "a table", deny_unknown_fields)]
pub(crate) struct ConsumerTable {
    id: String,
    #[serde(deserialize_with = "texts")]
    at: Vec<String>,
    per_node: Option<NonZeroU64>,
    link: Option<LinkTable>,
    of: String,
    spread: Option<NonZeroU64>,
    #[serde(default)]
    popularity: PopularityWord,
    exponent: Option<f64>,
    shift: Option<f64>,
    trace: Option<String>,
    #[serde(default)]
    repeats: RepeatsWord,
    requests: Option<NonZeroU64>,
    arrivals: Option<ArrivalsWord>,
    rate: Option<Frequency>,
    on: Option<Time>,
    off: Option<Time>,
    off_max: Option<Time>,
    burst: Option<NonZeroU32>,
    window: Option<NonZeroU32>,
    count: Option<NonZeroU64>,
    #[serde(default)]
    objects: bool,
    live: Option<PlayerTable>,
    controller: Option<String>,
    start: Option<Time>,
    stagger: Option<Time>,
    stop: Option<Time>,
    lifetime: Option<Time>,
    verification: Option<Time>,
    decrease_interval: Option<Time>,
    #[serde(default)]
    losses: LossesWord,
    chunk: Option<NonZeroU32>,
    #[serde(default)]
    schedule: PathSchedule,
    #[serde(default)]
    holdings: HoldingsMode,
    #[serde(default)]
    prefetches: bool,
    /// Further links, to other nodes than `at`.
    #[serde(default)]
    path: Vec<PathTable>,
}

/// `live`: players of live channels.
#[derive(Clone, Debug, Deserialize)]
#[serde(expecting = "a table", deny_unknown_fields)]
struct PlayerTable {
    /// How long a player watches a channel.
    switch: Time,
    quality: QualityChoice,
}

/// `[[consumer.path]]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(expecting = "a table", deny_unknown_fields)]
struct PathTable {
    to: String,
    window: Option<NonZeroU32>,
    link: Option<LinkTable>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum PopularityWord {
    #[default]
    Sequential,
    Uniform,
    Zipf,
    ZipfMandelbrot,
    Trace,
    Turns,
}

/// What a repeated request of a trace requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum RepeatsWord {
    #[default]
    Same,
    /// Another segment of the same object, which no other request uses.
    Apart,
}

/// When an unanswered Interest counts as lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum LossesWord {
    /// When the transport detects the loss.
    #[default]
    Transport,
    Lifetime,
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum ArrivalsWord {
    Poisson,
    Constant,
    OnOff,
    Bursts,
}

#[derive(Clone, Debug)]
pub(crate) struct ConsumerGroup {
    /// Its path in the file.
    pub(crate) path: String,
    pub(crate) id: String,
    pub(crate) at: Vec<String>,
    pub(crate) per_node: u64,
    pub(crate) link: LinkSettings,
    pub(crate) of: String,
    /// The number of producers of the group, from the first, that they are spread over.
    pub(crate) spread: Option<u64>,
    popularity: ObjectOrder,
    demand: Demand,
    start_ns: u64,
    stagger_ns: u64,
    stop_ns: Option<u64>,
    pub(crate) lifetime_ms: u64,
    verify_ns: u64,
    decrease_interval_ns: Option<u64>,
    waits_for_lifetime: bool,
    chunk_units: u32,
    schedule: PathSchedule,
    holdings: HoldingsMode,
    path_windows: Vec<Option<u32>>,
    pub(crate) prefetches: bool,
    /// Further links of each consumer: the node, and the link's settings.
    pub(crate) paths: Vec<(String, LinkSettings)>,
}

/// Which object is next. The producer knows how many there are.
#[derive(Clone, Debug)]
enum ObjectOrder {
    Sequential,
    Uniform,
    Zipf {
        exponent: f64,
    },
    ZipfMandelbrot {
        exponent: f64,
        shift: f64,
    },
    Trace(Arc<[(u64, u64)]>),
    /// A number of requests, for one object after another and a random segment of each.
    Turns {
        requests: u64,
    },
}

pub(crate) fn consumers(
    tree: &Tree,
    tables: &[ConsumerTable],
    access: &LinkSettings,
    folder: &Folder,
) -> Result<Vec<ConsumerGroup>, ScenarioError> {
    let places =
        (0..tables.len()).map(|at| GroupContext { tree, folder, path: format!("consumer[{at}]") });
    tables.iter().zip(places).map(|(table, context)| table.group(&context, access)).collect()
}

impl ConsumerTable {
    fn group(
        &self,
        context: &GroupContext<'_>,
        access: &LinkSettings,
    ) -> Result<ConsumerGroup, ScenarioError> {
        context.check_id(&self.id)?;
        context.check_at(&self.at)?;
        // NDN's default InterestLifetime is 4 s.
        let lifetime_ms = self.lifetime.map_or(4_000, |time| time.ns / 1_000_000);
        if lifetime_ms == 0 {
            return Err(context.error("lifetime", "is below 1ms; write at least 1ms"));
        }
        let ns = |time: Option<Time>| time.map_or(0, |time| time.ns);
        let demand = self.demand(context)?;
        let verify_ns = ns(self.verification);
        if verify_ns > 0 && matches!(demand, Demand::Arrivals { .. }) {
            let problem =
                "single Interests are not verified; add `window`, `controller` or `objects`";
            return Err(context.error("verification", problem));
        }
        if self.losses != LossesWord::Transport && matches!(demand, Demand::Arrivals { .. }) {
            let problem = "single Interests are not retransmitted; remove this key";
            return Err(context.error("losses", problem));
        }
        let chunk_units = self.chunk_units(context, &demand)?;
        self.check_times(context)?;
        self.check_prefetches(context, &demand)?;
        self.check_holdings(context, &demand)?;
        let link = context.link(access, self.link.as_ref())?;
        let is_single = matches!(demand, Demand::Arrivals { .. });
        if is_single && !(self.path.is_empty() && self.schedule == PathSchedule::Single) {
            let problem = "single Interests use one link; add `window`, `controller` or `objects`";
            return Err(context.error("path", problem));
        }
        let paths = self
            .path
            .iter()
            .map(|path| Ok((path.to.clone(), context.link(&link, path.link.as_ref())?)));
        Ok(ConsumerGroup {
            paths: paths.collect::<Result<_, ScenarioError>>()?,
            schedule: self.schedule,
            holdings: self.holdings,
            prefetches: self.prefetches,
            path_windows: self.path.iter().map(|path| path.window.map(NonZeroU32::get)).collect(),
            id: self.id.clone(),
            at: self.at.clone(),
            per_node: self.per_node.map_or(1, NonZeroU64::get),
            link,
            of: self.of.clone(),
            spread: self.spread.map(NonZeroU64::get),
            popularity: self.object_order(context)?,
            demand,
            start_ns: ns(self.start),
            stagger_ns: ns(self.stagger),
            stop_ns: self.stop.map(|time| time.ns),
            lifetime_ms,
            verify_ns,
            decrease_interval_ns: self.decrease_interval.map(|time| time.ns),
            waits_for_lifetime: self.losses == LossesWord::Lifetime,
            chunk_units,
            path: context.path.clone(),
        })
    }

    fn chunk_units(
        &self,
        context: &GroupContext<'_>,
        demand: &Demand,
    ) -> Result<u32, ScenarioError> {
        let chunk_units = self.chunk.map_or(1, NonZeroU32::get);
        if chunk_units > CHUNK_SEGMENTS_MAX {
            let problem = format!("is {chunk_units}; write at most {CHUNK_SEGMENTS_MAX} segments");
            return Err(context.error("chunk", problem));
        }
        if chunk_units > 1 && matches!(demand, Demand::Arrivals { .. }) {
            let problem = "single Interests have no window; remove this key";
            return Err(context.error("chunk", problem));
        }
        Ok(chunk_units)
    }

    fn check_holdings(
        &self,
        context: &GroupContext<'_>,
        demand: &Demand,
    ) -> Result<(), ScenarioError> {
        if self.holdings == HoldingsMode::Ignore || matches!(demand, Demand::Objects { .. }) {
            return Ok(());
        }
        let problem = "only whole objects use the holdings of routers; write objects = true";
        Err(context.error("holdings", problem))
    }

    fn check_prefetches(
        &self,
        context: &GroupContext<'_>,
        demand: &Demand,
    ) -> Result<(), ScenarioError> {
        if matches!(demand, Demand::Window { .. } | Demand::Controlled { .. }) || !self.prefetches {
            return Ok(());
        }
        let problem = "a prefetch fetches consecutive segments; add `window` or `controller`";
        Err(context.error("prefetches", problem))
    }

    fn check_times(&self, context: &GroupContext<'_>) -> Result<(), ScenarioError> {
        if self.decrease_interval.is_some() && self.controller.is_none() {
            let problem = "only a `controller` decreases its window; remove this key";
            return Err(context.error("decrease_interval", problem));
        }
        let start = self.start.unwrap_or(Time { ns: 0 });
        let Some(stop) = self.stop.filter(|stop| stop.ns <= start.ns) else { return Ok(()) };
        let problem = format!(
            "is {stop}, but `start` is {start}, so nothing is requested; raise `stop` or lower \
             `start`"
        );
        Err(context.error("stop", problem))
    }

    fn object_order(&self, context: &GroupContext<'_>) -> Result<ObjectOrder, ScenarioError> {
        use PopularityWord::{Sequential, Trace, Turns, Uniform, Zipf, ZipfMandelbrot};
        let word = self.popularity;
        for (key, is_given, words, first) in [
            ("exponent", self.exponent.is_some(), &[Zipf, ZipfMandelbrot][..], "zipf"),
            ("shift", self.shift.is_some(), &[ZipfMandelbrot], "zipf-mandelbrot"),
            ("trace", self.trace.is_some(), &[Trace], "trace"),
            ("repeats", self.repeats != RepeatsWord::Same, &[Trace], "trace"),
            ("requests", self.requests.is_some(), &[Turns], "turns"),
        ] {
            if is_given && !words.contains(&word) {
                let message = format!(
                    "has no meaning for this popularity; remove it, or write popularity = \
                     \"{first}\""
                );
                return Err(context.error(key, message));
            }
        }
        let positive = |key: &str, value: Option<f64>| match value {
            Some(value) if value >= 0.0 && value.is_finite() => Ok(value),
            Some(value) => Err(context.error(key, format!("is {value}; write at least 0"))),
            None => Err(context.refuse(&format!("lacks `{key}`; write for example {key} = 0.8"))),
        };
        Ok(match word {
            Sequential => ObjectOrder::Sequential,
            Uniform => ObjectOrder::Uniform,
            Zipf => ObjectOrder::Zipf { exponent: positive("exponent", self.exponent)? },
            ZipfMandelbrot => ObjectOrder::ZipfMandelbrot {
                exponent: positive("exponent", self.exponent)?,
                shift: positive("shift", self.shift)?,
            },
            Trace => ObjectOrder::Trace(self.trace(context)?),
            Turns => match self.requests.map(NonZeroU64::get) {
                Some(requests) if requests <= REQUESTS_MAX => ObjectOrder::Turns { requests },
                Some(requests) => {
                    let message = format!("is {requests}; write at most {REQUESTS_MAX}");
                    return Err(context.error("requests", message));
                }
                None => {
                    let message = "lacks `requests`; write for example requests = 20000";
                    return Err(context.refuse(message));
                }
            },
        })
    }

    /// Reads a CSV file with name and segment. Names are numbered by their first occurrence.
    fn trace(&self, context: &GroupContext<'_>) -> Result<Arc<[(u64, u64)]>, ScenarioError> {
        let file = self.trace.as_deref().ok_or_else(|| {
            context.refuse("lacks `trace`; write for example trace = \"requests.csv\"")
        })?;
        let text = context.folder.read(file).map_err(|message| context.error("trace", message))?;
        let requests = |trace: Trace| match self.repeats {
            RepeatsWord::Same => trace.requests,
            RepeatsWord::Apart => trace.with_repeats_apart(),
        };
        Trace::from_csv(&text).map(requests).map_err(|error| {
            let line = match &error {
                WorkloadError::TraceLine { line, .. } => Some(*line),
                _ => None,
            };
            let text = error.to_string();
            let message = match line {
                Some(line) => text.trim_start_matches(&format!("line {line}: ")).to_owned(),
                None => text,
            };
            ScenarioError { file: file.to_owned(), line, message }
        })
    }

    fn demand(&self, context: &GroupContext<'_>) -> Result<Demand, ScenarioError> {
        let arrivals = self.arrivals(context)?;
        let count = self.count.map(NonZeroU64::get);
        let window = self.window.map(NonZeroU32::get);
        if let Some(text) = &self.controller {
            CONTROLLERS.parse(text).map_err(|error| {
                let message = match error {
                    ControllerError::Unknown { name, known } => {
                        format!(
                            "unknown controller \"{name}\"; {}",
                            suggestion(&name, &known.names())
                        )
                    }
                    error => error.to_string(),
                };
                context.error("controller", message)
            })?;
        }
        let controller = self.controller.clone();
        let controller = controller.unwrap_or_else(|| Controller::default().to_string());
        if let Some(PlayerTable { switch, quality }) = &self.live {
            if self.objects || arrivals.is_some() || count.is_some() {
                let message = "excludes `objects`, `rate` and `count`; remove them";
                return Err(context.error("live", message));
            }
            let (switch_ns, quality) = (switch.ns, *quality);
            return Ok(Demand::Live { switch_ns, quality, controller, window });
        }
        if self.objects {
            return Ok(Demand::Objects { arrivals, count, controller, window });
        }
        if let Some(controller) = self.controller.clone() {
            if arrivals.is_some() {
                return Err(context.error(
                    "rate",
                    "a consumer has either a `rate` or a `controller`; remove one of them",
                ));
            }
            return Ok(Demand::Controlled { controller, window, count });
        }
        match (arrivals, window) {
            (Some(_), None) if count.is_some() => Err(context.error(
                "count",
                "`count` limits a `window` or `objects`; for a `rate`, write `stop`",
            )),
            (Some(arrivals), None) => Ok(Demand::Arrivals { arrivals }),
            (None, Some(window)) => Ok(Demand::Window { window, count }),
            (Some(_), Some(_)) => Err(context.error(
                "window",
                "a consumer has either a `rate` or a `window`; remove one of them",
            )),
            (None, None) => Err(context.refuse(
                "does not say what it requests; write rate = \"1kpps\", window = 16, objects = \
                 true, or `live` for a player of live channels",
            )),
        }
    }

    fn arrivals(&self, context: &GroupContext<'_>) -> Result<Option<Arrivals>, ScenarioError> {
        let Some(Frequency { hz: rate_hz }) = self.rate else {
            return match self.arrivals {
                Some(_) => Err(context
                    .error("arrivals", "`arrivals` needs a `rate`, such as rate = \"1kpps\"")),
                None => Ok(None),
            };
        };
        self.check_arrivals_keys(context)?;
        let ns = |time: Option<Time>| time.map_or(0, |time| time.ns);
        let off_ns = ns(self.off);
        Ok(Some(match self.arrivals {
            Some(ArrivalsWord::Constant) => Arrivals::Constant { rate_hz },
            Some(ArrivalsWord::OnOff) => Arrivals::OnOff { rate_hz, on_ns: ns(self.on), off_ns },
            Some(ArrivalsWord::Bursts) => Arrivals::Bursts {
                rate_hz,
                size: self.burst.map_or(1, NonZeroU32::get),
                off_ns,
                off_max_ns: self.off_max.map_or(off_ns, |time| time.ns),
            },
            _ => Arrivals::Poisson { rate_hz },
        }))
    }

    /// Rejects keys of other arrival processes, and missing keys.
    fn check_arrivals_keys(&self, context: &GroupContext<'_>) -> Result<(), ScenarioError> {
        let is_on_off = self.arrivals == Some(ArrivalsWord::OnOff);
        let is_bursts = self.arrivals == Some(ArrivalsWord::Bursts);
        let keys = [
            ("on", self.on.is_some(), is_on_off, "arrivals = \"on-off\"", "\"100ms\""),
            ("off", self.off.is_some(), is_on_off || is_bursts, "on-off and bursts", "\"100ms\""),
            ("burst", self.burst.is_some(), is_bursts, "arrivals = \"bursts\"", "250"),
        ];
        for (key, is_there, is_wanted, of, example) in keys {
            if is_there && !is_wanted {
                return Err(context.error(key, format!("belongs to {of}; leave it out")));
            }
            if is_wanted && !is_there {
                let message = format!("lacks `{key}`; write for example {key} = {example}");
                return Err(context.refuse(&message));
            }
        }
        if self.off_max.is_some() && !is_bursts {
            return Err(context.error("off_max", "belongs to arrivals = \"bursts\"; remove it"));
        }
        Ok(())
    }
}

impl ConsumerGroup {
    /// Whether its consumers are players of live channels.
    pub(crate) fn is_player(&self) -> bool {
        matches!(self.demand, Demand::Live { .. })
    }

    /// The plan of the `index`-th consumer, which requests the content of the producer of `prefix`.
    pub(crate) fn plan(
        &self,
        index: usize,
        of: &ProducerGroup,
        prefix: &str,
        seed: u64,
    ) -> Result<ConsumerPlan, WorkloadError> {
        let objects = of.objects;
        let popularity = match &self.popularity {
            ObjectOrder::Sequential => Popularity::Sequential { objects },
            ObjectOrder::Uniform => Popularity::Uniform { objects },
            ObjectOrder::Zipf { exponent } => Popularity::Zipf { objects, exponent: *exponent },
            ObjectOrder::ZipfMandelbrot { exponent, shift } => {
                Popularity::ZipfMandelbrot { objects, exponent: *exponent, shift: *shift }
            }
            ObjectOrder::Trace(requests) => Popularity::Trace { requests: Arc::clone(requests) },
            ObjectOrder::Turns { requests } => {
                let names = of.names(prefix, Popularity::Sequential { objects });
                // Consumers of one group draw different segments.
                let seed = seed ^ (index as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                Popularity::Trace { requests: round_robin_trace(&names, *requests, seed)? }
            }
        };
        Ok(ConsumerPlan {
            start_ns: self.start_ns + self.stagger_ns * index as u64,
            stop_ns: self.stop_ns,
            lifetime_ms: self.lifetime_ms,
            verify_ns: self.verify_ns,
            decrease_interval_ns: self.decrease_interval_ns,
            waits_for_lifetime: self.waits_for_lifetime,
            chunk_units: self.chunk_units,
            schedule: self.schedule,
            holdings: self.holdings,
            path_windows: self.path_windows.clone(),
            prefetches: self.prefetches,
            names: of.names(prefix, popularity),
            demand: self.demand.clone(),
        })
    }
}

/// Requests for one object after another, cyclically, each for a random segment.
fn round_robin_trace(
    names: &Names,
    requests: u64,
    seed: u64,
) -> Result<Arc<[(u64, u64)]>, WorkloadError> {
    let collection = Collection::new(names)?;
    let mut rng = Rng::from_seed(seed);
    let request = |number: u64| {
        let object = number % collection.object_count();
        let segments = u128::from(collection.shape(object).segments);
        (object, ((u128::from(rng.next_u64()) * segments) >> 64) as u64)
    };
    Ok((0..requests).map(request).collect())
}
