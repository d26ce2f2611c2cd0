//! `weir router`.

mod reload;

use std::fs::File;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process;

use anyhow::{Context, ensure};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::reload::Error as ReloadError;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};
use weir_agent::Agent;
use weir_base::units::Size;
use weir_runtime::{FunctionSamples, Profiler, Runtime};

use self::reload::ServedRouter;
use crate::config::{
    ConfigFile, DiskSection, FileConfig, LogFormat, LogSection, Threads, UnixChoice,
    default_config, parse_listen_address, parse_metrics_address, parse_websocket_address,
};
use crate::help::{LISTENING, OUTPUT};
use crate::table::has_color;
use crate::traces::TraceLayer;

/// Run a content router.
///
/// Without arguments, the router accepts applications on a Unix socket and other routers on UDP and
/// TCP port 6363. It stores Data in 256 MiB of memory. It runs until Ctrl-C or SIGTERM.
///
/// Faces, routes and disks are set in the configuration file. A [[disk]] extends the store: Data
/// written to a disk survives a restart or a crash.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  weir router --store 1GiB --metrics 127.0.0.1:9636\n  weir router \
                  --print-default-config > weir.toml"
)]
pub(crate) struct Args {
    /// Read this configuration file [default: ~/.config/weir/weir.toml or /etc/weir/weir.toml, if
    /// one of them exists]
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print a configuration file with every key, its meaning and its default, and exit
    #[arg(long)]
    print_default_config: bool,
    /// Check the configuration with everything that it names, and exit: 0 if a router could start,
    /// otherwise 1
    #[arg(long)]
    check: bool,
    /// Make the running router read its configuration again. Exit 0 if it did, 1 with the reason if
    /// it kept the old one, or 8 if no router answers. The router is that of --unix, or of [faces]
    /// `unix` in --config, or the default one
    #[arg(long, conflicts_with = "check")]
    reload: bool,
    /// Unix socket for applications: a path, "auto" or "none". "auto" uses /run/nfd/nfd.sock if it
    /// can be created, otherwise a path of this user that `weir` also looks for [default: auto]
    #[arg(long, value_name = "PATH", help_heading = LISTENING)]
    unix: Option<UnixChoice>,
    /// Listen for UDP peers at this address, such as 192.0.2.1:6363, or "none". May be repeated
    /// [default: port 6363 of all addresses]
    #[arg(long, value_name = "ADDR", value_parser = parse_listen, help_heading = LISTENING)]
    udp: Vec<Listen>,
    /// Listen for TCP peers at this address, such as 192.0.2.1:6363, or "none". May be repeated
    /// [default: port 6363 of all addresses]
    #[arg(long, value_name = "ADDR", value_parser = parse_listen, help_heading = LISTENING)]
    tcp: Vec<Listen>,
    /// Listen for WebSockets of browsers at this address, such as 192.0.2.1:9696. May be repeated
    /// [default: none]
    #[arg(long, value_name = "ADDR", value_parser = parse_websocket_address,
        help_heading = LISTENING)]
    websocket: Vec<SocketAddr>,
    /// Memory of the content store, such as 1GiB. 0 turns it off [default: 256MiB]
    #[arg(long, value_name = "SIZE", value_parser = crate::quantity::size)]
    store: Option<Size>,
    /// Extend the store with this file or block device. May be repeated. It replaces the [[disk]]
    /// tables of the file [default: none]
    #[arg(long, value_name = "PATH", value_parser = parse_disk_path)]
    disk: Vec<PathBuf>,
    /// Size of each --disk, such as 100GiB: once for all, or as often as --disk. A block device
    /// needs none
    #[arg(long, value_name = "SIZE", requires = "disk")]
    disk_size: Vec<Size>,
    /// Number of worker threads, 1 to 64, or "auto": half the number of processors, at most 8, or 1
    /// with disks [default: auto]
    #[arg(long, value_name = "N")]
    threads: Option<Threads>,
    /// Serve Prometheus metrics at http://ADDR/metrics, such as 127.0.0.1:9636. Use loopback or a
    /// trusted network [default: off]
    #[arg(long, value_name = "ADDR", value_parser = parse_metrics_address)]
    metrics: Option<SocketAddr>,
    /// Profile the router by sampling, and write a CSV file (function, percent, samples) when it
    /// stops [default: off]
    #[arg(long, value_name = "FILE")]
    profile: Option<PathBuf>,
    /// Print the ready line as a JSON object, and log in JSON
    #[arg(long, help_heading = OUTPUT)]
    json: bool,
}

