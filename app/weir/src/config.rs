//! The router's configuration file (TOML). Every key has a default, and an unknown key is an error.
//! `default-config.toml` documents all keys.

mod changes;
mod controller;
mod disk;
mod faces;
mod lab;
mod link_kinds;
mod log;
mod management;
mod multicast;
mod pin;
mod router;
mod sizes;
mod static_face;
mod text;
mod unix;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use weir_base::units::Size;
use weir_options::{DisksOptions, StoreOptions};
use weir_runtime::{FaceLimits, RuntimeConfig, StaticFace, memory_bytes_min};
use weir_store::COUNTED_PREFIXES_MAX;

pub(crate) use self::changes::keys_for_restart;
pub(crate) use self::controller::ControllerSection;
pub(crate) use self::disk::DiskSection;
use self::faces::{FacesSection, MarkingText};
pub(crate) use self::faces::{parse_listen_address, parse_websocket_address};
pub(crate) use self::log::{LogFilter, LogFormat, LogSection};
use self::management::ManagementSection;
pub(crate) use self::pin::PinSection;
use self::router::RouterSection;
pub(crate) use self::router::Threads;
pub(crate) use self::sizes::{DiskSpace, disk_spaces, folder_of};
use self::static_face::{FaceSection, RouteSection};
use self::text::{Prefix, StrategyName};
pub(crate) use self::unix::UnixChoice;
use crate::quantity::warn_about_bare_sizes;

/// The commented default configuration that `weir router --print-default-config` prints. The
/// comments on the store and the disks come from `weir-options`.
pub(crate) fn default_config() -> String {
    let store = with_comments(StoreOptions::TEXTS, &StoreOptions::default());
    let disks = with_comments(DisksOptions::TEXTS, &DisksOptions::default());
    let text = include_str!("default-config.toml");
    text.replace("{store options}\n", &store).replace("{disks options}\n", &disks)
}

/// Formats options as TOML, each below its comment.
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

/// A parsed configuration file.
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
    pub(crate) pin: Vec<PinSection>,
    #[cfg(feature = "lab")]
    pub(crate) lab: lab::LabSection,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(expecting = "a table", deny_unknown_fields, default)]
pub(crate) struct MetricsSection {
    #[serde(deserialize_with = "metrics_address")]
    pub(crate) address: Option<SocketAddr>,
    pub(crate) contents: bool,
    #[serde(deserialize_with = "counted_prefixes")]
    pub(crate) prefixes: Vec<Prefix>,
}

