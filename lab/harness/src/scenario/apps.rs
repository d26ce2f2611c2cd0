//! `[[producer]]` and `[[consumer]]`.

use std::sync::Arc;

use weir_base::Rng;
use weir_plan::workload::{
    Arrivals, Collection, ConsumerPlan, Demand, Names, Popularity, ProducerPlan, Sizes,
    WorkloadError,
};
use weir_transport::Controller;

use super::links::{self, LinkSettings};
use crate::document::{Node, Reader, ScenarioError, Value};
use crate::folder::Folder;

pub(super) const PRODUCER: &[&str] = &[
    "id",
    "at",
    "per_node",
    "prefix",
    "link",
    "objects",
    "size",
    "sizes_file",
    "segment",
    "components",
    "freshness",
    "delay",
];
pub(super) const CONSUMER: &[&str] = &[
    "id",
    "at",
    "per_node",
    "link",
    "of",
    "spread",
    "popularity",
    "exponent",
    "shift",
    "trace",
    "requests",
    "arrivals",
    "rate",
    "on",
    "off",
    "window",
    "count",
    "objects",
    "controller",
    "start",
    "stagger",
    "stop",
    "lifetime",
    "verification",
];

/// Requests of a generated trace at most.
const REQUESTS_MAX: u64 = 10_000_000;

/// Producers that are alike.
#[derive(Clone, Debug)]
pub(super) struct ProducerGroup {
    pub(super) id: String,
    pub(super) at: Vec<String>,
    pub(super) at_line: usize,
    pub(super) per_node: u64,
    pub(super) prefix: Option<String>,
    pub(super) link: LinkSettings,
    pub(super) objects: u64,
    pub(super) sizes: Sizes,
    segment_bytes: u32,
    components: u32,
    freshness_ms: u64,
    delay_ns: u64,
    pub(super) line: usize,
}

/// Consumers that are alike.
#[derive(Clone, Debug)]
pub(super) struct ConsumerGroup {
    pub(super) id: String,
    pub(super) at: Vec<String>,
    pub(super) at_line: usize,
    pub(super) per_node: u64,
    pub(super) link: LinkSettings,
    pub(super) of: String,
    pub(super) of_line: usize,
    /// They take turns over the first so many producers of the group.
    pub(super) spread: Option<u64>,
    popularity: Asked,
    demand: Demand,
    start_ns: u64,
    stagger_ns: u64,
    stop_ns: Option<u64>,
    pub(super) lifetime_ms: u64,
    verify_ns: u64,
    pub(super) line: usize,
}

/// Which object is next; how many there are is the producer's matter.
#[derive(Clone, Debug)]
enum Asked {
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
    /// So many requests for one object after another, for any of its segments.
    Turns {
        requests: u64,
    },
}

pub(super) fn producers(
    top: &Reader<'_>,
    access: &LinkSettings,
    folder: &Folder,
) -> Result<Vec<ProducerGroup>, ScenarioError> {
    let readers = top.tables("producer", PRODUCER)?;
    readers.iter().map(|reader| producer(reader, access, folder)).collect()
}

fn producer(
    reader: &Reader<'_>,
    access: &LinkSettings,
    folder: &Folder,
) -> Result<ProducerGroup, ScenarioError> {
    let segment = reader.required("segment", "\"8KiB\"", reader.bytes("segment")?)?;
    let segment_bytes = u32::try_from(segment)
        .ok()
        .filter(|bytes| (1..=8_192).contains(bytes))
        .ok_or_else(|| {
            reader.error_at(
                "segment",
                "`segment` must be from 1B to 8KiB: a packet has 8,800 octets at most",
            )
        })?;
    let components = reader.count_u32("components", 0)?.unwrap_or(0);
    Ok(ProducerGroup {
        id: id(reader)?,
        at: at(reader)?,
        at_line: reader.node("at").map_or(reader.line(), |node| node.line),
        per_node: reader.count("per_node", 1)?.unwrap_or(1),
        prefix: reader.text("prefix")?.map(str::to_owned),
        link: link(reader, access)?,
        objects: reader.count("objects", 1)?.unwrap_or(1),
        sizes: sizes(reader, folder)?,
        segment_bytes,
        components,
        freshness_ms: reader.duration_ns("freshness")?.unwrap_or(3_600_000_000_000) / 1_000_000,
        delay_ns: reader.duration_ns("delay")?.unwrap_or(0),
        line: reader.line(),
    })
}

