//! `[router]` and `[[routers]]`.

use std::num::NonZeroU32;

use serde::Deserialize;
use weir_base::units::{Fraction, Frequency, Time};
use weir_baselines::links;
use weir_forward::strategy::StrategyKind;
use weir_link::{ChoiceError, DisciplineConfig, MarkingPolicy};
use weir_netem::ServiceTime;
use weir_options::StoreOptions;
use weir_plan::{
    CpuPlan, PlanError, RouterPlan, StagePlan, StagesPlan, StoreExperiments, WhenFull,
};

use crate::disk::{self, Service};
use crate::document::{ScenarioError, Tree, ValueNode, suggestion};

/// A router's plan, and settings that need the workload.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RouterSettings {
    pub(crate) plan: RouterPlan,
    /// Store capacity in packets of the workload, instead of bytes.
    pub(crate) store_packets: Option<u64>,
}

/// The keys of a router without its `store` and `disk`.
#[derive(Deserialize)]
#[serde(expecting = "a table", deny_unknown_fields, default)]
struct RouterTable {
    pit_entries: NonZeroU32,
    strategy: String,
    marking: String,
    discipline: String,
    shaping: String,
    shards: u16,
    fib_filler: u32,
    stages: Option<StagesTable>,
}

impl Default for RouterTable {
    fn default() -> Self {
        let RouterPlan {
            pit_entries_max,
            strategy,
            marking,
            discipline,
            shaping,
            shards,
            fib_filler,
            ..
        } = RouterPlan::default();
        let pit_entries = NonZeroU32::new(pit_entries_max).unwrap_or(NonZeroU32::MIN);
        let (marking, discipline) = (marking.to_string(), discipline.to_string());
        let stages = None;
        Self { pit_entries, strategy, marking, discipline, shaping, shards, fib_filler, stages }
    }
}

/// The keys `store` and `disk`.
#[derive(Deserialize)]
struct Nested {
    #[serde(rename = "store")]
    _store: Option<serde::de::IgnoredAny>,
    #[serde(rename = "disk")]
    _disk: Option<serde::de::IgnoredAny>,
}

/// Scenario keys, and the options of a router's configuration that they stand for.
const STORE_NAMES: &[(&str, &str)] = &[("bytes", "size"), ("admits", "admit")];

/// The keys of a store that are not options of a router's configuration.
#[derive(Default, Deserialize)]
#[serde(expecting = "a table", deny_unknown_fields, default)]
struct StoreTable {
    packets: Option<u64>,
    filled: Option<Fraction>,
}

#[derive(Deserialize)]
#[serde(expecting = "a table", deny_unknown_fields)]
struct StagesTable {
    cpu: Option<CpuTable>,
    store: Option<StageTable>,
    store_miss: Option<StageTable>,
    store_write: Option<StageTable>,
    pit: Option<StageTable>,
    pit_data: Option<StageTable>,
    fib: Option<StageTable>,
}

/// The processor: a service time for each kind of packet.
#[derive(Deserialize)]
#[serde(expecting = "a table", deny_unknown_fields)]
struct CpuTable {
    interest: Time,
    data: Time,
    read: Option<Time>,
    bypass: Option<Time>,
    machine: Option<String>,
    cores: Option<NonZeroU32>,
    capacity: Option<NonZeroU32>,
}

/// `rate` or `time` with the distribution `service`, or the `bins` of a histogram.
#[derive(Deserialize)]
#[serde(expecting = "a table", deny_unknown_fields)]
struct StageTable {
    rate: Option<Frequency>,
    time: Option<Time>,
    service: Option<Service>,
    bins: Option<Vec<(Time, f64)>>,
    capacity: Option<NonZeroU32>,
    when_full: Option<WhenFull>,
}