fn counted_prefixes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Prefix>, D::Error> {
    let prefixes = Vec::<Prefix>::deserialize(deserializer)?;
    if prefixes.len() > COUNTED_PREFIXES_MAX {
        return Err(D::Error::custom(format!(
            "{} prefixes exceed the limit; use at most {COUNTED_PREFIXES_MAX}",
            prefixes.len()
        )));
    }
    let mut known = BTreeSet::new();
    match prefixes.iter().find(|prefix| !known.insert(prefix.0.value())) {
        Some(Prefix(name)) => {
            Err(D::Error::custom(format!("{name} occurs twice; keep one of them")))
        }
        None => Ok(prefixes),
    }
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
    /// Parses a configuration. Errors start with `origin`, the path of the file.
    pub(crate) fn parse(text: &str, origin: &str) -> anyhow::Result<Self> {
        let config: Self = toml::from_str(text).map_err(|error| {
            let message = error.message();
            let hint = if message.contains("map, expected a sequence") {
                "\nA table that may occur several times has double brackets: [[disk]]".into()
            } else {
                lab::hint(message)
            };
            anyhow::anyhow!(
                "{origin}: {}{hint}\nFor all keys, see weir router --print-default-config",
                error.to_string().trim_end()
            )
        })?;
        // Deserialization has checked each key by itself. These checks compare several keys.
        for route in &config.route {
            let declared = config.face.iter().any(|face| face.uri == *route.face.get_ref());
            if !declared {
                let line = 1 + text[..route.face.span().start].matches('\n').count();
                bail!(
                    "{origin}: line {line}: no [[face]] has the `uri` {}; add one:\n\n[[face]]\n\
                     uri = \"{}\"",
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
                "{origin}: [management] `localhop` is true, but `trust_anchors` is empty, so all \
                 commands would be rejected; add a certificate file or set `localhop = false`"
            );
        }
        Ok(config)
    }

    /// Converts the file to the configuration of the runtime. Reads the files of trust anchors and
    /// routes.
    pub(crate) fn to_runtime(&self) -> anyhow::Result<RuntimeConfig> {
        let threads = self.threads();
        self.check_memory().map_err(anyhow::Error::msg)?;
        // Not in `parse`: the command line may set the size of the store.
        pin::check(&self.pin, self.store.size)?;
        let config = RuntimeConfig {
            threads,
            store: self.store.config(),
            pins: self.pin.iter().map(|pin| (pin.prefix.0.clone(), pin.size.bytes)).collect(),
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
            listeners: self.faces.listeners()?,
            unix_access: self.faces.unix_access()?,
            face_defaults: self.faces.defaults(),
            multicast: self.faces.multicast(),
            static_faces: self.static_faces()?,
            strategies: self
                .strategy
                .iter()
                .map(|choice| (choice.prefix.0.clone(), choice.strategy.0.clone()))
                .collect(),
            management: self.management.to_runtime()?,
            metrics: self.metrics.address,
            metrics_contents: self.metrics.contents,
            counted_prefixes: self.metrics.prefixes.iter().map(|p| p.0.clone()).collect(),
            rebalance_interval: Duration::from_secs(1),
            handle_signals: true,
        };
        #[cfg(feature = "lab")]
        let config = self.lab.apply(config);
        Ok(config)
    }

    pub(crate) fn threads(&self) -> usize {
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
            "[router] `memory_max` is {given}, too small for {threads} worker thread{plural}; set \
             it to at least \"{least}\""
        ))
    }

    /// Checks the marking policies together with the queue size: options that a policy leaves out
    /// are fractions of the queue size.
    fn check_marking(&self) -> anyhow::Result<()> {
        let queue = self.faces.queue_size_max;
        let of_faces =
            self.face.iter().filter_map(|face| Some(("[[face]]", face.marking.as_ref()?)));
        for (table, MarkingText(marking)) in
            core::iter::once(("[faces]", &self.faces.marking)).chain(of_faces)
        {
            marking.check(Some(queue.bytes)).with_context(|| {
                format!(
                    "{table} `marking` does not fit `queue_size_max` = \"{queue}\", from which the \
                     missing options are computed"
                )
            })?;
        }
        Ok(())
    }

    fn static_faces(&self) -> anyhow::Result<Vec<StaticFace>> {
        self.face.iter().map(|face| face.to_runtime(&self.route)).collect()
    }

    /// Rates of declared faces in bit/s, by face URI. A host with several addresses has several
    /// entries.
    pub(crate) fn rates_bps(&self) -> BTreeMap<String, u64> {
        self.face.iter().flat_map(FaceSection::rates_bps).collect()
    }
}

/// A configuration with the file that it comes from.
#[derive(Clone, Debug, Default)]
pub(crate) struct ConfigFile {
    pub(crate) config: FileConfig,
    /// `None` if there is no file.
    pub(crate) path: Option<PathBuf>,
    pub(crate) text: String,
}

impl ConfigFile {
    /// Reads `path`, or the first default path that exists. Without any file, returns the defaults.
    pub(crate) fn read(path: Option<&Path>) -> anyhow::Result<Self> {
        let path = match path {
            Some(path) => path.to_path_buf(),
            None => match default_paths().into_iter().find(|path| path.is_file()) {
                Some(path) => path,
                None => return Ok(Self::default()),
            },
        };
        let text = std::fs::read_to_string(&path).with_context(|| {
            format!(
                "cannot read the configuration {}; create one with `weir router \
                 --print-default-config`",
                path.display()
            )
        })?;
        let origin = path.display().to_string();
        let config = FileConfig::parse(&text, &origin)?;
        warn_about_bare_sizes(&text, &origin, &default_config());
        Ok(Self { config, path: Some(path), text })
    }

    /// The file's name, for messages.
    pub(crate) fn origin(&self) -> String {
        let path = self.path.as_ref().map(|path| path.display().to_string());
        path.unwrap_or_else(|| "the default configuration".into())
    }
}

/// Default paths of the configuration file, in the order in which they are tried.
pub(crate) fn default_paths() -> Vec<PathBuf> {
    let user = std::env::var_os("XDG_CONFIG_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".config")));
    user.into_iter()
        .map(|directory| directory.join("weir/weir.toml"))
        .chain([PathBuf::from("/etc/weir/weir.toml")])
        .collect()
}

/// Parses the address of the metrics server. It must include a port, as there is no default one.
pub(crate) fn parse_metrics_address(text: &str) -> Result<SocketAddr, String> {
    text.parse()
        .map_err(|_| format!("`{text}` is not an address; write IP:PORT, such as 127.0.0.1:9636"))
}

#[cfg(test)]
mod tests;
