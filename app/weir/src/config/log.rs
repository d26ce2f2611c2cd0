//! `[log]`: the level and format of the log.

use std::str::FromStr;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use super::text::deserialize_text;

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

/// The format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormat {
    Text,
    Json,
}

/// A filter of `tracing`: a level, or levels by target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogFilter(pub(crate) String);

impl FromStr for LogFilter {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // `tracing` would accept a misspelt level as the name of a target and then log nothing.
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

deserialize_text!(LogFilter);
