//! The controller's configuration file (TOML). `default-config.toml` documents its keys.

use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroUsize};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use serde::Deserialize;
use weir_base::units::{Size, Time};
use weir_control::{ControllerConfig, Placement};
use weir_controller::{Config, DatabaseLocation, RowsKept, WallClock};
use weir_http::TlsFiles;

use crate::config::{LogSection, default_paths};
use crate::quantity::warn_about_bare_sizes;

/// The commented default configuration, as `weir controller --print-default-config` prints it.
pub(crate) const DEFAULT_CONFIG: &str = include_str!("default-config.toml");

/// The permitted numbers of `ratio`.
const WEIGHTS: RangeInclusive<u64> = 1..=1000;

/// One database, or the servers that replicate one.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged, expecting = "a file, a URL, or a list of URLs")]
pub(crate) enum Databases {
    One(String),
    List(Vec<String>),
}

/// A parsed configuration file.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(expecting = "a table", deny_unknown_fields, default)]
pub(crate) struct ControllerFile {
    pub(crate) listen: SocketAddr,
    pub(crate) database: Option<Databases>,
    database_size_max: Option<Size>,
    pub(crate) tls_certificate: Option<PathBuf>,
    pub(crate) tls_key: Option<PathBuf>,
    pub(crate) tls_clients: Option<PathBuf>,
    pub(crate) insecure: bool,
    threads: NonZeroUsize,
    body_size_max: Size,
    connections_max: NonZeroUsize,
    requests_per_second_max: NonZeroU32,
    audit_rows_kept: u64,
    plan_rows_kept: u64,
    decisions: DecisionsSection,
    pub(crate) log: LogSection,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(expecting = "a table", deny_unknown_fields, default)]
struct DecisionsSection {
    router_timeout: Time,
    placement: Placement,
    prefetch: bool,
    prefetch_first: bool,
    ratio: Vec<u64>,
    routes: bool,
    routers_max: NonZeroUsize,
    files_max: NonZeroUsize,
    objects_max: NonZeroUsize,
    unregistered_max: usize,
    holdings_size_max: Size,
    holdings_total_size_max: Size,
}

fn at_least_one(value: usize) -> NonZeroUsize {
    NonZeroUsize::new(value).unwrap_or(NonZeroUsize::MIN)
}

impl Default for DecisionsSection {
    fn default() -> Self {
        let config = ControllerConfig::default();
        Self {
            router_timeout: Time { ns: config.router_timeout_ns },
            placement: config.placement,
            prefetch: config.prefetch,
            prefetch_first: config.prefetch_first,
            ratio: config.ratio,
            routes: config.routes,
            routers_max: at_least_one(config.routers_max),
            files_max: at_least_one(config.files_max),
            objects_max: at_least_one(config.objects_max),
            unregistered_max: config.unregistered_max,
            holdings_size_max: Size { bytes: config.holdings_bytes_max },
            holdings_total_size_max: Size { bytes: config.holdings_total_bytes_max },
        }
    }
}

impl Default for ControllerFile {
    fn default() -> Self {
        let config = Config::default();
        Self {
            listen: config.listen,
            database: None,
            database_size_max: None,
            tls_certificate: None,
            tls_key: None,
            tls_clients: None,
            insecure: config.insecure,
            threads: at_least_one(config.threads),
            body_size_max: Size { bytes: config.body_bytes_max as u64 },
            connections_max: at_least_one(config.connections_max),
            requests_per_second_max: config.requests_per_second_max,
            audit_rows_kept: config.rows_kept.audit,
            plan_rows_kept: config.rows_kept.plans,
            decisions: DecisionsSection::default(),
            log: LogSection::default(),
        }
    }
}

impl ControllerFile {
    /// Reads the file, or the first default path that exists. Also returns the path that was read.
    pub(crate) fn load(path: Option<&Path>) -> anyhow::Result<(Self, Option<PathBuf>)> {
        let path = match path {
            Some(path) => Some(path.to_path_buf()),
            None => {
                let places = default_paths().into_iter();
                let mut places = places.map(|path| path.with_file_name("weir-controller.toml"));
                places.find(|path| path.exists())
            }
        };
        let Some(path) = path else { return Ok((Self::default(), None)) };
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        let file = toml::from_str(&text).with_context(|| path.display().to_string())?;
        warn_about_bare_sizes(&text, &path.display().to_string(), DEFAULT_CONFIG);
        Ok((file, Some(path)))
    }