fn id(reader: &Reader<'_>) -> Result<String, ScenarioError> {
    let id = reader.required_text("id")?;
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"-_".contains(&b);
    if id.is_empty() || !id.bytes().all(is_plain) {
        let message = format!("`id` is \"{id}\"; write letters, digits, '-' and '_' only");
        return Err(reader.error_at("id", message));
    }
    Ok(id.to_owned())
}

fn at(reader: &Reader<'_>) -> Result<Vec<String>, ScenarioError> {
    let at = reader.required("at", "\"leaves\"", reader.texts("at")?)?;
    if at.is_empty() {
        return Err(reader.error_at("at", "`at` names no place; write for example [\"leaves\"]"));
    }
    Ok(at)
}

fn link(reader: &Reader<'_>, access: &LinkSettings) -> Result<LinkSettings, ScenarioError> {
    match reader.table("link", links::KNOWN)? {
        Some(table) => access.with(&table),
        None => Ok(access.clone()),
    }
}

fn sizes(reader: &Reader<'_>, folder: &Folder) -> Result<Sizes, ScenarioError> {
    if let Some(file) = reader.text("sizes_file")? {
        if reader.has("size") {
            return Err(reader
                .error_at("sizes_file", "sizes come from `size` or from `sizes_file`; keep one"));
        }
        let bytes = sizes_file(reader, folder, file)?;
        return Ok(Sizes::List { bytes });
    }
    match reader.node("size") {
        Some(Node { value: Value::Table(_), .. }) => log_normal(reader),
        _ => {
            let bytes = reader.required("size", "\"1MiB\"", reader.bytes("size")?)?;
            if bytes == 0 {
                return Err(reader
                    .error_at("size", "an object of no octets has no segment; write at least 1B"));
            }
            Ok(Sizes::Fixed { bytes })
        }
    }
}

fn log_normal(reader: &Reader<'_>) -> Result<Sizes, ScenarioError> {
    let known = ["mean", "sigma", "min", "max"];
    let Some(table) = reader.table("size", &known)? else {
        return Err(reader.error_at("size", "`size` is missing"));
    };
    let mean_bytes = table.required("mean", "\"1MiB\"", table.bytes("mean")?)?;
    let sigma = table.required("sigma", "1.0", table.number("sigma")?)?;
    let min_bytes = table.bytes("min")?.unwrap_or(1);
    let max_bytes = table.bytes("max")?.unwrap_or(mean_bytes.saturating_mul(100));
    if sigma <= 0.0 || min_bytes == 0 || min_bytes > mean_bytes || mean_bytes > max_bytes {
        let message = "log-normal sizes need sigma > 0 and 1B <= min <= mean <= max";
        return Err(table.error(table.line(), message));
    }
    Ok(Sizes::LogNormal { mean_bytes, sigma, min_bytes, max_bytes })
}

/// One size a line, in octets or with a unit.
fn sizes_file(
    reader: &Reader<'_>,
    folder: &Folder,
    file: &str,
) -> Result<Arc<[u64]>, ScenarioError> {
    let text = folder.read(file).map_err(|message| reader.error_at("sizes_file", message))?;
    let mut sizes = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let size = line.parse().ok().or_else(|| weir_base::units::parse_bytes(line).ok());
        match size {
            Some(size) if size > 0 => sizes.push(size),
            _ => {
                return Err(ScenarioError {
                    file: file.to_owned(),
                    line: Some(at + 1),
                    message: format!(
                        "\"{line}\" is no size; write one a line, such as 1048576 or 1MiB"
                    ),
                });
            }
        }
    }
    if sizes.is_empty() {
        return Err(
            reader.error_at("sizes_file", format!("{file} holds no size; write one a line"))
        );
    }
    Ok(sizes.into())
}

impl ProducerGroup {
    /// URI of the prefix of the `index`-th producer of `count`.
    pub(super) fn prefix(&self, index: usize, count: usize) -> String {
        match &self.prefix {
            Some(prefix) => prefix.replace("{i}", &index.to_string()),
            None if count == 1 => format!("/{}", self.id),
            None => format!("/{}/{index}", self.id),
        }
    }

    fn names(&self, prefix: &str, popularity: Popularity) -> Names {
        Names {
            prefix: prefix.to_owned(),
            components: self.components,
            popularity,
            sizes: self.sizes.clone(),
            segment_bytes: self.segment_bytes,
        }
    }

    pub(super) fn plan(&self, prefix: &str) -> ProducerPlan {
        ProducerPlan {
            names: self.names(prefix, Popularity::Sequential { objects: self.objects }),
            freshness_ms: self.freshness_ms,
            delay_ns: self.delay_ns,
        }
    }
}