/// The value of `--udp` or `--tcp`: an address, or `none`.
#[derive(Clone, Copy)]
enum Listen {
    At(SocketAddr),
    Nowhere,
}

fn parse_listen(text: &str) -> Result<Listen, String> {
    match text {
        "none" => Ok(Listen::Nowhere),
        address => parse_listen_address(address).map(Listen::At),
    }
}

fn addresses(listens: &[Listen]) -> Vec<SocketAddr> {
    let at = listens.iter().filter_map(|listen| match listen {
        Listen::At(address) => Some(*address),
        Listen::Nowhere => None,
    });
    at.collect()
}

impl Args {
    /// Overrides the configuration file with the command line.
    fn apply(&self, config: &mut FileConfig) -> anyhow::Result<()> {
        if let Some(unix) = &self.unix {
            config.faces.unix = unix.clone();
        }
        if !self.udp.is_empty() {
            config.faces.udp = addresses(&self.udp);
        }
        if !self.tcp.is_empty() {
            config.faces.tcp = addresses(&self.tcp);
        }
        if !self.websocket.is_empty() {
            config.faces.websocket = self.websocket.clone();
        }
        if let Some(size) = self.store {
            config.store.size = size;
        }
        if let Some(threads) = self.threads {
            config.router.threads = threads;
        }
        if let Some(address) = self.metrics {
            config.metrics.address = Some(address);
        }
        if self.json {
            config.log.format = LogFormat::Json;
        }
        if !self.disk.is_empty() {
            config.disk = self.disks()?;
        }
        Ok(())
    }

    /// The disks of the command line.
    fn disks(&self) -> anyhow::Result<Vec<DiskSection>> {
        let sizes = match &self.disk_size[..] {
            [] => vec![None; self.disk.len()],
            [size] => vec![Some(*size); self.disk.len()],
            sizes => sizes.iter().copied().map(Some).collect(),
        };
        ensure!(
            sizes.len() == self.disk.len(),
            "--disk-size is given {} times and --disk {} times; give one size for all disks, or \
             one for each",
            sizes.len(),
            self.disk.len()
        );
        let disks = self.disk.iter().cloned().zip(sizes);
        Ok(disks.map(|(path, size)| DiskSection::new(path, size)).collect())
    }
}

fn parse_disk_path(path: &str) -> Result<PathBuf, String> {
    match path {
        "" => Err("the path is empty; use the path of a file or block device".into()),
        path => Ok(path.into()),
    }
}

pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    if args.print_default_config {
        return print(default_config().trim_end());
    }
    if args.check {
        return reload::check(&args);
    }
    if args.reload {
        return reload::request(&args);
    }
    let mut file = ConfigFile::read(args.config.as_deref())?;
    args.apply(&mut file.config)?;
    let log_level = start_log(&file.config.log, None)?;
    if let Some(path) = &file.path {
        tracing::info!(path = %path.display(), "read the configuration");
    }
    let profile = args.profile.as_deref().map(Profile::start).transpose()?;
    // `{error}` already includes the causes; a chain would print them twice.
    let config = &file.config;
    reload::log_size_warnings(config);
    let router = Runtime::start(config.to_runtime()?)
        .map_err(|error| anyhow::anyhow!("the router cannot start: {error}"))?;
    let agent = config.controller.agent(router.listening(), config.rates_bps())?;
    let agent = agent
        .map(|agent| Agent::start(agent, &router))
        .transpose()
        .map_err(|error| anyhow::anyhow!("[controller]: {error}"))?;
    print(&ready_line(router.listening(), router.metrics_address(), args.json))?;
    ServedRouter { args, router, started: file, log_level, _agent: agent }.serve()?;
    profile.map_or(Ok(()), Profile::finish)
}

/// Samples per second of processor time. Many kernels take fewer.
const PROFILE_RATE_HZ: u32 = 1000;

