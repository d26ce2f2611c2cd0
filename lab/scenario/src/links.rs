//! `[link]`, `[access]`, and the `link` of consumers and producers.

use std::num::NonZeroU32;

use serde::{Deserialize, Deserializer};
use weir_base::units::{Fraction, Rate, Size, Time};
use weir_netem::{Jitter, LinkConfig, Loss, Reorder};
use weir_plan::Transport;

/// Default datagram size, which fits an Ethernet frame over IPv4.
const MTU_DEFAULT: usize = 1_472;

/// Settings of links in a table. Missing ones come from elsewhere.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(expecting = "a table", deny_unknown_fields, default)]
pub(crate) struct LinkTable {
    rate: Option<RateOrNone>,
    delay: Option<Time>,
    jitter: Option<JitterText>,
    loss: Option<LossText>,
    reorder: Option<Reorder>,
    queue: Option<Size>,
    queue_bdp: Option<f64>,
    queue_packets: Option<NonZeroU32>,
    overhead: Option<Size>,
    cost: Option<NonZeroU32>,
    transport: Option<Transport>,
    #[serde(deserialize_with = "mtu")]
    mtu: Option<usize>,
    reliability: Option<bool>,
    runs: Option<bool>,
    local: Option<bool>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "write a rate above 0 such as \"100Mbit/s\", or \"none\" for any")]
enum RateOrNone {
    Rate(Rate),
    None(NoRate),
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum NoRate {
    None,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(
    untagged,
    expecting = "write a time such as \"1ms\", { uniform = \"1ms\" } or { normal = \"1ms\" }"
)]
enum JitterText {
    Most(Time),
    Shape(JitterShape),
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum JitterShape {
    Uniform(Time),
    Normal(Time),
}

#[derive(Clone, Debug, Deserialize)]
#[serde(
    untagged,
    expecting = "write a number from 0 to 1, a percentage such as \"1%\", or { good_to_bad = \
                 \"1%\", bad_to_good = \"25%\" }"
)]
enum LossText {
    Share(Fraction),
    Chain(LossChain),
}

#[derive(Clone, Debug, Deserialize)]
#[serde(expecting = "a table", deny_unknown_fields)]
struct LossChain {
    good_to_bad: Fraction,
    bad_to_good: Fraction,
    loss_good: Option<Fraction>,
    loss_bad: Option<Fraction>,
}

fn mtu<'de, D: Deserializer<'de>>(from: D) -> Result<Option<usize>, D::Error> {
    let size = Size::deserialize(from)?;
    if (64..=65_507).contains(&size.bytes) {
        return Ok(Some(size.bytes as usize));
    }
    Err(serde::de::Error::custom(format!("{size} is out of range; write 64B to 65507B")))
}

/// Minimum of a queue given in bandwidth-delay products, in datagrams.
const QUEUE_DATAGRAMS_MIN: u64 = 4;

/// The size in bytes of a queue of `products` bandwidth-delay products.
fn queue_bytes(
    products: f64,
    config: &LinkConfig,
    mtu: usize,
    table: &LinkTable,
) -> Result<u64, &'static str> {
    if !(products > 0.0 && products <= 1_000.0) {
        return Err("`queue_bdp` must be above 0, and 1000 at most");
    }
    if table.queue.is_some() {
        return Err("both `queue` and `queue_bdp` are set; remove one");
    }
    let rate_bps = config.rate_bps.ok_or("`queue_bdp` needs a rate; add `rate` to the link")?;
    let round_trip_s = 2.0 * config.delay_ns as f64 / 1e9;
    let bytes = (products * rate_bps as f64 * round_trip_s / 8.0) as u64;
    Ok(bytes.max(QUEUE_DATAGRAMS_MIN * table.mtu.unwrap_or(mtu) as u64))
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LinkSettings {
    pub(crate) config: LinkConfig,
    pub(crate) transport: Transport,
    pub(crate) mtu: usize,
    pub(crate) reliability: bool,
    pub(crate) runs: bool,
    pub(crate) is_local: bool,
    pub(crate) cost: Option<u32>,
}