pub(super) fn consumers(
    top: &Reader<'_>,
    access: &LinkSettings,
    folder: &Folder,
) -> Result<Vec<ConsumerGroup>, ScenarioError> {
    let readers = top.tables("consumer", CONSUMER)?;
    readers.iter().map(|reader| consumer(reader, access, folder)).collect()
}

fn consumer(
    reader: &Reader<'_>,
    access: &LinkSettings,
    folder: &Folder,
) -> Result<ConsumerGroup, ScenarioError> {
    let lifetime_ms = reader.duration_ns("lifetime")?.unwrap_or(4_000_000_000) / 1_000_000;
    if lifetime_ms == 0 {
        return Err(reader.error_at("lifetime", "an Interest lives at least 1ms"));
    }
    let demand = demand(reader)?;
    let verify_ns = reader.duration_ns("verification")?.unwrap_or(0);
    if verify_ns > 0 && matches!(demand, Demand::Arrivals { .. }) {
        let problem = "single Interests are not verified; give a window, a controller or objects";
        return Err(reader.error_at("verification", problem));
    }
    Ok(ConsumerGroup {
        id: id(reader)?,
        at: at(reader)?,
        at_line: reader.node("at").map_or(reader.line(), |node| node.line),
        per_node: reader.count("per_node", 1)?.unwrap_or(1),
        link: link(reader, access)?,
        of: reader.required_text("of")?.to_owned(),
        of_line: reader.node("of").map_or(reader.line(), |node| node.line),
        spread: reader.count("spread", 1)?,
        popularity: popularity(reader, folder)?,
        demand,
        start_ns: reader.duration_ns("start")?.unwrap_or(0),
        stagger_ns: reader.duration_ns("stagger")?.unwrap_or(0),
        stop_ns: reader.duration_ns("stop")?,
        lifetime_ms,
        verify_ns,
        line: reader.line(),
    })
}

fn popularity(reader: &Reader<'_>, folder: &Folder) -> Result<Asked, ScenarioError> {
    let known = ["sequential", "uniform", "zipf", "zipf-mandelbrot", "trace", "turns"];
    let word = reader.word("popularity", &known)?.unwrap_or("sequential");
    for (key, words) in [
        ("exponent", ["zipf", "zipf-mandelbrot"]),
        ("shift", ["zipf-mandelbrot"; 2]),
        ("trace", ["trace"; 2]),
        ("requests", ["turns"; 2]),
    ] {
        if reader.has(key) && !words.contains(&word) {
            let message = format!(
                "`{key}` has no meaning for popularity = \"{word}\"; leave it out, or write \
                    popularity = \"{}\"",
                words[0]
            );
            return Err(reader.error_at(key, message));
        }
    }
    let positive = |key: &str, example: &str| {
        let value = reader.required(key, example, reader.number(key)?)?;
        if value < 0.0 {
            return Err(reader.error_at(key, format!("`{key}` is {value}; write at least 0")));
        }
        Ok(value)
    };
    Ok(match word {
        "uniform" => Asked::Uniform,
        "zipf" => Asked::Zipf { exponent: positive("exponent", "0.8")? },
        "zipf-mandelbrot" => Asked::ZipfMandelbrot {
            exponent: positive("exponent", "0.8")?,
            shift: positive("shift", "5")?,
        },
        "trace" => Asked::Trace(trace(reader, folder)?),
        "turns" => {
            let requests = reader.required("requests", "20000", reader.count("requests", 1)?)?;
            if requests > REQUESTS_MAX {
                let message = format!("`requests` is {requests}; the most is {REQUESTS_MAX}");
                return Err(reader.error_at("requests", message));
            }
            Asked::Turns { requests }
        }
        _ => Asked::Sequential,
    })
}

