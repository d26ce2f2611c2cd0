//! The router's configuration file (TOML): every key has a default, an unknown key is an error, and
//! `default-config.toml` documents them all.

mod controller;
mod disk;
mod management;
mod unix;

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use serde::de::{Error as _, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};
use weir_base::units::{Rate, Size, Time};
use weir_face::FaceUri;
use weir_forward::{DataSource, NAME_COMPONENTS_MAX, PREFIX_COMPONENTS_MAX};
use weir_options::{DisksOptions, StoreOptions};
use weir_runtime::{
    DisciplineConfig, FaceBounds, FaceDefaults, Listener, MarkingPolicy, PitTokenChoice,
    RuntimeConfig, ShapingConfig, StaticFace, StrategyKind, THREADS_MAX, UnixAccess,
    memory_bytes_least,
};
use weir_wire::{Name, PACKET_SIZE_MAX};

pub(crate) use self::controller::ControllerSection;
use self::disk::DiskSection;
use self::management::ManagementSection;
pub(crate) use self::unix::UnixChoice;
use self::unix::{GroupText, ModeText};

/// The commented default configuration, as `weir router --print-default-config` prints it. The
/// options of the store and of disks have their texts from `weir-options`.
pub(crate) fn default_config() -> String {
    let store = described(StoreOptions::TEXTS, &StoreOptions::default());
    let disks = described(DisksOptions::TEXTS, &DisksOptions::default());
    let text = include_str!("default-config.toml");
    text.replace("{store options}\n", &store).replace("{disks options}\n", &disks)
}

/// Options with their texts as comments above them.
fn described(texts: &[(&str, &[&str])], options: &impl serde::Serialize) -> String {
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
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(expecting = "a table", deny_unknown_fields, default)]
pub(crate) struct RouterSection {
    pub(crate) threads: Threads,
    #[serde(deserialize_with = "positive")]
    pub(crate) pit_entries_max: usize,
    #[serde(deserialize_with = "positive")]
    pub(crate) pit_entries_per_face_max: usize,
    #[serde(deserialize_with = "interest_lifetime")]
    pub(crate) interest_lifetime_max: Time,
    pub(crate) memory_max: toml::Spanned<Size>,
    pub(crate) memory_ahead: Size,
    #[serde(deserialize_with = "positive")]
    pub(crate) fib_entries_max: usize,
    #[serde(deserialize_with = "positive")]
    pub(crate) name_components_max: usize,
    pub(crate) data_from: DataSource,
    pub(crate) producer_regions: Vec<Prefix>,
}