/// Reads a router's table at `path` in the file.
pub(crate) fn read(
    tree: &Tree,
    path: &str,
    node: &ValueNode,
) -> Result<RouterSettings, ScenarioError> {
    // `store` and `disk` hold options of the router's configuration, so they are read separately.
    let (nested, own) = node.split::<Nested>();
    let table: RouterTable = tree.read_at(path, &own)?;
    if !(1..=64).contains(&table.shards) {
        let message = format!("is {}; write 1 to 64", table.shards);
        return Err(tree.error(&format!("{path}.shards"), message));
    }
    let refuse = |key, error: ChoiceError| tree.error(&format!("{path}.{key}"), error.to_string());
    let marking = MarkingPolicy::read(&table.marking, links::MARKERS);
    let discipline = DisciplineConfig::read(&table.discipline, links::DISCIPLINES);
    let mut plan = RouterPlan {
        pit_entries_max: table.pit_entries.get(),
        strategy: table.strategy,
        marking: marking.map_err(|error| refuse("marking", error))?,
        discipline: discipline.map_err(|error| refuse("discipline", error))?,
        shaping: table.shaping,
        shards: table.shards,
        fib_filler: table.fib_filler,
        ..RouterPlan::default()
    };
    if plan.strategy_of_root("").is_err() {
        let known = suggestion(&plan.strategy, StrategyKind::WORDS);
        let message = format!("unknown strategy {:?}; {known}", plan.strategy);
        return Err(tree.error(&format!("{path}.strategy"), message));
    }
    if let Err(PlanError::Value { key, problem, .. }) = plan.face_shaping("") {
        return Err(tree.error(&format!("{path}.{key}"), problem));
    }
    let mut store_packets = None;
    if let Some(node) = nested.at("store") {
        let path = format!("{path}.store");
        let (own, options) = node.renamed(STORE_NAMES).split::<StoreTable>();
        let (experiments, options) = options.split::<StoreExperiments>();
        plan.store_experiments = tree.read_at(&path, &experiments)?;
        let own: StoreTable = tree.read_at(&path, &own)?;
        // The configuration's defaults differ from those of recorded scenarios, which must stay.
        let has_size = options.at("size").is_some();
        let has_policy = options.at("policy").is_some();
        let (size, policy) = (plan.store.size, plan.store.policy);
        plan.store = tree.read_at::<StoreOptions>(&path, &options)?;
        if !has_size {
            plan.store.size = size;
        } else if own.packets.is_some() {
            let message = "the store has both `size` and `packets`; remove one";
            return Err(tree.error(&format!("{path}.packets"), message));
        }
        if !has_policy {
            plan.store.policy = policy;
        }
        store_packets = own.packets;
        plan.store_filled = own.filled.map_or(plan.store_filled, |share| share.value);
    }
    if let Some(node) = nested.at("disk") {
        plan.disk = disk::read(tree, &format!("{path}.disk"), node)?;
    }
    if let Some(stages) = &table.stages {
        let refuse =
            |(key, message): (&str, &str)| tree.error(&format!("{path}.stages.{key}"), message);
        plan.stages = Some(stages.plan().map_err(refuse)?);
    }
    Ok(RouterSettings { plan, store_packets })
}

/// The key of a stage, and what is wrong with it.
type KeyError = (&'static str, &'static str);

impl StagesTable {
    fn plan(&self) -> Result<StagesPlan, KeyError> {
        let stage = |key, stage: &Option<StageTable>| {
            stage.as_ref().map(|stage| stage.plan().map_err(|what| (key, what))).transpose()
        };
        let store_miss =
            self.store_miss.as_ref().map(|miss| match (miss.capacity, miss.when_full) {
                (None, None) => miss.service(),
                _ => Err("uses the server and queue of `store`; remove `capacity` and `when_full`"),
            });
        Ok(StagesPlan {
            cpu: self.cpu.as_ref().map(CpuTable::plan).transpose()?,
            store: stage("store", &self.store)?,
            store_miss: store_miss.transpose().map_err(|what| ("store_miss", what))?,
            store_write: stage("store_write", &self.store_write)?,
            pit: stage("pit", &self.pit)?,
            pit_data: stage("pit_data", &self.pit_data)?,
            fib: stage("fib", &self.fib)?,
        })
    }
}

impl CpuTable {
    fn plan(&self) -> Result<CpuPlan, KeyError> {
        if self.machine.is_none() && self.cores.is_some() {
            let message = "has `cores`, but a router serves one packet at a time; name the \
                           `machine` whose cores several routers share";
            return Err(("cpu", message));
        }
        let constant = |time: Option<Time>| ServiceTime::Constant { ns: time.map_or(0, |t| t.ns) };
        Ok(CpuPlan {
            interest: constant(Some(self.interest)),
            data: constant(Some(self.data)),
            read: constant(self.read),
            bypass: constant(self.bypass),
            machine: self.machine.clone(),
            cores: self.cores.map_or(1, NonZeroU32::get),
            capacity: self.capacity.map_or(100_000, NonZeroU32::get),
        })
    }
}

impl StageTable {
    fn plan(&self) -> Result<StagePlan, &'static str> {
        Ok(StagePlan {
            service: self.service()?,
            capacity: self.capacity.ok_or("lacks `capacity`; write for example 2000")?.get(),
            when_full: self.when_full.unwrap_or(WhenFull::Drop),
        })
    }

    fn service(&self) -> Result<ServiceTime, &'static str> {
        let mean_ns = match (self.rate, self.time) {
            (Some(_), Some(_)) => return Err("has a `rate` or a `time`; keep one"),
            (Some(rate), None) => Some((1e9 / rate.hz).round() as u64),
            (None, time) => time.map(|time| time.ns),
        };
        match (&self.bins, mean_ns) {
            (Some(_), Some(_)) => {
                Err("has `bins`, which give the service times; remove `rate` and `time`")
            }
            (Some(bins), None) => {
                let bins = bins.iter().map(|(time, weight)| (time.ns, *weight)).collect();
                let service = ServiceTime::Histogram { bins };
                service.check().map_err(|_| {
                    "`bins` is a list of times and weights, such as [[\"100us\", 0.9], [\"2ms\", \
                     0.1]]"
                })?;
                Ok(service)
            }
            (None, Some(ns)) => Ok(self.service.unwrap_or(Service::Exponential).of(ns)),
            (None, None) => {
                Err("lacks `rate`; write for example rate = \"4kpps\", or time = \"250us\"")
            }
        }
    }
}