    pub(crate) fn database(&self) -> anyhow::Result<DatabaseLocation> {
        match &self.database {
            // The error does not repeat the text, as it may contain a password.
            Some(Databases::One(text)) => Ok(text.parse()?),
            Some(Databases::List(texts)) => Ok(DatabaseLocation::of_list(texts)?),
            None => default_database().map(DatabaseLocation::File),
        }
    }

    /// Converts the file to the configuration of the server.
    pub(crate) fn to_config(&self) -> anyhow::Result<Config> {
        let tls = match (&self.tls_certificate, &self.tls_key) {
            (Some(certificate), Some(key)) => Some(TlsFiles {
                certificate: certificate.clone(),
                key: key.clone(),
                clients: self.tls_clients.clone(),
            }),
            (None, None) if self.tls_clients.is_none() => None,
            (None, None) => bail!("`tls_clients` also needs `tls_certificate` and `tls_key`"),
            _ => bail!("set both `tls_certificate` and `tls_key`, or neither"),
        };
        let decisions = &self.decisions;
        if let Some(weight) = decisions.ratio.iter().find(|weight| !WEIGHTS.contains(weight)) {
            bail!("`ratio` contains {weight}; use numbers from 1 to {}", WEIGHTS.end());
        }
        Ok(Config {
            listen: self.listen,
            database: self.database()?,
            database_bytes_max: self.database_size_max.map(|size| size.bytes),
            tls,
            insecure: self.insecure,
            threads: self.threads.get(),
            body_bytes_max: usize::try_from(self.body_size_max.bytes).unwrap_or(usize::MAX),
            connections_max: self.connections_max.get(),
            requests_per_second_max: self.requests_per_second_max,
            rows_kept: RowsKept { audit: self.audit_rows_kept, plans: self.plan_rows_kept },
            wall_clock: WallClock::default(),
            controller: ControllerConfig {
                router_timeout_ns: decisions.router_timeout.ns,
                placement: decisions.placement,
                prefetch: decisions.prefetch,
                prefetch_first: decisions.prefetch_first,
                ratio: decisions.ratio.clone(),
                routes: decisions.routes,
                routers_max: decisions.routers_max.get(),
                files_max: decisions.files_max.get(),
                objects_max: decisions.objects_max.get(),
                unregistered_max: decisions.unregistered_max,
                holdings_bytes_max: decisions.holdings_size_max.bytes,
                holdings_total_bytes_max: decisions.holdings_total_size_max.bytes,
                ..ControllerConfig::default()
            },
        })
    }
}

/// The default path of the database. Creates its folder with access for this user only.
fn default_database() -> anyhow::Result<PathBuf> {
    let at = crate::state::folder().context("HOME is not set; use --database PATH")?;
    let mut builder = std::fs::DirBuilder::new();
    std::os::unix::fs::DirBuilderExt::mode(builder.recursive(true), 0o700);
    builder.create(&at).with_context(|| format!("cannot create {}", at.display()))?;
    Ok(at.join("controller.db"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printed_config_equals_defaults() {
        let printed: ControllerFile = toml::from_str(DEFAULT_CONFIG).unwrap();
        assert_eq!(printed, ControllerFile::default());
        // Keys without a default are comments in the printed file; uncommented they must parse.
        let mut all = String::new();
        for line in DEFAULT_CONFIG.lines() {
            let key = line.strip_prefix('#').filter(|line| !line.starts_with(' '));
            all.push_str(key.unwrap_or(line));
            all.push('\n');
        }
        let all: ControllerFile = toml::from_str(&all).unwrap();
        assert!(all.database.is_some() && all.tls_clients.is_some() && all.tls_key.is_some());
        assert!(all.to_config().unwrap().tls.is_some());
    }

    #[test]
    fn refuses_invalid_settings() {
        let bad_ratio = "[decisions]\nratio = [50, 0]";
        for bad in ["tls_key = 'a'", "tls_certificate = 'a'", "tls_clients = 'a'", bad_ratio] {
            let file: ControllerFile = toml::from_str(&format!("database = 'd'\n{bad}")).unwrap();
            assert!(file.to_config().is_err(), "{bad}");
        }
        for bad in [
            "'mysql://me:secret@h/d'",
            "'postgres://me:secret@h:port/d'",
            "['postgres://me:secret@h/d', 'database.db']",
            "[]",
        ] {
            let file: ControllerFile = toml::from_str(&format!("database = {bad}")).unwrap();
            let text = format!("{:#}", file.to_config().unwrap_err());
            assert!(text.contains("database") && !text.contains("secret"), "{text}");
        }
        for bad in ["threads = 0", "listen = 'here'", "no_such_key = 1", "[decisions]\nfoo = 1"] {
            assert!(toml::from_str::<ControllerFile>(bad).is_err(), "{bad}");
        }
    }
}
