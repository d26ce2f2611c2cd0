use serde::de::{self, Deserializer, MapAccess, Visitor, value::MapAccessDeserializer};
use serde::{Deserialize, Serialize};

use weir_base::units::{Fraction, Rate, Size, Time};

/// Default limit on frames that wait for a link.
pub(crate) const QUEUE_PACKETS_DEFAULT: u32 = 1_000;

/// The configuration of one direction of a link. The default link is ideal: no delay, no rate
/// limit, no loss.
///
/// In a file, each quantity is either text under a plain key, or an integer under a key that ends
/// in its unit:
///
/// ```toml
/// rate = "40Mbit"                     # or rate_bps = 40000000
/// delay = "10ms"                      # or delay_ns
/// jitter = { normal = { sigma = "1ms" } }   # or a time, for uniform jitter from 0 to that time
/// loss = "1%"                         # or a number, or { gilbert_elliott = { good_to_bad = .. } }
/// reorder = { probability = 0.01, extra = "5ms" }
/// queue = "256KiB"                    # or queue_bytes_max
/// queue_packets_max = 1000
/// overhead_bytes = 38
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "LinkText")]
pub struct LinkConfig {
    /// Rate in bits per second at which frames leave the queue. `None` sends every frame at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_bps: Option<u64>,
    /// Time from sending the last bit of a frame to its arrival.
    pub delay_ns: u64,
    #[serde(skip_serializing_if = "is_default")]
    pub jitter: Jitter,
    /// Loss on the wire. A lost frame still takes its sending time.
    #[serde(skip_serializing_if = "is_default")]
    pub loss: Loss,
    /// Delays some frames so that they arrive after later ones. `None` keeps the order.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reorder: Option<Reorder>,
    /// Limit on the bytes that wait behind the frame being sent, `overhead_bytes` included.
    /// `u64::MAX` means no limit.
    #[serde(skip_serializing_if = "is_unbounded")]
    pub queue_bytes_max: u64,
    /// Limit on the frames that wait behind the frame being sent.
    pub queue_packets_max: u32,
    /// Bytes added to each frame, on the wire and in the queue: lower-layer headers, preamble and
    /// gap.
    pub overhead_bytes: u32,
}

impl Default for LinkConfig {
    fn default() -> Self {
        Self {
            rate_bps: None,
            delay_ns: 0,
            jitter: Jitter::None,
            loss: Loss::None,
            reorder: None,
            queue_bytes_max: u64::MAX,
            queue_packets_max: QUEUE_PACKETS_DEFAULT,
            overhead_bytes: 0,
        }
    }
}

/// Random delay added to `delay_ns`. It never reorders: a frame arrives no earlier than the frame
/// before it.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Jitter {
    #[default]
    None,
    /// Uniform from 0 to `max_ns`.
    Uniform { max_ns: u64 },
    /// Normal with mean 0. The total delay is never negative.
    Normal {
        /// Standard deviation.
        sigma_ns: u64,
    },
}

/// Which frames the wire loses.
#[derive(Copy, Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Loss {
    #[default]
    None,
    Independent {
        probability: f64,
    },
    /// A Markov chain with two states that takes one step before each frame (Gilbert-Elliott).
    ///
    /// It starts in its stationary distribution, so the mean loss is the same from the first frame
    /// on: `(good_to_bad loss_bad + bad_to_good loss_good) / (good_to_bad + bad_to_good)`.
    GilbertElliott {
        /// Probability of a step from good to bad.
        good_to_bad: f64,
        /// Probability of a step from bad to good. The mean burst has `1 / bad_to_good` frames.
        bad_to_good: f64,
        /// Loss probability in the good state.
        loss_good: f64,
        /// Loss probability in the bad state.
        loss_bad: f64,
    },
}

impl Loss {
    /// Long-run fraction of lost frames.
    pub fn mean(&self) -> f64 {
        match *self {
            Self::None => 0.0,
            Self::Independent { probability } => probability,
            Self::GilbertElliott { loss_good, loss_bad, .. } => {
                let bad = self.bad_share();
                bad * loss_bad + (1.0 - bad) * loss_good
            }
        }
    }

    /// Stationary probability of the bad state; 0 if there is none or the chain never moves.
    pub(crate) fn bad_share(&self) -> f64 {
        match *self {
            Self::GilbertElliott { good_to_bad, bad_to_good, .. }
                if good_to_bad + bad_to_good > 0.0 =>
            {
                good_to_bad / (good_to_bad + bad_to_good)
            }
            _ => 0.0,
        }
    }
}

