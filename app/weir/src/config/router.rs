//! `[router]`: threads, memory, and limits of the tables.

use std::str::FromStr;
use std::time::Duration;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use weir_base::units::{Size, Time};
use weir_forward::{DataSource, NAME_COMPONENTS_MAX};
use weir_runtime::THREADS_MAX;

use super::text::{Prefix, nonzero_time, positive, to_time};

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

/// The number of worker threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Threads {
    /// Half the number of processors, 1 to [`Threads::AUTO_MAX`]. The other processors are for
    /// applications and the kernel.
    Auto,
    Count(usize),
}

impl Threads {
    const AUTO_MAX: usize = 8;

    /// Resolves the number. With disks, `Auto` is 1: a store on disk keeps the number of threads it
    /// was created with, and must also start on a machine with other processors.
    pub(super) fn count(self, has_disks: bool) -> usize {
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
                "`threads` is {text}; use a number from 1 to {THREADS_MAX}, or \"auto\""
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

fn interest_lifetime<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Time, D::Error> {
    let remedy = "with a lifetime of 0, Interests get no Data; use a time such as \"60s\"";
    nonzero_time(Time::deserialize(deserializer)?, remedy)
}
