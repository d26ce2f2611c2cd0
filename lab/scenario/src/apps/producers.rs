//! `[[producer]]`.

use std::num::NonZeroU64;
use std::sync::Arc;

use serde::{Deserialize, Deserializer};
use weir_base::NS_PER_S;
use weir_base::units::{Rate, Size, Time, parse_bytes};
use weir_plan::workload::{LivePlan, Names, Popularity, ProducerPlan, Sizes};

use super::GroupContext;
use crate::document::{ScenarioError, Tree, texts};
use crate::folder::Folder;
use crate::links::{LinkSettings, LinkTable};

/// Maximum content bytes of a packet, which has at most 8,800 bytes.
const SEGMENT_BYTES_MAX: u64 = 8_192;
/// Segments in a playlist of a live channel, as of nginx-rtmp (10 s of 2 s).
const LISTED: u64 = 5;

/// `[[producer]]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(expecting = "a table", deny_unknown_fields)]
pub(crate) struct ProducerTable {
    id: String,
    #[serde(deserialize_with = "texts")]
    at: Vec<String>,
    per_node: Option<NonZeroU64>,
    prefix: Option<String>,
    link: Option<LinkTable>,
    objects: Option<NonZeroU64>,
    size: Option<SizeText>,
    sizes_file: Option<String>,
    live: Option<LiveTable>,
    #[serde(deserialize_with = "segment")]
    segment: u32,
    #[serde(default)]
    components: u32,
    freshness: Option<Time>,
    delay: Option<Time>,
}

/// `live`: the objects are live channels.
#[derive(Clone, Debug, Deserialize)]
#[serde(expecting = "a table", deny_unknown_fields)]
struct LiveTable {
    /// Length of a segment of video.
    segment: Time,
    /// Bit rates of the qualities, lowest first.
    rates: Vec<Rate>,
    /// Segments in a playlist.
    listed: Option<NonZeroU64>,
}

impl LiveTable {
    /// Bytes of a segment of video in each quality.
    fn sizes(&self, place: &GroupContext<'_>) -> Result<Sizes, ScenarioError> {
        let bytes = |rate: &Rate| {
            let bits = u128::from(rate.bps) * u128::from(self.segment.ns) / u128::from(NS_PER_S);
            (bits / 8) as u64
        };
        let bytes: Vec<u64> = self.rates.iter().map(bytes).collect();
        if bytes.is_empty() || bytes.contains(&0) || !bytes.is_sorted() {
            let message = "needs `rates` of at least one byte a segment, lowest first";
            return Err(place.error("live", message));
        }
        Ok(Sizes::List { bytes: bytes.into() })
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(
    untagged,
    expecting = "write a size such as \"1MiB\", or { mean = \"1MiB\", sigma = 1.0 } with min and \
                 max, too"
)]
enum SizeText {
    Fixed(Size),
    LogNormal(LogNormal),
}

#[derive(Clone, Debug, Deserialize)]
#[serde(expecting = "a table", deny_unknown_fields)]
struct LogNormal {
    mean: Size,
    sigma: f64,
    min: Option<Size>,
    max: Option<Size>,
}

fn segment<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    let size = Size::deserialize(from)?;
    if (1..=SEGMENT_BYTES_MAX).contains(&size.bytes) {
        return Ok(size.bytes as u32);
    }
    let message = "must be from 1B to 8KiB, because a packet has at most 8,800 bytes";
    Err(serde::de::Error::custom(message))
}

#[derive(Clone, Debug)]
pub(crate) struct ProducerGroup {
    /// Its path in the file.
    pub(crate) path: String,
    pub(crate) id: String,
    pub(crate) at: Vec<String>,
    pub(crate) per_node: u64,
    pub(crate) prefix: Option<String>,
    pub(crate) link: LinkSettings,
    pub(crate) objects: u64,
    pub(crate) sizes: Sizes,
    segment_bytes: u32,
    components: u32,
    freshness_ms: u64,
    delay_ns: u64,
    pub(crate) live: Option<LivePlan>,
}

pub(crate) fn producers(
    tree: &Tree,
    tables: &[ProducerTable],
    access: &LinkSettings,
    folder: &Folder,
) -> Result<Vec<ProducerGroup>, ScenarioError> {
    let places =
        (0..tables.len()).map(|at| GroupContext { tree, folder, path: format!("producer[{at}]") });
    tables.iter().zip(places).map(|(table, place)| table.group(&place, access)).collect()
}