/// Frames that arrive late.
#[derive(Copy, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "ReorderText")]
pub struct Reorder {
    /// Probability that a frame is delayed.
    pub probability: f64,
    /// Additional delay of such a frame.
    pub extra_ns: u64,
}

/// Why a configuration is invalid.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ConfigError {
    #[error(
        "a rate of 0 carries nothing; omit the rate for an unlimited link, or use a link-down fault"
    )]
    RateZero,
    /// A probability outside 0 to 1.
    #[error("`{key}` is {value}; write a probability from 0 to 1")]
    Probability { key: &'static str, value: f64 },
    /// One quantity in both notations.
    #[error("both `{text}` and `{number}` are set; remove one of them")]
    Twice {
        text: &'static str,
        /// The key of the integer.
        number: &'static str,
    },
    /// A required quantity is missing.
    #[error("`{text}` is missing, for example {text} = \"{example}\"")]
    Missing { text: &'static str, example: &'static str },
    /// A count that must be at least 1.
    #[error("`{0}` is 0; write at least 1")]
    Zero(&'static str),
    /// A histogram without a usable weight.
    #[error(
        "a histogram needs weights that are finite and not negative, and one above 0, for example \
         bins = [[100000, 0.9], [2000000, 0.1]]"
    )]
    Histogram,
}

pub(crate) fn check_probability(key: &'static str, value: f64) -> Result<(), ConfigError> {
    if (0.0..=1.0).contains(&value) { Ok(()) } else { Err(ConfigError::Probability { key, value }) }
}