impl Default for LinkSettings {
    fn default() -> Self {
        Self {
            config: LinkConfig::default(),
            transport: Transport::Udp,
            mtu: MTU_DEFAULT,
            reliability: false,
            runs: false,
            is_local: false,
            cost: None,
        }
    }
}

impl LinkSettings {
    /// A link within one host.
    pub(crate) fn local() -> Self {
        Self { transport: Transport::Unix, is_local: true, ..Self::default() }
    }

    /// These settings with those of `table` applied.
    ///
    /// # Errors
    /// What is wrong and what to write.
    pub(crate) fn with(&self, table: &LinkTable) -> Result<Self, String> {
        let mut settings = self.clone();
        let config = &mut settings.config;
        match &table.rate {
            Some(RateOrNone::None(NoRate::None)) => config.rate_bps = None,
            Some(RateOrNone::Rate(rate)) => config.rate_bps = Some(rate.bps),
            None => {}
        }
        config.delay_ns = table.delay.map_or(config.delay_ns, |delay| delay.ns);
        config.queue_bytes_max = table.queue.map_or(config.queue_bytes_max, |queue| queue.bytes);
        config.queue_packets_max =
            table.queue_packets.map_or(config.queue_packets_max, NonZeroU32::get);
        if let Some(products) = table.queue_bdp {
            config.queue_bytes_max = queue_bytes(products, config, self.mtu, table)?;
            // A limit in bytes replaces the default limit in packets.
            config.queue_packets_max = table.queue_packets.map_or(u32::MAX, NonZeroU32::get);
        }
        if let Some(overhead) = table.overhead {
            config.overhead_bytes = u32::try_from(overhead.bytes)
                .map_err(|_| "`overhead` is too large; write the bytes of a frame's headers")?;
        }
        config.jitter = match table.jitter {
            None => config.jitter,
            Some(JitterText::Most(max) | JitterText::Shape(JitterShape::Uniform(max))) => {
                Jitter::Uniform { max_ns: max.ns }
            }
            Some(JitterText::Shape(JitterShape::Normal(sigma))) => {
                Jitter::Normal { sigma_ns: sigma.ns }
            }
        };
        config.loss = match &table.loss {
            None => config.loss,
            Some(LossText::Share(share)) => Loss::from(*share),
            Some(LossText::Chain(chain)) => Loss::GilbertElliott {
                good_to_bad: chain.good_to_bad.value,
                bad_to_good: chain.bad_to_good.value,
                loss_good: chain.loss_good.map_or(0.0, |share| share.value),
                loss_bad: chain.loss_bad.map_or(1.0, |share| share.value),
            },
        };
        config.reorder = table.reorder.or(config.reorder);
        settings.set_locality(table)?;
        settings.mtu = table.mtu.unwrap_or(settings.mtu);
        settings.runs = table.runs.unwrap_or(settings.runs);
        settings.reliability = table.reliability.unwrap_or(settings.reliability);
        settings.cost = table.cost.map(NonZeroU32::get).or(settings.cost);
        settings.config.check().map_err(|error| error.to_string())?;
        Ok(settings)
    }

    /// Decides whether the link is within one host, and its transport. A link with its own
    /// properties is not local.
    fn set_locality(&mut self, table: &LinkTable) -> Result<(), String> {
        let is_emulated = table.rate.is_some()
            || table.delay.is_some()
            || table.jitter.is_some()
            || table.loss.is_some()
            || table.reorder.is_some();
        self.is_local = table.local.unwrap_or(self.is_local && !is_emulated);
        if self.is_local && is_emulated {
            return Err(
                "a local link has no rate, delay or loss; remove `local` or those keys".into()
            );
        }
        if is_emulated && self.transport == Transport::Unix {
            self.transport = Transport::Udp;
        }
        self.transport = table.transport.unwrap_or(self.transport);
        Ok(())
    }
}
