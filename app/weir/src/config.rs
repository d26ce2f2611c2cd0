//! The router's configuration file (TOML): every key has a default, an unknown key is an error, and
//! `default-config.toml` documents them all.

mod controller;
mod disk;
mod faces;
mod lab;
mod link_kinds;
mod log;
mod management;
mod router;
mod static_face;
mod text;
mod unix;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use weir_base::units::Size;
use weir_options::{DisksOptions, StoreOptions};
use weir_runtime::{FaceLimits, RuntimeConfig, StaticFace, memory_bytes_min};

pub(crate) use self::controller::ControllerSection;
use self::disk::DiskSection;
pub(crate) use self::faces::parse_listen_address;
use self::faces::{FacesSection, MarkingText};
pub(crate) use self::log::{LogFormat, LogSection};
use self::management::ManagementSection;
use self::router::RouterSection;
pub(crate) use self::router::Threads;
use self::static_face::{FaceSection, RouteSection};
use self::text::{Prefix, StrategyName};
pub(crate) use self::unix::UnixChoice;

/// The commented default configuration, as `weir router --print-default-config` prints it. The
/// options of the store and of disks have their texts from `weir-options`.
pub(crate) fn default_config() -> String {
    let store = with_comments(StoreOptions::TEXTS, &StoreOptions::default());
    let disks = with_comments(DisksOptions::TEXTS, &DisksOptions::default());
    let text = include_str!("default-config.toml");
    text.replace("{store options}\n", &store).replace("{disks options}\n", &disks)
}

/// Options with their texts as comments above them.
fn with_comments(texts: &[(&str, &[&str])], options: &impl serde::Serialize) -> String {
    let table = toml::Table::try_from(options).unwrap_or_default();
    let mut described = String::new();
    for (option, lines) in texts {
        described.extend(lines.iter().map(|line| format!("#{line}\n")));
        if let Some(value) = table.get(*option) {
            described.push_str(&format!("{option} = {value}\n"));
        }
    }
    described
}

/// A configuration file as it is written.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(expecting = "a table", deny_unknown_fields, default)]
pub(crate) struct FileConfig {
    pub(crate) router: RouterSection,
    pub(crate) store: StoreOptions,
    pub(crate) disks: DisksOptions,
    pub(crate) faces: FacesSection,
    pub(crate) management: ManagementSection,
    pub(crate) metrics: MetricsSection,
    pub(crate) controller: ControllerSection,
    pub(crate) log: LogSection,
    pub(crate) disk: Vec<DiskSection>,
    pub(crate) face: Vec<FaceSection>,
    pub(crate) route: Vec<RouteSection>,
    pub(crate) strategy: Vec<StrategySection>,
    #[cfg(feature = "lab")]
    pub(crate) lab: lab::LabSection,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(expecting = "a table", deny_unknown_fields, default)]
pub(crate) struct MetricsSection {
    #[serde(deserialize_with = "metrics_address")]
    pub(crate) address: Option<SocketAddr>,
}

fn metrics_address<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<SocketAddr>, D::Error> {
    let text = String::deserialize(deserializer)?;
    parse_metrics_address(&text).map(Some).map_err(D::Error::custom)
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(expecting = "a table", deny_unknown_fields)]
pub(crate) struct StrategySection {
    pub(crate) prefix: Prefix,
    pub(crate) strategy: StrategyName,
}

impl FileConfig {
    /// Parses a configuration; `origin` (a path) begins the error.
    pub(crate) fn parse(text: &str, origin: &str) -> anyhow::Result<Self> {
        let config: Self = toml::from_str(text).map_err(|error| {
            let message = error.message();
            let hint = if message.contains("map, expected a sequence") {
                "\nTables of which there may be several have two brackets: [[disk]]".into()
            } else {
                lab::hint(message)
            };
            anyhow::anyhow!(
                "{origin}: {}{hint}\nEvery key and its meaning: weir router --print-default-config",
                error.to_string().trim_end()
            )
        })?;
        for route in &config.route {
            let declared = config.face.iter().any(|face| face.uri == *route.face.get_ref());
            if !declared {
                let line = 1 + text[..route.face.span().start].matches('\n').count();
                bail!(
                    "{origin}: line {line}: `face` names {}, but no [[face]] has that `uri`; add \
                     one:\n\n[[face]]\nuri = \"{}\"",
                    route.face.get_ref().0,
                    route.face.get_ref().0
                );
            }
        }
        if let Err(error) = config.check_memory() {
            let line = 1 + text[..config.router.memory_max.span().start].matches('\n').count();
            bail!("{origin}: line {line}: {error}");
        }
        config.check_marking().with_context(|| origin.to_owned())?;
        if config.management.localhop && config.management.trust_anchors.is_empty() {
            bail!(
                "{origin}: [management] `localhop` is true but `trust_anchors` is empty, so no \
                 neighbour could be believed; add a certificate file or set `localhop = false`"
            );
        }
        Ok(config)
    }

