//! `[router]` and `[[routers]]`.

use weir_forward::strategy::StrategyKind;
use weir_netem::ServiceTime;
use weir_plan::{CpuPlan, RouterPlan, StagePlan, StagesPlan, WhenFull};

use super::disk;
use crate::document::{Reader, ScenarioError};

pub(super) const KNOWN: &[&str] =
    &["store", "disk", "pit_entries", "strategy", "shards", "fib_filler", "stages"];
/// `[[routers]]` has these beside [`KNOWN`].
pub(super) const KNOWN_SOME: &[&str] =
    &["at", "store", "disk", "pit_entries", "strategy", "shards", "fib_filler", "stages"];

const STORE: &[&str] = &["bytes", "packets", "policy", "index", "compare", "admits", "filled"];
const STAGES: &[&str] = &["cpu", "store", "store_miss", "store_write", "pit", "pit_data", "fib"];
const CPU: &[&str] = &["interest", "data", "capacity"];
const STAGE: &[&str] = &["rate", "time", "service", "bins", "capacity", "when_full"];

/// A router's plan, and what becomes part of it when the workload is known.
#[derive(Clone, Debug, PartialEq, Default)]
pub(super) struct RouterSettings {
    pub(super) plan: RouterPlan,
    /// Capacity of the store in packets of the workload, in the place of octets.
    pub(super) store_packets: Option<u64>,
}

impl RouterSettings {
    /// These settings with what `reader` says in their place.
    pub(super) fn with(&self, reader: &Reader<'_>) -> Result<Self, ScenarioError> {
        let mut settings = self.clone();
        if let Some(store) = reader.table("store", STORE)? {
            settings.store(&store)?;
        }
        if let Some(table) = reader.table("disk", disk::KNOWN)? {
            settings.plan.disk = disk::with(&table, settings.plan.disk.as_ref())?;
        }
        let plan = &mut settings.plan;
        plan.pit_entries_max = reader.count_u32("pit_entries", 1)?.unwrap_or(plan.pit_entries_max);
        if let Some(word) = reader.word("strategy", StrategyKind::WORDS)? {
            plan.strategy = word.to_owned();
        }
        if let Some(shards) = reader.count("shards", 1)? {
            plan.shards =
                u16::try_from(shards).ok().filter(|shards| *shards <= 64).ok_or_else(|| {
                    reader.error_at("shards", format!("`shards` is {shards}; the most is 64"))
                })?;
        }
        plan.fib_filler = reader.count_u32("fib_filler", 0)?.unwrap_or(plan.fib_filler);
        if let Some(table) = reader.table("stages", STAGES)? {
            let mut stages = plan.stages.take().unwrap_or_default();
            stages_with(&table, &mut stages)?;
            plan.stages = Some(stages);
        }
        Ok(settings)
    }

    fn store(&mut self, store: &Reader<'_>) -> Result<(), ScenarioError> {
        let plan = &mut self.plan;
        match (store.bytes("bytes")?, store.count("packets", 0)?) {
            (Some(_), Some(_)) => {
                return Err(store.error_at(
                    "packets",
                    "the store is bounded in `bytes` and in `packets`; keep one",
                ));
            }
            (Some(bytes), None) => (plan.store_bytes, self.store_packets) = (bytes, None),
            (None, Some(packets)) => self.store_packets = Some(packets),
            (None, None) => {}
        }
        if let Some(word) = store.word("policy", &["lru", "fifo", "lfu", "s3-fifo"])? {
            plan.store_policy = word.to_owned();
        }
        if let Some(word) = store.word("index", &["hash", "ordered"])? {
            plan.store_index = word.to_owned();
        }
        if let Some(word) = store.word("compare", &["stored", "decode"])? {
            plan.store_compare = word.to_owned();
        }
        plan.store_admits = store.truth("admits")?.unwrap_or(plan.store_admits);
        plan.store_filled = store.share("filled")?.unwrap_or(plan.store_filled);
        Ok(())
    }
}

fn stages_with(table: &Reader<'_>, stages: &mut StagesPlan) -> Result<(), ScenarioError> {
    if let Some(reader) = table.table("cpu", CPU)? {
        stages.cpu = Some(cpu_with(&reader, stages.cpu.as_ref())?);
    }
    for (key, stage) in [
        ("store", &mut stages.store),
        ("store_write", &mut stages.store_write),
        ("pit", &mut stages.pit),
        ("pit_data", &mut stages.pit_data),
        ("fib", &mut stages.fib),
    ] {
        if let Some(reader) = table.table(key, STAGE)? {
            *stage = Some(stage_with(&reader, stage.as_ref())?);
        }
    }
    if let Some(reader) = table.table("store_miss", &["rate", "time", "service", "bins"])? {
        stages.store_miss = Some(service(&reader, stages.store_miss.as_ref())?);
    }
    Ok(())
}

