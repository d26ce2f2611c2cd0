//! The options of sockets: one table for all languages and for the manual.

use std::fmt::{self, Display};
use std::ops::RangeInclusive;
use std::path::Path;
use std::str::FromStr;

use weir_base::units::{Size, Time};
use weir_base::{HashKey, NS_PER_MS};
use weir_security::SignatureFormat;
use weir_store::EvictionPolicy;
use weir_transport::{
    ConsumerConfig, Controller, Controllers, LagPolicy, MissPolicy, NameMapping, OnBad,
    ProducerConfig, Verification,
};
use weir_wire::PACKET_SIZE_MAX;

use super::SocketError;
use crate::publish::sign::{PublishOptions, SigningMode};

/// One option, for manuals and for untyped languages.
#[derive(Copy, Clone, Debug)]
pub struct OptionInfo {
    pub name: &'static str,
    /// The type of its values.
    pub kind: OptionKind,
    pub default: fn() -> String,
    /// Minimum and maximum as text, for numbers, sizes and times.
    pub bounds: fn() -> Option<(String, String)>,
    /// Lines that explain it.
    pub text: &'static [&'static str],
}

/// The type of an option's values.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum OptionKind {
    /// `true` or `false`.
    Flag,
    /// A whole number.
    Count,
    /// A size in bytes, such as `16MiB`.
    Size,
    /// A time, such as `500ms`.
    Time,
    /// A file system path, or empty.
    Path,
    Text,
    Words(&'static [&'static str]),
}

trait OptionValue: FromStr<Err: Display> + Display + PartialOrd {
    const KIND: OptionKind;
}

macro_rules! kinds {
    ($($type:ty = $kind:expr;)*) => {
        $(impl OptionValue for $type {
            const KIND: OptionKind = $kind;
        })*
    };
}

kinds! {
    bool = OptionKind::Flag;
    u32 = OptionKind::Count;
    Size = OptionKind::Size;
    Time = OptionKind::Time;
    String = OptionKind::Path;
    NameMapping = OptionKind::Text;
    Word<LagPolicy> = OptionKind::Words(LagPolicy::WORDS);
    Word<OnBad> = OptionKind::Words(OnBad::WORDS);
    Word<Controller> = OptionKind::Words(Controllers::BUILT_IN_NAMES);
    Word<EvictionPolicy> = OptionKind::Words(EvictionPolicy::WORDS);
    Word<SigningMode> = OptionKind::Words(SigningMode::WORDS);
    Word<SignatureFormat> = OptionKind::Words(SignatureFormat::WORDS);
}

/// One of several words, which have no order.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Word<T>(
    /// The value of the word.
    pub T,
);

impl<T: PartialEq> PartialOrd for Word<T> {
    fn partial_cmp(&self, _other: &Self) -> Option<std::cmp::Ordering> {
        None
    }
}

impl<T: FromStr> FromStr for Word<T> {
    type Err = T::Err;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self)
    }
}

impl<T: Display> Display for Word<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

fn parse<T: OptionValue>(
    name: &str,
    text: &str,
    bounds: Option<RangeInclusive<T>>,
) -> Result<T, SocketError> {
    let value: T = text.parse().map_err(|error: T::Err| {
        let choices = bounds.as_ref();
        let choices = choices.map(|range| format!("; choose {} to {}", range.start(), range.end()));
        let choices = choices.unwrap_or_default();
        SocketError::Option(format!("{name}: {text:?} is invalid: {error}{choices}"))
    })?;
    check(name, &value, bounds)?;
    Ok(value)
}

fn check<T: OptionValue>(
    name: &str,
    value: &T,
    bounds: Option<RangeInclusive<T>>,
) -> Result<(), SocketError> {
    match bounds {
        Some(bounds) if !bounds.contains(value) => Err(SocketError::Option(format!(
            "{name}: {value} is out of range; choose {} to {}",
            bounds.start(),
            bounds.end()
        ))),
        _ => Ok(()),
    }
}

