//! The configuration of Interest shaping.

use alloc::borrow::ToOwned;
use alloc::string::String;
use core::str::FromStr;

use weir_base::NS_PER_MS;
use weir_base::units::{parse_bytes, parse_duration_ns};

use crate::order::OptionOrderError;

/// Decides which incoming Interests of a face are delayed before the forwarder receives them.
///
/// As text: `none`, or `fisp` with options as `key=value`, for example `fisp capacity=1500KB
/// gamma=0.6`. The keys are those of [`FispConfig`].
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum ShapingConfig {
    #[default]
    None,
    /// Fair share Interest shaping.
    Fisp(FispConfig),
}

/// A number in thousandths, so that configurations can be compared.
type Thousandths = u32;

/// Options of fair share Interest shaping (paper chopcop, 3.2). The defaults come from its section
/// 5.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct FispConfig {
    /// `capacity`: size of the queue towards the downstream in bytes, C of the paper.
    pub capacity_bytes: u64,
    /// `gamma`: the weight of Data that is still expected, in thousandths (Eq. 2).
    pub gamma: Thousandths,
    /// `release`: below this fraction of the capacity no Interest is delayed any longer, in
    /// thousandths.
    pub release: Thousandths,
    /// `min`: above this fraction of the capacity shaping begins, in thousandths.
    pub min: Thousandths,
    /// `max`: above this fraction of the capacity every Interest is delayed, in thousandths.
    pub max: Thousandths,
    /// `p0`: the delay probability at which shaping begins, in thousandths.
    pub p0: Thousandths,
    /// `interval`: minimum delay of an Interest, ns. The paper says "a certain interval".
    pub interval_ns: u64,
    /// `held_max`: maximum number of delayed Interests (paper, 6.1.2). For each further Interest,
    /// one Interest is answered with a Nack.
    pub held_max: u32,
    /// `components`: the number of leading name components that identify a flow, at least 1.
    pub components: u32,
}

impl Default for FispConfig {
    fn default() -> Self {
        Self {
            capacity_bytes: 1_500_000,
            gamma: 600,
            release: 200,
            min: 600,
            max: 900,
            p0: 300,
            // Long compared with the gap between packets, so that a delayed flow slows down. Short
            // compared with the 90 ms in which the paper's link sends the bytes between `min` and
            // `max`.
            interval_ns: 10 * NS_PER_MS,
            held_max: 5000,
            components: 2,
        }
    }
}

/// Why a text does not describe a shaping.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShapingError {
    /// There is no shaping with this name.
    #[error("unknown Interest shaping `{0}`; choose `none` or `fisp`")]
    Unknown(String),
    /// There is no such option, or it cannot have this value.
    #[error(
        "invalid option `{0}` of Interest shaping `fisp`; its options are capacity=1500KB, \
         gamma=0.6, release=0.2, min=0.6, max=0.9, p0=0.3, interval=10ms, held_max=5000 and \
         components=2"
    )]
    Option(String),
    /// The thresholds must increase.
    #[error("invalid Interest shaping `fisp`: {0}")]
    Thresholds(#[from] OptionOrderError),
}

impl FromStr for ShapingConfig {
    type Err = ShapingError;

    fn from_str(text: &str) -> Result<Self, ShapingError> {
        let mut words = text.split_whitespace();
        match words.next().unwrap_or_default() {
            "none" => match words.next() {
                None => Ok(Self::None),
                Some(option) => Err(ShapingError::Option(option.to_owned())),
            },
            "fisp" => {
                let mut config = FispConfig::default();
                for option in words {
                    let known =
                        option.split_once('=').and_then(|(key, value)| config.set(key, value));
                    known.ok_or_else(|| ShapingError::Option(option.to_owned()))?;
                }
                let part = |thousandths| f64::from(thousandths) / 1000.0;
                let FispConfig { release, min, max, .. } = config;
                OptionOrderError::require_below(("release", part(release)), ("min", part(min)))?;
                OptionOrderError::require_below(("min", part(min)), ("max", part(max)))?;
                Ok(Self::Fisp(config))
            }
            other => Err(ShapingError::Unknown(other.to_owned())),
        }
    }
}

impl FispConfig {
    fn set(&mut self, key: &str, value: &str) -> Option<()> {
        match key {
            "capacity" => {
                self.capacity_bytes = parse_bytes(value).ok().filter(|&bytes| bytes > 0)?;
            }
            "gamma" => self.gamma = thousandths(value)?,
            "release" => self.release = thousandths(value)?,
            "min" => self.min = thousandths(value)?,
            "max" => self.max = thousandths(value)?,
            "p0" => self.p0 = thousandths(value).filter(|&p0| p0 <= 1000)?,
            "interval" => self.interval_ns = parse_duration_ns(value).ok()?,
            "held_max" => self.held_max = value.parse().ok()?,
            "components" => self.components = value.parse().ok().filter(|&count| count > 0)?,
            _ => return None,
        }
        Some(())
    }

    /// A fraction of the capacity in bytes.
    pub(super) fn fraction_bytes(&self, part: Thousandths) -> u64 {
        scaled(self.capacity_bytes, part)
    }
}

/// `bytes` times a number in thousandths.
pub(super) fn scaled(bytes: u64, by: Thousandths) -> u64 {
    let product = u128::from(bytes) * u128::from(by) / 1000;
    u64::try_from(product).unwrap_or(u64::MAX)
}

/// Parses a number such as `0.6`, up to 1000.
fn thousandths(text: &str) -> Option<Thousandths> {
    let number: f64 = text.parse().ok()?;
    (0.0..=1000.0).contains(&number).then_some((number * 1000.0 + 0.5) as Thousandths)
}