/// A running profile and the file that it goes to.
struct Profile {
    profiler: Profiler,
    file: File,
    path: PathBuf,
}

impl Profile {
    /// Creates the file first, so that an unwritable path fails now and not after the measurement.
    fn start(path: &Path) -> anyhow::Result<Self> {
        let file =
            File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
        let profiler = Profiler::start(PROFILE_RATE_HZ).context("cannot profile")?;
        Ok(Self { profiler, file, path: path.to_path_buf() })
    }

    fn finish(mut self) -> anyhow::Result<()> {
        let text = profile_csv(&self.profiler.finish());
        let written = self.file.write_all(text.as_bytes());
        written.with_context(|| format!("cannot write {}", self.path.display()))
    }
}

/// Functions as CSV. Names are quoted, as they may contain commas.
fn profile_csv(functions: &[FunctionSamples]) -> String {
    let all: u64 = functions.iter().map(|row| row.samples).sum();
    let rows = functions.iter().map(|row| {
        let percent = row.samples as f64 * 100.0 / all as f64;
        format!("\"{}\",{percent:.3},{}\n", row.function.replace('"', "\"\""), row.samples)
    });
    std::iter::once("function,self_percent,samples\n".to_owned()).chain(rows).collect()
}

/// Replaces the filter of the log.
type SetFilter = Box<dyn Fn(EnvFilter) -> Result<(), ReloadError>>;

/// The level of the log, which may change while the program runs.
pub(crate) struct LogLevel {
    level: String,
    set_filter: SetFilter,
}

impl LogLevel {
    /// Changes the level, unless RUST_LOG has set it. Returns whether it is another one now.
    pub(crate) fn set(&mut self, log: &LogSection) -> anyhow::Result<bool> {
        if self.level == log.level.0 || filter_of_environment().is_some() {
            return Ok(false);
        }
        (self.set_filter)(EnvFilter::try_new(&log.level.0)?)?;
        self.level.clone_from(&log.level.0);
        Ok(true)
    }
}

fn filter_of_environment() -> Option<String> {
    std::env::var(EnvFilter::DEFAULT_ENV).ok().filter(|filter| !filter.is_empty())
}

/// Warns if clients refuse the certificate in this file of a controller or gateway.
pub(crate) fn warn_of_certificate(path: &Path) {
    let problem = weir_face::certificate_problem(path);
    weir_runtime::warn_of_certificate(path.display(), problem, "restart this program");
}

/// Starts the log, and passes spans to `traces`. The level of the log does not concern spans.
pub(crate) fn start_log(log: &LogSection, traces: Option<TraceLayer>) -> anyhow::Result<LogLevel> {
    let filter = match filter_of_environment() {
        Some(filter) => EnvFilter::try_new(&filter).with_context(|| {
            format!("RUST_LOG is `{filter}`; set it to a level such as `debug`")
        })?,
        None => EnvFilter::try_new(&log.level.0)?,
    };
    let (filter, handle) = tracing_subscriber::reload::Layer::new(filter);
    let layer = tracing_subscriber::fmt::layer()
        .with_ansi(has_color())
        .with_writer(std::io::stderr)
        // On a write error, the log would print a message to standard error and panic. A closed
        // terminal must not end the router.
        .log_internal_errors(false);
    let layer: TraceLayer = match log.format {
        LogFormat::Text => Box::new(layer.with_filter(filter)),
        LogFormat::Json => Box::new(layer.json().with_filter(filter)),
    };
    let layers: Vec<_> = traces.into_iter().chain([layer]).collect();
    tracing_subscriber::registry().with(layers).init();
    let set_filter = Box::new(move |filter| handle.reload(filter));
    Ok(LogLevel { level: log.level.0.clone(), set_filter })
}

fn ready_line(listening: &[String], metrics: Option<SocketAddr>, json: bool) -> String {
    let metrics = metrics.map(|address| format!("http://{address}/metrics"));
    if json {
        let ready = serde_json::json!({
            "ready": true,
            "listening": listening,
            "metrics": metrics,
            "pid": process::id(),
        });
        return ready.to_string();
    }
    let mut line = match listening {
        [] => "weir router is ready; it has no listeners".to_owned(),
        listening => format!("weir router is ready at {}", listening.join(", ")),
    };
    if let Some(metrics) = metrics {
        line.push_str("; metrics at ");
        line.push_str(&metrics);
    }
    line
}