/// A struct of options, with its table.
macro_rules! socket_options {
    (
        $(#[doc = $doc:literal])*
        pub struct $options:ident {
            $(
                $(#[doc = $text:literal])+
                $name:ident: $type:ty = $default:expr $(, $least:expr => $most:expr)?;
            )*
        }
    ) => {
        $(#[doc = $doc])*
        #[derive(Clone, Debug, PartialEq)]
        pub struct $options {
            $(
                $(#[doc = $text])+
                pub $name: $type,
            )*
        }

        impl Default for $options {
            fn default() -> Self {
                Self { $($name: $default),* }
            }
        }

        impl $options {
            pub const TABLE: &[OptionInfo] = &[$(OptionInfo {
                name: stringify!($name),
                kind: <$type as OptionValue>::KIND,
                default: || {
                    let default: $type = $default;
                    default.to_string()
                },
                bounds: || {
                    let bounds: Option<RangeInclusive<$type>> =
                        socket_options!(@ $($least, $most)?);
                    bounds.map(|bounds| (bounds.start().to_string(), bounds.end().to_string()))
                },
                text: &[$($text),+],
            }),*];

            /// Sets the option of that name.
            ///
            /// # Errors
            /// The option does not exist, or the value is invalid.
            pub fn set(&mut self, name: &str, value: &str) -> Result<(), SocketError> {
                match name {
                    $(stringify!($name) => {
                        self.$name = parse(name, value, socket_options!(@ $($least, $most)?))?;
                    })*
                    _ => return Err(unknown(name)),
                }
                Ok(())
            }

            /// The value of the option of that name, in the form that [`Self::set`] takes.
            ///
            /// # Errors
            /// The option does not exist.
            pub fn get(&self, name: &str) -> Result<String, SocketError> {
                match name {
                    $(stringify!($name) => Ok(self.$name.to_string()),)*
                    _ => Err(unknown(name)),
                }
            }

            /// Checks that all values are within their bounds.
            pub(crate) fn check(&self) -> Result<(), SocketError> {
                $(check(stringify!($name), &self.$name, socket_options!(@ $($least, $most)?))?;)*
                Ok(())
            }
        }
    };
    (@) => { None };
    (@ $least:expr, $most:expr) => { Some($least..=$most) };
}

fn unknown(name: &str) -> SocketError {
    SocketError::Option(format!("there is no option `{name}`"))
}

const fn ms(ms: u64) -> Time {
    Time { ns: ms * NS_PER_MS }
}

const fn size(bytes: u64) -> Size {
    Size { bytes }
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

socket_options! {
    /// Options of a [`Consumer`](super::Consumer). A fetch keeps the options with which it started.
    pub struct ConsumerOptions {
        /// Whether lost segments are requested again. If not, each is requested once, and missing
        /// ones are skipped.
        reliable: bool = true;
        /// Whether received data is verified.
        verify: bool = true;
        /// Whether segments are verified by the manifest, if there is one. If not, each is verified
        /// by its own signature.
        manifest: bool = true;
        /// What happens to a packet that fails verification. "ask-again" requests it again a few
        /// times and then fails. "deliver" delivers it with a flag. "abort" fails.
        on_bad: Word<OnBad> = Word(OnBad::RequestAgain);
        /// Upper bound of bytes per fetch that wait for the reader, are requested or are being
        /// verified.
        input_buffer: Size = size(16 * MIB), size(64 * KIB) => size(64 * GIB);
        /// How long routers keep an Interest.
        lifetime: Time = ms(4000), ms(1) => ms(3_600_000);
        /// How often an Interest is sent again before its fetch fails.
        retries: u32 = 15, 0 => 1000;
        /// The congestion controller, which decides how many Interests are in flight.
        controller: Word<Controller> = Word(Controller::default());
        /// Initial number of Interests in flight, or the fixed number with "fixed"; 0: the
        /// controller's own.
        window: u32 = 0, 0 => 65_536;
        /// Upper bound of Interests in flight.
        window_max: u32 = 4096, 1 => 65_536;
        /// Whether the latest version in a router's store is acceptable when no producer answers.
        stored: bool = true;
        /// Upper bound of segments of a growing object that are requested before they exist. As
        /// many as are made in a round trip arrive without delay.
        ahead: u32 = 64, 1 => 4096;
        /// What happens to new segments of a growing object while the reader's buffer is full.
        /// "in-order" fetches them later, if they are still available. "skip" continues with the
        /// newest segment when the buffer has been read.
        behind: Word<LagPolicy> = Word(LagPolicy::InOrder);
        /// Whether segments from stores must be fresh.
        fresh: bool = false;
        /// Names in the network: unchanged ("identity"), or hICN names below an IPv6 prefix, such
        /// as "hicn:2001:db8::/32".
        mapping: NameMapping = NameMapping::Identity;
    }
}

socket_options! {
    /// Options of a [`Producer`](super::Producer).
    pub struct ProducerOptions {
        /// Memory for published packets. Evicted packets go to the `disk`, or are requested from
        /// the application again.
        output_buffer: Size = size(64 * MIB), size(64 * KIB) => size(1024 * GIB);
        /// Which packets are evicted from a full output buffer.
        output_policy: Word<EvictionPolicy> = Word(EvictionPolicy::Lru);
        /// Whether packets evicted from memory are kept on the `disk`. If not, as suits live
        /// content, they are lost, and requested from the application again.
        reliable: bool = true;
        /// Folder for a file with packets that memory has no room for; empty: no file. The file has
        /// no name after it is created, and is deleted with the producer.
        disk: String = String::new();
        /// Size of that file, reserved at once. When it is full, the oldest packets are evicted.
        disk_size: Size = size(GIB), size(8 * MIB) => size(16 * 1024 * GIB);
        /// How long a read or write of that file may take. A slower disk is bypassed until it
        /// responds again; packets that only it has are requested from the application.
        disk_wait: Time = ms(500), ms(1) => ms(3_600_000);
        /// Bytes of content in each segment but the last.
        segment_size: Size = size(8000), size(1) => size(PACKET_SIZE_MAX as u64);
        /// How long stores count a segment as fresh.
        freshness: Time = ms(10_000), ms(0) => ms(86_400_000);
        /// How long stores count metadata as fresh: how late consumers may notice a new version.
        metadata_freshness: Time = ms(10), ms(0) => ms(86_400_000);
        /// What is signed. "segments" signs each segment and the manifest that lists them.
        /// "manifest" signs only the manifest, which is much faster, but not understood by other
        /// libraries.
        signs: Word<SigningMode> = Word(SigningMode::Segments);
        /// How packets are signed. "hicn" makes signatures that programs of hICN can verify, too.
        /// It needs a `mapping` to hICN names.
        signature_format: Word<SignatureFormat> = Word(SignatureFormat::Ndn);
        /// How long an Interest for unpublished data waits for its publication, at most its
        /// lifetime; "0s": it does not wait.
        request_wait: Time = ms(2000), ms(0) => ms(3_600_000);
        /// Upper bound of waiting Interests. More are answered with a Nack for congestion.
        requests_max: u32 = 4096, 1 => 1 << 24;
        /// Upper bound of names whose latest version is known. Beyond it, the one published longest
        /// ago is forgotten.
        objects_max: u32 = 65_536, 1 => 1 << 24;
        /// Threads that sign; 0: one per processor.
        threads: u32 = 0, 0 => 64;
        /// Names in the network: unchanged ("identity"), or hICN names below an IPv6 prefix, such
        /// as "hicn:2001:db8::/32".
        mapping: NameMapping = NameMapping::Identity;
    }
}

/// Upper bound of bytes per packet in the input buffer.
const PACKET_BYTES: u64 = PACKET_SIZE_MAX as u64;

impl ConsumerOptions {
    /// Packets that fit into the input buffer: half of them in the consumer, half in the reader.
    fn packet_capacity(&self) -> u32 {
        (self.input_buffer.bytes / PACKET_BYTES).min(u64::from(u32::MAX)) as u32
    }

    /// Packets that may wait in the reader.
    pub(crate) fn reader_capacity(&self) -> u32 {
        (self.packet_capacity() / 2).max(1)
    }

    /// The configuration of a [`download`](crate::download) with these options.
    pub fn config(&self) -> ConsumerConfig {
        ConsumerConfig {
            lifetime_ms: self.lifetime.ns.div_ceil(NS_PER_MS),
            retries_max: self.retries,
            controller: self.controller.0,
            window: Some(self.window).filter(|&window| window > 0),
            window_max: self.window_max.max(self.window),
            is_reliable: self.reliable,
            reader_segments_max: (self.packet_capacity() / 2).max(1),
            verification: match self.verify {
                true => Verification::Signatures,
                false => Verification::Off,
            },
            ahead_max: self.ahead,
            behind: self.behind.0,
            use_manifest: self.manifest,
            on_bad: self.on_bad.0,
            must_be_fresh: self.fresh,
            mapping: self.mapping,
            ..ConsumerConfig::default()
        }
    }
}

impl ProducerOptions {
    /// Checks what bounds of single options cannot express.
    pub(crate) fn check_all(&self) -> Result<(), SocketError> {
        self.check()?;
        match (self.signature_format.0, self.mapping) {
            (SignatureFormat::Hicn, NameMapping::Identity) => Err(SocketError::Option(
                "signature_format: hicn needs a mapping to hICN names".into(),
            )),
            _ => Ok(()),
        }
    }

    /// The folder of the output buffer's disk, if it has one.
    pub(crate) fn disk_folder(&self) -> Option<&Path> {
        (self.reliable && !self.disk.is_empty()).then(|| Path::new(&self.disk))
    }

    /// Capacity of the output buffer in bytes, in memory and on disk.
    pub(crate) fn buffer_bytes(&self) -> u64 {
        let disk_bytes = self.disk_folder().map_or(0, |_| self.disk_size.bytes);
        self.output_buffer.bytes.saturating_add(disk_bytes)
    }

    pub(crate) fn config(&self, hash_key: HashKey) -> ProducerConfig {
        ProducerConfig {
            on_miss: MissPolicy::Nack,
            wait_max_ns: self.request_wait.ns,
            waiting_max: self.requests_max as usize,
            buffer_bytes: self.output_buffer.bytes,
            buffer_policy: self.output_policy.0,
            mapping: self.mapping,
            ..ProducerConfig::new(hash_key)
        }
    }

    /// How to make objects.
    pub fn publish_options(&self) -> PublishOptions {
        let defaults = PublishOptions::default();
        PublishOptions {
            segment_size: self.segment_size.bytes as usize,
            freshness_ms: self.freshness.ns / NS_PER_MS,
            metadata_freshness_ms: self.metadata_freshness.ns / NS_PER_MS,
            signs: self.signs.0,
            mapping: self.mapping,
            signature_format: self.signature_format.0,
            threads: match self.threads {
                0 => defaults.threads,
                threads => threads as usize,
            },
            ..defaults
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_accept_exactly_their_bounds() {
        let (mut consumer, mut producer) = (ConsumerOptions::default(), ProducerOptions::default());
        for info in ConsumerOptions::TABLE {
            assert_eq!(consumer.get(info.name).unwrap(), (info.default)(), "{}", info.name);
            consumer.set(info.name, &(info.default)()).unwrap();
        }
        assert_eq!(consumer, ConsumerOptions::default());
        for info in ProducerOptions::TABLE {
            assert!(!info.text.is_empty());
            producer.set(info.name, &(info.default)()).unwrap();
            let Some((least, most)) = (info.bounds)() else { continue };
            for bound in [least, most] {
                producer.set(info.name, &bound).unwrap();
                assert_eq!(producer.get(info.name).unwrap(), bound, "{}", info.name);
            }
        }
        producer.check().unwrap();
    }

    fn row(info: &OptionInfo) -> String {
        let words = |words: &[&str]| words.join("`, `");
        let values = match (info.kind, (info.bounds)()) {
            (OptionKind::Flag, _) => "`true`, `false`".into(),
            (OptionKind::Words(those), _) => format!("`{}`", words(those)),
            (OptionKind::Path, _) => "a path".into(),
            (OptionKind::Text, _) => "see `docs/sockets.md`".into(),
            (_, Some((least, most))) => format!("{least} to {most}"),
            (_, None) => String::new(),
        };
        let text: Vec<&str> = info.text.iter().map(|line| line.trim()).collect();
        let (name, default, text) = (info.name, (info.default)(), text.join(" "));
        let default = if default.is_empty() { "none".into() } else { format!("`{default}`") };
        format!("| `{name}` | {default} | {values} | {text} |\n")
    }

    /// Generates the manual's page from the tables: WEIR_WRITE_MANUAL=1 writes it.
    #[test]
    fn manual_lists_all_options() {
        let tables = [("Consumers", ConsumerOptions::TABLE), ("Producers", ProducerOptions::TABLE)];
        let mut page = String::from("# Options of sockets\n\n");
        page += "Options have the same names in every language. Sizes are bytes, or values ";
        page += "such as `16MiB`. Times\n";
        page += "are values such as `500ms`. This page is generated from tables in `io/socket`.\n";
        for (title, table) in tables {
            let head = "| option | default | values | meaning |\n|---|---|---|---|\n";
            page += &format!("\n## {title}\n\n{head}");
            page.extend(table.iter().map(row));
        }
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/socket-options.md");
        if std::env::var_os("WEIR_WRITE_MANUAL").is_some() {
            std::fs::write(path, &page).unwrap();
        }
        let written = std::fs::read_to_string(path).unwrap();
        assert!(
            written == page,
            "{path} is out of date; run this test with WEIR_WRITE_MANUAL=1 to update it"
        );
    }

    #[test]
    fn explains_invalid_values() {
        let mut options = ConsumerOptions::default();
        for (name, value, problem) in [
            ("speed", "1", "no option `speed`"),
            ("on_bad", "hope", "ask-again"),
            ("retries", "1001", "0 to 1000"),
            ("input_buffer", "1KiB", "64KiB"),
            ("reliable", "perhaps", "reliable"),
        ] {
            let error = options.set(name, value).unwrap_err().to_string();
            assert!(error.contains(problem), "{name}: {error}");
        }
        options.retries = 1001;
        assert!(options.check().is_err());
        options.set("retries", "3").unwrap();
        options.set("on_bad", "deliver").unwrap();
        assert_eq!((options.retries, options.on_bad), (3, Word(OnBad::Deliver)));
        assert_eq!(options.config().on_bad, OnBad::Deliver);
        assert!(options.get("speed").is_err());
    }

    #[test]
    fn input_buffer_bounds_both_sides() {
        let mut options = ConsumerOptions::default();
        options.set("input_buffer", "1MiB").unwrap();
        let packets = options.config().reader_segments_max + options.reader_capacity();
        assert!(u64::from(packets) * PACKET_BYTES <= 1 << 20);
    }
}