impl Default for RouterSection {
    fn default() -> Self {
        Self {
            threads: Threads::Auto,
            pit_entries_max: 1_000_000,
            pit_entries_per_face_max: 250_000,
            interest_lifetime_max: to_time(Duration::from_secs(60)),
            memory_max: toml::Spanned::new(0..0, Size { bytes: 256 << 20 }),
            memory_ahead: Size { bytes: 128 << 20 },
            fib_entries_max: 1_000_000,
            name_components_max: NAME_COMPONENTS_MAX,
            data_from: DataSource::default(),
            producer_regions: Vec::new(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(expecting = "a table", deny_unknown_fields, default)]
pub(crate) struct FacesSection {
    pub(crate) unix: UnixChoice,
    pub(crate) unix_mode: ModeText,
    pub(crate) unix_group: GroupText,
    #[serde(deserialize_with = "listen_addresses")]
    pub(crate) udp: Vec<SocketAddr>,
    #[serde(deserialize_with = "listen_addresses")]
    pub(crate) tcp: Vec<SocketAddr>,
    #[serde(deserialize_with = "positive")]
    pub(crate) faces_max: usize,
    #[serde(deserialize_with = "positive")]
    pub(crate) faces_per_host_max: usize,
    #[serde(deserialize_with = "positive")]
    pub(crate) faces_per_network_max: usize,
    #[serde(deserialize_with = "queue_size")]
    pub(crate) queue_size_max: Size,
    pub(crate) udp_mtu: MtuChoice,
    pub(crate) congestion_marking: bool,
    pub(crate) marking: MarkingText,
    pub(crate) mark_threshold: Size,
    #[serde(deserialize_with = "mark_interval")]
    pub(crate) mark_interval: Time,
    pub(crate) reliability: bool,
    pub(crate) runs: bool,
    pub(crate) pit_token: PitTokenWord,
    pub(crate) shared_memory: bool,
    pub(crate) discipline: DisciplineText,
    pub(crate) shaping: ShapingText,
    #[serde(deserialize_with = "idle_timeout")]
    pub(crate) idle_timeout: Time,
    #[serde(deserialize_with = "stall_timeout")]
    pub(crate) stall_timeout: Time,
}

fn to_time(duration: Duration) -> Time {
    Time { ns: u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX) }
}

/// NDN's port for UDP and TCP.
const DEFAULT_PORT: u16 = 6363;

fn default_addresses() -> Vec<SocketAddr> {
    vec![
        SocketAddr::from((std::net::Ipv4Addr::UNSPECIFIED, DEFAULT_PORT)),
        SocketAddr::from((std::net::Ipv6Addr::UNSPECIFIED, DEFAULT_PORT)),
    ]
}

impl Default for FacesSection {
    fn default() -> Self {
        let defaults = FaceDefaults::default();
        Self {
            unix: UnixChoice::Auto,
            unix_mode: ModeText(UnixAccess::default().mode),
            unix_group: GroupText::default(),
            udp: default_addresses(),
            tcp: default_addresses(),
            faces_max: 16384,
            faces_per_host_max: 1024,
            faces_per_network_max: 4096,
            queue_size_max: Size { bytes: defaults.queue_bytes_max as u64 },
            udp_mtu: MtuChoice(defaults.udp_mtu),
            congestion_marking: defaults.congestion_marking,
            marking: MarkingText(defaults.marking),
            mark_threshold: Size { bytes: defaults.mark_threshold_bytes },
            mark_interval: to_time(defaults.mark_interval),
            reliability: defaults.reliability,
            runs: defaults.runs,
            pit_token: PitTokenWord::Short,
            shared_memory: defaults.shared_memory,
            discipline: DisciplineText(defaults.discipline),
            shaping: ShapingText(defaults.shaping),
            idle_timeout: to_time(defaults.idle_timeout),
            stall_timeout: to_time(defaults.stall_timeout),
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(expecting = "a table", deny_unknown_fields, default)]
pub(crate) struct MetricsSection {
    #[serde(deserialize_with = "metrics_address")]
    pub(crate) address: Option<SocketAddr>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(expecting = "a table", deny_unknown_fields, default)]
pub(crate) struct LogSection {
    pub(crate) level: LogFilter,
    pub(crate) format: LogFormat,
}

impl Default for LogSection {
    fn default() -> Self {
        Self { level: LogFilter("info".into()), format: LogFormat::Text }
    }
}

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormat {
    Text,
    Json,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(expecting = "a table", deny_unknown_fields)]
pub(crate) struct FaceSection {
    pub(crate) uri: UriText,
    #[serde(default)]
    pub(crate) persistency: PersistencyName,
    #[serde(default)]
    pub(crate) routes: Vec<Prefix>,
    #[serde(default)]
    pub(crate) routes_file: Option<PathBuf>,
    #[serde(default)]
    pub(crate) cost: u64,
    #[serde(default)]
    pub(crate) rate: Option<Rate>,
    #[serde(default, deserialize_with = "face_mtu")]
    pub(crate) mtu: Option<usize>,
    #[serde(default)]
    pub(crate) congestion_marking: Option<bool>,
    #[serde(default)]
    pub(crate) reliability: Option<bool>,
    #[serde(default)]
    pub(crate) runs: Option<bool>,
    #[serde(default)]
    pub(crate) pit_token: Option<PitTokenWord>,
    #[serde(default)]
    pub(crate) marking: Option<MarkingText>,
    #[serde(default)]
    pub(crate) discipline: Option<DisciplineText>,
    #[serde(default)]
    pub(crate) shaping: Option<ShapingText>,
}

/// Which PIT tokens other hosts are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum PitTokenWord {
    Off,
    Short,
    Long,
}

impl From<PitTokenWord> for PitTokenChoice {
    fn from(word: PitTokenWord) -> Self {
        match word {
            PitTokenWord::Off => Self::Off,
            PitTokenWord::Short => Self::Short,
            PitTokenWord::Long => Self::Long,
        }
    }
}

/// What becomes of a configured face that breaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum PersistencyName {
    #[default]
    Permanent,
    Persistent,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(expecting = "a table", deny_unknown_fields)]
pub(crate) struct RouteSection {
    pub(crate) prefix: Prefix,
    pub(crate) face: toml::Spanned<UriText>,
    #[serde(default)]
    pub(crate) cost: u64,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(expecting = "a table", deny_unknown_fields)]
pub(crate) struct StrategySection {
    pub(crate) prefix: Prefix,
    pub(crate) strategy: StrategyName,
}

/// Packet threads of the router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Threads {
    /// Half as many as there are processors, at least one and at most [`Threads::AUTO_MAX`]:
    /// applications and the kernel need the others.
    Auto,
    Count(usize),
}

impl Threads {
    const AUTO_MAX: usize = 8;