    /// Reads `path`, or the first default place that exists, or nothing: the defaults.
    pub(crate) fn load(path: Option<&Path>) -> anyhow::Result<(Self, Option<PathBuf>)> {
        let path = match path {
            Some(path) => path.to_path_buf(),
            None => match default_paths().into_iter().find(|path| path.is_file()) {
                Some(path) => path,
                None => return Ok((Self::default(), None)),
            },
        };
        let text = std::fs::read_to_string(&path).with_context(|| {
            format!(
                "cannot read the configuration {}; `weir router --print-default-config` prints one \
                 to start from",
                path.display()
            )
        })?;
        Ok((Self::parse(&text, &path.display().to_string())?, Some(path)))
    }

    /// What the runtime is started with. Reads the trust anchors' files.
    pub(crate) fn to_runtime(&self) -> anyhow::Result<RuntimeConfig> {
        let threads = self.threads();
        self.check_memory().map_err(anyhow::Error::msg)?;
        let config = RuntimeConfig {
            threads,
            store: self.store.config(),
            disks: disk::to_runtime(&self.disks, &self.disk, threads)?,
            extension: None,
            pit_entries_max: self.router.pit_entries_max,
            pit_entries_per_face_max: self.router.pit_entries_per_face_max,
            interest_lifetime_max: Duration::from_nanos(self.router.interest_lifetime_max.ns),
            memory_bytes_max: self.router.memory_max.get_ref().bytes,
            memory_ahead_bytes: self.router.memory_ahead.bytes,
            fib_entries_max: self.router.fib_entries_max,
            name_components_max: self.router.name_components_max,
            data_source: self.router.data_from,
            unsolicited: self.store.unsolicited,
            producer_regions: self.router.producer_regions.iter().map(|r| r.0.clone()).collect(),
            faces: FaceLimits {
                faces_max: self.faces.faces_max,
                per_host_max: self.faces.faces_per_host_max,
                per_network_max: self.faces.faces_per_network_max,
            },
            listeners: self.faces.listeners(),
            unix_access: self.faces.unix_access()?,
            face_defaults: self.faces.defaults(),
            static_faces: self.static_faces()?,
            strategies: self
                .strategy
                .iter()
                .map(|choice| (choice.prefix.0.clone(), choice.strategy.0.clone()))
                .collect(),
            management: self.management.to_runtime()?,
            metrics: self.metrics.address,
            rebalance_interval: Duration::from_secs(1),
            handle_signals: true,
        };
        #[cfg(feature = "lab")]
        let config = self.lab.apply(config);
        Ok(config)
    }

    fn threads(&self) -> usize {
        self.router.threads.count(!self.disk.is_empty())
    }

    fn check_memory(&self) -> Result<(), String> {
        let threads = self.threads();
        let least = Size { bytes: memory_bytes_min(threads) };
        let given = self.router.memory_max.get_ref();
        if given.bytes >= least.bytes {
            return Ok(());
        }
        let plural = if threads == 1 { "" } else { "s" };
        Err(format!(
            "[router] `memory_max` is {given}, too little for {threads} packet thread{plural}; \
             give at least \"{least}\""
        ))
    }

    /// What a marking policy leaves out follows from the queue that it stands before.
    fn check_marking(&self) -> anyhow::Result<()> {
        let queue = self.faces.queue_size_max;
        let of_faces =
            self.face.iter().filter_map(|face| Some(("[[face]]", face.marking.as_ref()?)));
        for (table, MarkingText(marking)) in
            core::iter::once(("[faces]", &self.faces.marking)).chain(of_faces)
        {
            marking.check(Some(queue.bytes)).with_context(|| {
                format!(
                    "{table} `marking` does not go with `queue_size_max` = \"{queue}\", of which \
                     what it leaves out is a part"
                )
            })?;
        }
        Ok(())
    }

    fn static_faces(&self) -> anyhow::Result<Vec<StaticFace>> {
        self.face.iter().map(|face| face.to_runtime(&self.route)).collect()
    }

    /// Rates of declared faces in bits per second, by the URIs that the router may have them under:
    /// of a host with several addresses, by each.
    pub(crate) fn rates_bps(&self) -> BTreeMap<String, u64> {
        self.face.iter().flat_map(FaceSection::rates_bps).collect()
    }
}

/// Default places of the configuration file, in the order they are tried.
pub(crate) fn default_paths() -> Vec<PathBuf> {
    let user = std::env::var_os("XDG_CONFIG_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".config")));
    user.into_iter()
        .map(|directory| directory.join("weir/weir.toml"))
        .chain([PathBuf::from("/etc/weir/weir.toml")])
        .collect()
}

/// Reads the address at which metrics are served. There is no port that it has by nature.
pub(crate) fn parse_metrics_address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        format!("`{text}` is not an address; write IP:PORT, for example 127.0.0.1:9636")
    })
}

#[cfg(test)]
mod tests;