/// Prints a line and flushes it, so that a script that waits for the line gets it immediately.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}").and_then(|()| out.flush()).context("cannot write to standard output")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    fn config_of(flags: &[&str]) -> FileConfig {
        let cli = Cli::try_parse_from([&["weir"], flags].concat()).unwrap();
        let mut config = FileConfig::default();
        cli.args.apply(&mut config).unwrap();
        config
    }

    #[test]
    fn flags_override_the_file() {
        let defaults = FileConfig::default();
        assert_eq!(config_of(&[]), defaults);
        let config = config_of(&[
            "--unix",
            "/tmp/x.sock",
            "--udp",
            "127.0.0.1:7000",
            "--udp",
            "::1",
            "--tcp",
            "none",
            "--websocket",
            "192.0.2.1",
            "--store",
            "1GiB",
            "--threads",
            "2",
            "--metrics",
            "127.0.0.1:9000",
        ]);
        assert_eq!(config.faces.unix, UnixChoice::Path("/tmp/x.sock".into()));
        let udp: Vec<String> = config.faces.udp.iter().map(ToString::to_string).collect();
        assert_eq!(udp, ["127.0.0.1:7000", "[::1]:6363"]);
        assert!(config.faces.tcp.is_empty());
        assert_eq!(config.faces.websocket, ["192.0.2.1:9696".parse().unwrap()]);
        assert_eq!(config.store.size, Size { bytes: 1 << 30 });
        assert_eq!(config.router.threads, Threads::Count(2));
        assert_eq!(config.metrics.address, Some("127.0.0.1:9000".parse().unwrap()));
    }

    #[test]
    fn disk_flags_come_in_pairs() {
        let disks = |flags: &[&str]| {
            let cli = Cli::try_parse_from([&["weir"], flags].concat()).unwrap();
            let mut config = FileConfig::default();
            let applied = cli.args.apply(&mut config);
            applied.map(|()| config.disk).map_err(|error| error.to_string())
        };
        let one = disks(&["--disk", "/a", "--disk", "/b", "--disk-size", "1GiB"]).unwrap();
        let sizes: Vec<_> = one.iter().map(|disk| disk.size.map(|size| size.bytes)).collect();
        assert_eq!(sizes, [Some(1 << 30); 2]);
        let each = ["--disk", "/a", "--disk-size", "1GiB", "--disk", "/b", "--disk-size", "2GiB"];
        assert_eq!(disks(&each).unwrap()[1].size, Some(Size { bytes: 2 << 30 }));
        assert_eq!(disks(&["--disk", "/dev/sdx"]).unwrap()[0].size, None);
        let error = disks(&[&["--disk", "/c"][..], &each].concat()).unwrap_err();
        assert!(error.contains("2 times and --disk 3 times"), "{error}");
        assert!(Cli::try_parse_from(["weir", "--disk-size", "1GiB"]).is_err());
    }

    #[test]
    fn profile_is_valid_csv() {
        let rows = [("a::f<u8, u16>", 3), ("b", 1)]
            .map(|(function, samples)| FunctionSamples { function: function.into(), samples });
        let expected =
            "function,self_percent,samples\n\"a::f<u8, u16>\",75.000,3\n\"b\",25.000,1\n";
        assert_eq!(profile_csv(&rows), expected);
        assert_eq!(profile_csv(&[]), "function,self_percent,samples\n");
    }

    #[test]
    fn ready_line_lists_listeners() {
        let listening = ["unix:///run/nfd/nfd.sock".to_owned(), "udp4://0.0.0.0:6363".to_owned()];
        let line = ready_line(&listening, None, false);
        assert!(line.contains("unix:///run/nfd/nfd.sock, udp4://0.0.0.0:6363"), "{line}");
        let line = ready_line(&listening, Some("127.0.0.1:1".parse().unwrap()), true);
        let value: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(value["listening"][1], "udp4://0.0.0.0:6363");
        assert_eq!(value["metrics"], "http://127.0.0.1:1/metrics");
    }
}