    /// The number. A store on disks keeps the number of threads that it was made with, so there it
    /// is one unless a number is given, whatever machine the disks are moved to.
    fn count(self, has_disks: bool) -> usize {
        match self {
            Self::Count(count) => count,
            Self::Auto if has_disks => 1,
            Self::Auto => std::thread::available_parallelism()
                .map_or(1, |processors| (processors.get() / 2).clamp(1, Self::AUTO_MAX)),
        }
    }
}

impl FromStr for Threads {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let count = text.parse().ok().filter(|count| (1..=THREADS_MAX).contains(count));
        match (text, count) {
            ("auto", _) => Ok(Self::Auto),
            (_, Some(count)) => Ok(Self::Count(count)),
            _ => Err(format!(
                "`threads` is {text}; give a number from 1 to {THREADS_MAX}, or \"auto\""
            )),
        }
    }
}

impl<'de> Deserialize<'de> for Threads {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Given {
            Number(i64),
            Text(String),
        }
        let text = match Given::deserialize(deserializer)? {
            Given::Number(count) => count.to_string(),
            Given::Text(text) if text == "auto" => text,
            Given::Text(text) => format!("\"{text}\""),
        };
        text.parse().map_err(D::Error::custom)
    }
}

fn positive<'de, D: Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
    match usize::deserialize(deserializer)? {
        0 => Err(D::Error::custom("a bound of 0 leaves no room at all; give at least 1")),
        count if count > u32::MAX as usize => {
            Err(D::Error::custom(format!("{count} is too many; give at most {}", u32::MAX)))
        }
        count => Ok(count),
    }
}

fn queue_size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Size, D::Error> {
    let size = Size::deserialize(deserializer)?;
    if size.bytes >= PACKET_SIZE_MAX as u64 {
        return Ok(size);
    }
    Err(D::Error::custom(format!(
        "a queue of {} octets has no room for a packet; give at least {PACKET_SIZE_MAX}, for \
         example \"4MiB\"",
        size.bytes
    )))
}

fn mark_interval<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Time, D::Error> {
    let remedy = "an interval of 0 would mark every packet; give for example \"100ms\", or turn \
                  marking off with `congestion_marking = false`";
    above_zero(Time::deserialize(deserializer)?, remedy)
}

fn interest_lifetime<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Time, D::Error> {
    let remedy = "Interests that wait for no time get no Data; give for example \"60s\"";
    above_zero(Time::deserialize(deserializer)?, remedy)
}

fn idle_timeout<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Time, D::Error> {
    let remedy = "a timeout of 0 would close every face at once; give for example \"600s\"";
    above_zero(Time::deserialize(deserializer)?, remedy)
}

fn stall_timeout<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Time, D::Error> {
    let remedy =
        "a timeout of 0 would close every connection that is busy; give for example \"60s\"";
    above_zero(Time::deserialize(deserializer)?, remedy)
}

fn above_zero<E: serde::de::Error>(time: Time, remedy: &str) -> Result<Time, E> {
    if time.ns == 0 { Err(E::custom(remedy)) } else { Ok(time) }
}

fn listen_addresses<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<SocketAddr>, D::Error> {
    let texts = Vec::<String>::deserialize(deserializer)?;
    texts.iter().map(|text| parse_listen_address(text).map_err(D::Error::custom)).collect()
}

fn metrics_address<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<SocketAddr>, D::Error> {
    let text = String::deserialize(deserializer)?;
    parse_metrics_address(&text).map(Some).map_err(D::Error::custom)
}