impl LinkConfig {
    /// Checks a configuration built in code, as reading a file does.
    ///
    /// # Errors
    /// The rate is 0, or a probability is outside 0 to 1.
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.rate_bps == Some(0) {
            return Err(ConfigError::RateZero);
        }
        if let Some(reorder) = self.reorder {
            check_probability("reorder.probability", reorder.probability)?;
        }
        match self.loss {
            Loss::None => Ok(()),
            Loss::Independent { probability } => check_probability("loss", probability),
            Loss::GilbertElliott { good_to_bad, bad_to_good, loss_good, loss_bad } => [
                ("good_to_bad", good_to_bad),
                ("bad_to_good", bad_to_good),
                ("loss_good", loss_good),
                ("loss_bad", loss_bad),
            ]
            .into_iter()
            .try_for_each(|(key, value)| check_probability(key, value)),
        }
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

fn is_unbounded(bytes: &u64) -> bool {
    *bytes == u64::MAX
}

/// A quantity given as text or as an integer.
pub(crate) fn either<T>(
    text: (&'static str, Option<T>),
    number: (&'static str, Option<u64>),
    integer: impl Fn(T) -> u64,
) -> Result<Option<u64>, ConfigError> {
    match (text.1, number.1) {
        (Some(_), Some(_)) => Err(ConfigError::Twice { text: text.0, number: number.0 }),
        (Some(value), None) => Ok(Some(integer(value))),
        (None, given) => Ok(given),
    }
}

/// [`LinkConfig`] as written in files.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
#[derive(Default)]
struct LinkText {
    rate: Option<Rate>,
    rate_bps: Option<u64>,
    delay: Option<Time>,
    delay_ns: Option<u64>,
    jitter: Jitter,
    loss: Loss,
    reorder: Option<Reorder>,
    queue: Option<Size>,
    queue_bytes_max: Option<u64>,
    queue_packets_max: Option<u32>,
    overhead_bytes: u32,
}

impl TryFrom<LinkText> for LinkConfig {
    type Error = ConfigError;

    fn try_from(text: LinkText) -> Result<Self, ConfigError> {
        let ideal = Self::default();
        let delay_ns = either(("delay", text.delay), ("delay_ns", text.delay_ns), |time| time.ns)?;
        let queue_bytes_max =
            either(("queue", text.queue), ("queue_bytes_max", text.queue_bytes_max), |size| {
                size.bytes
            })?;
        let config = Self {
            rate_bps: either(("rate", text.rate), ("rate_bps", text.rate_bps), |rate| rate.bps)?,
            delay_ns: delay_ns.unwrap_or(ideal.delay_ns),
            jitter: text.jitter,
            loss: text.loss,
            reorder: text.reorder,
            queue_bytes_max: queue_bytes_max.unwrap_or(ideal.queue_bytes_max),
            queue_packets_max: text.queue_packets_max.unwrap_or(ideal.queue_packets_max),
            overhead_bytes: text.overhead_bytes,
        };
        config.check()?;
        Ok(config)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReorderText {
    probability: Fraction,
    extra: Option<Time>,
    extra_ns: Option<u64>,
}

impl TryFrom<ReorderText> for Reorder {
    type Error = ConfigError;

    fn try_from(text: ReorderText) -> Result<Self, ConfigError> {
        let extra = either(("extra", text.extra), ("extra_ns", text.extra_ns), |time| time.ns)?;
        let missing = ConfigError::Missing { text: "extra", example: "5ms" };
        Ok(Self { probability: text.probability.value, extra_ns: extra.ok_or(missing)? })
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum JitterTable {
    None,
    Uniform { max: Option<Time>, max_ns: Option<u64> },
    Normal { sigma: Option<Time>, sigma_ns: Option<u64> },
}

impl TryFrom<JitterTable> for Jitter {
    type Error = ConfigError;

    fn try_from(table: JitterTable) -> Result<Self, ConfigError> {
        let ns = |text, time: Option<Time>, number, integer| {
            either((text, time), (number, integer), |time| time.ns)?
                .ok_or(ConfigError::Missing { text, example: "1ms" })
        };
        Ok(match table {
            JitterTable::None => Self::None,
            JitterTable::Uniform { max, max_ns } => {
                Self::Uniform { max_ns: ns("max", max, "max_ns", max_ns)? }
            }
            JitterTable::Normal { sigma, sigma_ns } => {
                Self::Normal { sigma_ns: ns("sigma", sigma, "sigma_ns", sigma_ns)? }
            }
        })
    }
}

impl<'de> Deserialize<'de> for Jitter {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Shape;
        impl<'de> Visitor<'de> for Shape {
            type Value = Jitter;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(
                    "a time such as \"1ms\" or a table such as { normal = { sigma = \"1ms\" } }",
                )
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Jitter, E> {
                if text == "none" {
                    return Ok(Jitter::None);
                }
                let time: Time = text.parse().map_err(E::custom)?;
                Ok(Jitter::Uniform { max_ns: time.ns })
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Jitter, A::Error> {
                let table = JitterTable::deserialize(MapAccessDeserializer::new(map))?;
                Jitter::try_from(table).map_err(de::Error::custom)
            }
        }
        deserializer.deserialize_any(Shape)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum LossTable {
    None,
    Independent {
        probability: Fraction,
    },
    GilbertElliott {
        good_to_bad: Fraction,
        bad_to_good: Fraction,
        #[serde(default = "never")]
        loss_good: Fraction,
        #[serde(default = "always")]
        loss_bad: Fraction,
    },
}

fn never() -> Fraction {
    Fraction { value: 0.0 }
}

fn always() -> Fraction {
    Fraction { value: 1.0 }
}

impl From<LossTable> for Loss {
    fn from(table: LossTable) -> Self {
        match table {
            LossTable::None => Self::None,
            LossTable::Independent { probability } => {
                Self::Independent { probability: probability.value }
            }
            LossTable::GilbertElliott { good_to_bad, bad_to_good, loss_good, loss_bad } => {
                Self::GilbertElliott {
                    good_to_bad: good_to_bad.value,
                    bad_to_good: bad_to_good.value,
                    loss_good: loss_good.value,
                    loss_bad: loss_bad.value,
                }
            }
        }
    }
}

impl From<Fraction> for Loss {
    fn from(fraction: Fraction) -> Self {
        if fraction.value == 0.0 {
            Self::None
        } else {
            Self::Independent { probability: fraction.value }
        }
    }
}

impl<'de> Deserialize<'de> for Loss {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Shape;
        impl<'de> Visitor<'de> for Shape {
            type Value = Loss;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(
                    "a fraction such as \"1%\" or 0.01, or a table such as \
                             { gilbert_elliott = { good_to_bad = 0.01, bad_to_good = 0.3 } }",
                )
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Loss, E> {
                if text == "none" {
                    return Ok(Loss::None);
                }
                text.parse::<Fraction>().map(Loss::from).map_err(E::custom)
            }

            fn visit_f64<E: de::Error>(self, value: f64) -> Result<Loss, E> {
                check_probability("loss", value).map_err(E::custom)?;
                Ok(Fraction { value }.into())
            }

            fn visit_i64<E: de::Error>(self, value: i64) -> Result<Loss, E> {
                self.visit_f64(value as f64)
            }

            fn visit_u64<E: de::Error>(self, value: u64) -> Result<Loss, E> {
                self.visit_f64(value as f64)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Loss, A::Error> {
                LossTable::deserialize(MapAccessDeserializer::new(map)).map(Loss::from)
            }
        }
        deserializer.deserialize_any(Shape)
    }
}

#[cfg(test)]
mod tests;