/// A CSV file of name and segment; names are numbered in the order in which they first appear.
fn trace(reader: &Reader<'_>, folder: &Folder) -> Result<Arc<[(u64, u64)]>, ScenarioError> {
    let file = reader.required_text("trace")?;
    let text = folder.read(file).map_err(|message| reader.error_at("trace", message))?;
    weir_plan::workload::Trace::from_csv(&text).map(|trace| trace.requests).map_err(|error| {
        let line = match &error {
            weir_plan::workload::WorkloadError::TraceLine { line, .. } => Some(*line),
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

fn demand(reader: &Reader<'_>) -> Result<Demand, ScenarioError> {
    let arrivals = arrivals(reader)?;
    let count = reader.count("count", 1)?;
    let window = reader.count_u32("window", 1)?;
    let controllers: Vec<String> = Controller::ALL.iter().map(Controller::to_string).collect();
    let controllers: Vec<&str> = controllers.iter().map(String::as_str).collect();
    let controller = reader.word("controller", &controllers)?.map(str::to_owned);
    if reader.truth("objects")? == Some(true) {
        let controller = controller.unwrap_or_else(|| Controller::default().to_string());
        return Ok(Demand::Objects { arrivals, count, controller, window });
    }
    if let Some(controller) = controller {
        if arrivals.is_some() {
            return Err(reader.error_at(
                "rate",
                "a consumer asks at a `rate` or as its `controller` allows; keep one of them",
            ));
        }
        return Ok(Demand::Controlled { controller, window, count });
    }
    match (arrivals, window) {
        (Some(arrivals), None) => {
            if count.is_some() {
                return Err(reader.error_at(
                    "count",
                    "`count` ends a `window` or `objects`; Interests at a `rate` end at `stop`",
                ));
            }
            Ok(Demand::Arrivals { arrivals })
        }
        (None, Some(window)) => Ok(Demand::Window { window, count }),
        (Some(_), Some(_)) => Err(reader.error_at(
            "window",
            "a consumer asks at a `rate` or keeps a `window`; keep one of them",
        )),
        (None, None) => {
            let message = "[[consumer]] does not say how it asks; write rate = \"1kpps\", or \
                window = 16, or objects = true";
            Err(reader.error(reader.line(), message))
        }
    }
}

fn arrivals(reader: &Reader<'_>) -> Result<Option<Arrivals>, ScenarioError> {
    let word = reader.word("arrivals", &["poisson", "constant", "on-off"])?;
    let Some(rate_hz) = reader.frequency_hz("rate")? else {
        return match word {
            Some(_) => {
                Err(reader
                    .error_at("arrivals", "`arrivals` needs a `rate`, such as rate = \"1kpps\""))
            }
            None => Ok(None),
        };
    };
    let is_on_off = word == Some("on-off");
    for key in ["on", "off"] {
        if reader.has(key) && !is_on_off {
            return Err(reader
                .error_at(key, format!("`{key}` belongs to arrivals = \"on-off\"; leave it out")));
        }
    }
    Ok(Some(match word {
        Some("constant") => Arrivals::Constant { rate_hz },
        Some("on-off") => Arrivals::OnOff {
            rate_hz,
            on_ns: reader.required("on", "\"100ms\"", reader.duration_ns("on")?)?,
            off_ns: reader.required("off", "\"100ms\"", reader.duration_ns("off")?)?,
        },
        _ => Arrivals::Poisson { rate_hz },
    }))
}

impl ConsumerGroup {
    /// The plan of the `index`-th consumer, which asks for what the producer of `prefix` has.
    pub(super) fn plan(
        &self,
        index: usize,
        of: &ProducerGroup,
        prefix: &str,
        seed: u64,
    ) -> Result<ConsumerPlan, WorkloadError> {
        let objects = of.objects;
        let popularity = match &self.popularity {
            Asked::Sequential => Popularity::Sequential { objects },
            Asked::Uniform => Popularity::Uniform { objects },
            Asked::Zipf { exponent } => Popularity::Zipf { objects, exponent: *exponent },
            Asked::ZipfMandelbrot { exponent, shift } => {
                Popularity::ZipfMandelbrot { objects, exponent: *exponent, shift: *shift }
            }
            Asked::Trace(requests) => Popularity::Trace { requests: Arc::clone(requests) },
            Asked::Turns { requests } => {
                let names = of.names(prefix, Popularity::Sequential { objects });
                let seed = seed ^ (index as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                Popularity::Trace { requests: turns(&names, *requests, seed)? }
            }
        };
        Ok(ConsumerPlan {
            start_ns: self.start_ns + self.stagger_ns * index as u64,
            stop_ns: self.stop_ns,
            lifetime_ms: self.lifetime_ms,
            verify_ns: self.verify_ns,
            names: of.names(prefix, popularity),
            demand: self.demand.clone(),
        })
    }
}

/// Requests for one object after another, round and round, each for any of its segments.
fn turns(names: &Names, requests: u64, seed: u64) -> Result<Arc<[(u64, u64)]>, WorkloadError> {
    let collection = Collection::new(names)?;
    let mut rng = Rng::from_seed(seed);
    let request = |number: u64| {
        let object = number % collection.object_count();
        let segments = u128::from(collection.shape(object).segments);
        (object, ((u128::from(rng.next_u64()) * segments) >> 64) as u64)
    };
    Ok((0..requests).map(request).collect())
}