const MTU_MIN: usize = 64;
const MTU_MAX: usize = 8800;

fn check_mtu<E: serde::de::Error>(mtu: u64) -> Result<usize, E> {
    match usize::try_from(mtu) {
        Ok(mtu) if (MTU_MIN..=MTU_MAX).contains(&mtu) => Ok(mtu),
        _ => Err(E::custom(format!("an MTU of {mtu} cannot be; give {MTU_MIN} to {MTU_MAX}"))),
    }
}

fn face_mtu<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<usize>, D::Error> {
    u64::deserialize(deserializer).and_then(check_mtu).map(Some)
}

/// Reads text or an integer, as sizes and MTUs may be either.
struct TextOrInteger(&'static str);

enum Scalar {
    Text(String),
    Integer(u64),
}

impl Visitor<'_> for TextOrInteger {
    type Value = Scalar;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Scalar, E> {
        Ok(Scalar::Text(text.to_owned()))
    }

    fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<Scalar, E> {
        u64::try_from(number)
            .map(Scalar::Integer)
            .map_err(|_| E::invalid_value(Unexpected::Signed(number), &self))
    }

    fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<Scalar, E> {
        Ok(Scalar::Integer(number))
    }
}

/// An MTU in octets, or "auto" (`None`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MtuChoice(pub(crate) Option<usize>);

impl<'de> Deserialize<'de> for MtuChoice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match deserializer.deserialize_any(TextOrInteger("an MTU in octets, or \"auto\""))? {
            Scalar::Text(text) if text == "auto" => Ok(Self(None)),
            Scalar::Text(text) => Err(D::Error::custom(format!(
                "`{text}` is not an MTU; write a number of octets, or \"auto\""
            ))),
            Scalar::Integer(mtu) => check_mtu(mtu).map(|mtu| Self(Some(mtu))),
        }
    }
}

/// A forwarder's address: `udp://host:6363`, `tcp://host`, `unix:///path`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UriText(pub(crate) String);

impl FromStr for UriText {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = ["udp", "udp4", "udp6", "tcp", "tcp4", "tcp6", "unix"];
        match text.split_once("://") {
            Some((scheme, rest)) if known.contains(&scheme) && !rest.is_empty() => {
                FaceUri::check(text).map_err(|error| error.to_string())?;
                Ok(Self(text.to_owned()))
            }
            _ => Err(format!(
                "`{text}` is not a face address; write udp://HOST:PORT, tcp://HOST:PORT or \
                 unix:///PATH, for example \"udp://192.0.2.7:6363\""
            )),
        }
    }
}

/// A name prefix in URI form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Prefix(pub(crate) Name);

impl FromStr for Prefix {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if !text.starts_with('/') && !text.starts_with("ndn:") {
            return Err(format!("`{text}` is not a prefix; it begins with a slash: \"/{text}\""));
        }
        let name = Name::from_str(text).map_err(|error| {
            format!("`{text}` is not a name: {error}; write for example \"/a/b\"")
        })?;
        let count = name.component_count();
        if count > PREFIX_COMPONENTS_MAX {
            return Err(format!(
                "the prefix has {count} components, more than the {PREFIX_COMPONENTS_MAX} that a \
                 router looks at; write a shorter one"
            ));
        }
        Ok(Self(name))
    }
}

/// A strategy: a whole name, or the last part of `/localhost/nfd/strategy/...`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StrategyName(pub(crate) Name);

impl FromStr for StrategyName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = StrategyKind::WORDS;
        let whole = if known.contains(&text) {
            format!("/localhost/nfd/strategy/{text}")
        } else if text.starts_with("/localhost/nfd/strategy/") {
            text.to_owned()
        } else {
            return Err(format!(
                "`{text}` is not a strategy; write one of {known:?}, or a whole name such as \
                 \"/localhost/nfd/strategy/best-route/v=5\""
            ));
        };
        Name::from_str(&whole).map(Self).map_err(|error| format!("`{text}` is not a name: {error}"))
    }
}

/// Filters of `tracing`: a level, or levels by target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogFilter(pub(crate) String);