impl ProducerTable {
    fn group(
        &self,
        place: &GroupContext<'_>,
        access: &LinkSettings,
    ) -> Result<ProducerGroup, ScenarioError> {
        place.check_id(&self.id)?;
        place.check_at(&self.at)?;
        Ok(ProducerGroup {
            id: self.id.clone(),
            at: self.at.clone(),
            per_node: self.per_node.map_or(1, NonZeroU64::get),
            prefix: self.prefix.clone(),
            link: place.link(access, self.link.as_ref())?,
            objects: self.objects.map_or(1, NonZeroU64::get),
            sizes: self.sizes(place)?,
            segment_bytes: self.segment,
            components: self.components,
            freshness_ms: self.freshness.map_or(3_600_000, |time| time.ns / 1_000_000),
            delay_ns: self.delay.map_or(0, |time| time.ns),
            live: self.live.as_ref().map(|live| LivePlan {
                segment_ns: live.segment.ns,
                listed: live.listed.map_or(LISTED, NonZeroU64::get),
            }),
            path: place.path.clone(),
        })
    }

    fn sizes(&self, place: &GroupContext<'_>) -> Result<Sizes, ScenarioError> {
        if let Some(live) = &self.live {
            if self.size.is_some() || self.sizes_file.is_some() {
                let message = "gives the sizes; remove `size` and `sizes_file`";
                return Err(place.error("live", message));
            }
            return live.sizes(place);
        }
        match (&self.size, &self.sizes_file) {
            (Some(_), Some(_)) => {
                Err(place.error("sizes_file", "both `size` and `sizes_file` are set; remove one"))
            }
            (None, Some(file)) => Ok(Sizes::List { bytes: sizes_file(place, file)? }),
            (None, None) => Err(place.refuse("lacks `size`; write for example size = \"1MiB\"")),
            (Some(SizeText::Fixed(Size { bytes: 0 })), None) => {
                Err(place.error("size", "an empty object has no segment; write at least 1B"))
            }
            (Some(SizeText::Fixed(size)), None) => Ok(Sizes::Fixed { bytes: size.bytes }),
            (Some(SizeText::LogNormal(shape)), None) => {
                let (mean_bytes, sigma) = (shape.mean.bytes, shape.sigma);
                let min_bytes = shape.min.map_or(1, |size| size.bytes);
                let max_bytes = shape.max.map_or(mean_bytes.saturating_mul(100), |size| size.bytes);
                let is_ordered = (1..=mean_bytes).contains(&min_bytes) && mean_bytes <= max_bytes;
                if sigma > 0.0 && sigma.is_finite() && is_ordered {
                    return Ok(Sizes::LogNormal { mean_bytes, sigma, min_bytes, max_bytes });
                }
                let message = "log-normal sizes need sigma > 0 and 1B <= min <= mean <= max";
                Err(place.error("size", message))
            }
        }
    }
}

/// Reads one size per line, in bytes or with a unit.
fn sizes_file(place: &GroupContext<'_>, file: &str) -> Result<Arc<[u64]>, ScenarioError> {
    let text = place.folder.read(file).map_err(|message| place.error("sizes_file", message))?;
    let mut sizes = Vec::new();
    for (at, line) in text.lines().map(str::trim).enumerate() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        match parse_bytes(line) {
            Ok(size) if size > 0 => sizes.push(size),
            _ => {
                return Err(ScenarioError {
                    file: file.to_owned(),
                    line: Some(at + 1),
                    message: format!(
                        "\"{line}\" is not a size; write one per line, such as 1048576 or 1MiB"
                    ),
                });
            }
        }
    }
    if sizes.is_empty() {
        return Err(place.error("sizes_file", format!("{file} has no sizes; write one per line")));
    }
    Ok(sizes.into())
}

impl ProducerGroup {
    /// URI of the prefix of the `index`-th producer of `count`.
    pub(crate) fn prefix(&self, index: usize, count: usize) -> String {
        match &self.prefix {
            Some(prefix) => prefix.replace("{i}", &index.to_string()),
            None if count == 1 => format!("/{}", self.id),
            None => format!("/{}/{index}", self.id),
        }
    }

    /// The names of the content of the producer of `prefix`.
    pub(super) fn names(&self, prefix: &str, popularity: Popularity) -> Names {
        Names {
            prefix: prefix.to_owned(),
            components: self.components,
            popularity,
            sizes: self.sizes.clone(),
            segment_bytes: self.segment_bytes,
            live: self.live.clone(),
        }
    }

    pub(crate) fn plan(&self, prefix: &str) -> ProducerPlan {
        ProducerPlan {
            names: self.names(prefix, Popularity::Sequential { objects: self.objects }),
            freshness_ms: self.freshness_ms,
            delay_ns: self.delay_ns,
        }
    }
}