/// The processor: a time for packets of each kind.
fn cpu_with(reader: &Reader<'_>, before: Option<&CpuPlan>) -> Result<CpuPlan, ScenarioError> {
    let constant = |ns: u64| ServiceTime::Constant { ns };
    let interest = reader.duration_ns("interest")?.map(constant);
    let data = reader.duration_ns("data")?.map(constant);
    let capacity = reader.count_u32("capacity", 1)?;
    let otherwise = before.cloned();
    let interest = interest.or(otherwise.as_ref().map(|cpu| cpu.interest.clone()));
    let data = data.or(otherwise.as_ref().map(|cpu| cpu.data.clone()));
    Ok(CpuPlan {
        interest: reader.required("interest", "\"2us\"", interest)?,
        data: reader.required("data", "\"3us\"", data)?,
        capacity: capacity.or(otherwise.map(|cpu| cpu.capacity)).unwrap_or(100_000),
    })
}

fn stage_with(reader: &Reader<'_>, before: Option<&StagePlan>) -> Result<StagePlan, ScenarioError> {
    let capacity = reader.count_u32("capacity", 1)?.or(before.map(|stage| stage.capacity));
    let when_full = match reader.word("when_full", &["drop", "bypass"])? {
        Some("bypass") => WhenFull::Bypass,
        Some(_) => WhenFull::Drop,
        None => before.map_or(WhenFull::Drop, |stage| stage.when_full),
    };
    Ok(StagePlan {
        service: service(reader, before.map(|stage| &stage.service))?,
        capacity: reader.required("capacity", "2000", capacity)?,
        when_full,
    })
}

/// `rate` or `time` with the distribution `service`, or the `bins` of a histogram.
fn service(
    reader: &Reader<'_>,
    before: Option<&ServiceTime>,
) -> Result<ServiceTime, ScenarioError> {
    let mean_ns = match (reader.frequency_hz("rate")?, reader.duration_ns("time")?) {
        (Some(_), Some(_)) => {
            return Err(reader.error_at("time", "a stage has a `rate` or a `time`; keep one"));
        }
        (Some(rate_hz), None) => Some((1e9 / rate_hz).round() as u64),
        (None, time_ns) => time_ns,
    };
    if let Some(bins) = bins(reader)? {
        if mean_ns.is_some() {
            return Err(reader.error_at(
                "bins",
                "`bins` say how long service takes; leave `rate` and `time` out",
            ));
        }
        return Ok(ServiceTime::Histogram { bins });
    }
    let word = reader.word("service", &["constant", "exponential"])?;
    let is_constant = match word {
        Some(word) => word == "constant",
        None => matches!(before, Some(ServiceTime::Constant { .. })),
    };
    let ns = match mean_ns.or_else(|| before.map(|before| before.mean_ns().round() as u64)) {
        Some(ns) => ns,
        None => {
            let message = format!(
                "{} lacks `rate`; write for example rate = \"4kpps\", or time = \"250us\"",
                reader.place()
            );
            return Err(reader.error(reader.line(), message));
        }
    };
    Ok(match is_constant {
        true => ServiceTime::Constant { ns },
        false => ServiceTime::Exponential { mean_ns: ns },
    })
}

fn bins(reader: &Reader<'_>) -> Result<Option<Vec<(u64, f64)>>, ScenarioError> {
    use crate::document::Value;
    let Some(node) = reader.node("bins") else { return Ok(None) };
    let wrong = |line: usize| {
        reader.error(
            line,
            "`bins` is a list of times and weights, such as [[\"100us\", 0.9], [\"2ms\", 0.1]]",
        )
    };
    let Value::Array(rows) = &node.value else { return Err(wrong(node.line)) };
    let mut bins = Vec::with_capacity(rows.len());
    for row in rows {
        let Value::Array(cells) = &row.value else { return Err(wrong(row.line)) };
        let [time, weight] = cells.as_slice() else { return Err(wrong(row.line)) };
        let Value::Text(text) = &time.value else { return Err(wrong(row.line)) };
        let ns = weir_base::units::parse_duration_ns(text)
            .map_err(|error| reader.error(time.line, format!("`bins`: {error}")))?;
        let weight =
            weight.number().filter(|weight| *weight >= 0.0).ok_or_else(|| wrong(row.line))?;
        bins.push((ns, weight));
    }
    if !bins.iter().any(|(_, weight)| *weight > 0.0) {
        return Err(wrong(node.line));
    }
    Ok(Some(bins))
}