impl FromStr for LogFilter {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // A word alone that is no level would be taken for a part of the program, and nothing
        // logged.
        let levels = ["error", "warn", "info", "debug", "trace", "off"];
        let mut words = text.split(',').filter(|word| !word.contains(['=', '[']));
        if let Some(word) = words.find(|word| !levels.contains(&word.to_ascii_lowercase().as_str()))
        {
            return Err(format!(
                "`{word}` is not a log level; write error, warn, info, debug, trace or off"
            ));
        }
        tracing_subscriber::EnvFilter::builder().parse(text).map(|_| Self(text.to_owned())).map_err(
            |error| {
                format!(
                    "`{text}` is not a log level ({error}); write error, warn, info, debug or trace"
                )
            },
        )
    }
}

/// A marking policy by its name and options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MarkingText(pub(crate) MarkingPolicy);

impl FromStr for MarkingText {
    type Err = <MarkingPolicy as FromStr>::Err;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self)
    }
}

/// A queue discipline by its name and options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DisciplineText(pub(crate) DisciplineConfig);

impl FromStr for DisciplineText {
    type Err = <DisciplineConfig as FromStr>::Err;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self)
    }
}

/// A shaping of Interests by its name and options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ShapingText(pub(crate) ShapingConfig);

impl FromStr for ShapingText {
    type Err = <ShapingConfig as FromStr>::Err;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self)
    }
}

macro_rules! deserialize_text {
    ($($type:ty),*) => {$(
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
            }
        }
    )*};
}

deserialize_text!(
    UnixChoice,
    ModeText,
    UriText,
    Prefix,
    StrategyName,
    LogFilter,
    MarkingText,
    DisciplineText,
    ShapingText
);

impl FileConfig {
    /// Parses a configuration; `origin` (a path) begins the error.
    pub(crate) fn parse(text: &str, origin: &str) -> anyhow::Result<Self> {
        let config: Self = toml::from_str(text).map_err(|error| {
            let is_single = error.message().contains("map, expected a sequence");
            let hint = match is_single {
                true => "\nTables of which there may be several have two brackets: [[disk]]",
                false => "",
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
        Ok(RuntimeConfig {
            threads,
            store: self.store.config(),
            disks: disk::to_runtime(&self.disks, &self.disk, threads)?,
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
            faces: FaceBounds {
                faces_max: self.faces.faces_max,
                per_host_max: self.faces.faces_per_host_max,
                per_network_max: self.faces.faces_per_network_max,
            },
            listeners: self.listeners()?,
            unix_access: self.unix_access()?,
            face_defaults: self.face_defaults(),
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
        })
    }

    fn threads(&self) -> usize {
        self.router.threads.count(!self.disk.is_empty())
    }

    fn check_memory(&self) -> Result<(), String> {
        let threads = self.threads();
        let least = Size { bytes: memory_bytes_least(threads) };
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
        let of_faces = self.face.iter().filter_map(|face| Some(("[[face]]", face.marking?)));
        for (table, MarkingText(marking)) in
            core::iter::once(("[faces]", self.faces.marking)).chain(of_faces)
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

    fn listeners(&self) -> anyhow::Result<Vec<Listener>> {
        let mut listeners = Vec::new();
        match &self.faces.unix {
            UnixChoice::None => {}
            UnixChoice::Path(path) => listeners.push(Listener::Unix(path.clone())),
            UnixChoice::Auto => listeners.push(Listener::UnixDefault),
        }
        // IPv6 that this machine lacks is passed over, unless it alone was asked for.
        let required = |addresses: &[SocketAddr], address: &SocketAddr| {
            address.is_ipv4() || addresses.iter().all(SocketAddr::is_ipv6)
        };
        for &address in &self.faces.udp {
            let required = required(&self.faces.udp, &address);
            listeners.push(Listener::Udp { address, required });
        }
        for &address in &self.faces.tcp {
            let required = required(&self.faces.tcp, &address);
            listeners.push(Listener::Tcp { address, required });
        }
        Ok(listeners)
    }

    fn unix_access(&self) -> anyhow::Result<UnixAccess> {
        let group = self.faces.unix_group.resolve()?;
        Ok(UnixAccess { mode: self.faces.unix_mode.0, group })
    }

    fn face_defaults(&self) -> FaceDefaults {
        FaceDefaults {
            udp_mtu: self.faces.udp_mtu.0,
            queue_bytes_max: usize::try_from(self.faces.queue_size_max.bytes).unwrap_or(usize::MAX),
            congestion_marking: self.faces.congestion_marking,
            marking: self.faces.marking.0,
            mark_threshold_bytes: self.faces.mark_threshold.bytes,
            mark_interval: Duration::from_nanos(self.faces.mark_interval.ns),
            reliability: self.faces.reliability,
            runs: self.faces.runs,
            pit_token: self.faces.pit_token.into(),
            shared_memory: self.faces.shared_memory,
            discipline: self.faces.discipline.0,
            shaping: self.faces.shaping.0,
            idle_timeout: Duration::from_nanos(self.faces.idle_timeout.ns),
            stall_timeout: Duration::from_nanos(self.faces.stall_timeout.ns),
        }
    }

    /// Rates of declared faces in bits per second, by the URIs that the router may have them under:
    /// of a host with several addresses, by each.
    pub(crate) fn rates_bps(&self) -> BTreeMap<String, u64> {
        let rates = |face: &FaceSection| {
            let Some(rate) = face.rate else { return Vec::new() };
            let uris = FaceUri::resolve_all(&face.uri.0).inspect_err(|error| {
                tracing::warn!(uri = face.uri.0, %error, "no controller is told this rate");
            });
            uris.unwrap_or_default().iter().map(|uri| (uri.to_string(), rate.bps)).collect()
        };
        self.face.iter().flat_map(rates).collect()
    }

    fn static_faces(&self) -> anyhow::Result<Vec<StaticFace>> {
        let declared = self.face.iter().map(|face| {
            let own = face.routes.iter().map(|prefix| (prefix.0.clone(), face.cost));
            let more = self.route.iter().filter(|route| *route.face.get_ref() == face.uri);
            let mut routes: Vec<(Name, u64)> =
                own.chain(more.map(|r| (r.prefix.0.clone(), r.cost))).collect();
            if let Some(path) = &face.routes_file {
                routes.extend(read_routes(path)?.into_iter().map(|prefix| (prefix, face.cost)));
            }
            Ok(StaticFace {
                uri: face.uri.0.clone(),
                permanent: face.persistency == PersistencyName::Permanent,
                mtu: face.mtu,
                congestion_marking: face.congestion_marking,
                reliability: face.reliability,
                runs: face.runs,
                pit_token: face.pit_token.map(PitTokenChoice::from),
                marking: face.marking.map(|text| text.0),
                discipline: face.discipline.map(|text| text.0),
                shaping: face.shaping.map(|text| text.0),
                routes,
            })
        });
        declared.collect()
    }
}

/// Prefixes from a file, one a line; empty lines and lines that begin with `#` are passed over.
fn read_routes(path: &Path) -> anyhow::Result<Vec<Name>> {
    let context = || format!("cannot read {}, the `routes_file` of a [[face]]", path.display());
    // What is no file, such as a device, may have no end.
    ensure!(std::fs::metadata(path).with_context(context)?.is_file(), "{}: no file", context());
    let text = std::fs::read_to_string(path).with_context(context)?;
    let lines = text.lines().map(str::trim).enumerate();
    lines
        .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
        .map(|(index, line)| {
            let prefix: Prefix = line.parse().map_err(|error: String| {
                anyhow::anyhow!("{}: line {}: {error}", path.display(), index + 1)
            })?;
            Ok(prefix.0)
        })
        .collect()
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

/// Reads a listening address from the command line: `IP:PORT`, `IP`, or `:PORT`.
pub(crate) fn parse_listen_address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Ok(address);
    }
    if let Ok(ip) = text.parse::<IpAddr>() {
        return Ok(SocketAddr::new(ip, DEFAULT_PORT));
    }
    if let Some(Ok(port)) = text.strip_prefix(':').map(str::parse::<u16>) {
        return Ok(SocketAddr::from((std::net::Ipv4Addr::UNSPECIFIED, port)));
    }
    Err(format!("`{text}` is not an address; write IP:PORT, for example 0.0.0.0:6363"))
}

/// Reads the address at which metrics are served. There is no port that it has by nature.
pub(crate) fn parse_metrics_address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        format!("`{text}` is not an address; write IP:PORT, for example 127.0.0.1:9636")
    })
}

#[cfg(test)]
mod tests;
