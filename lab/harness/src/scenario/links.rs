//! `[link]`, `[access]` and the `link` of consumers and producers.

use weir_base::units;
use weir_netem::{Jitter, LinkConfig, Loss, Reorder};
use weir_plan::Transport;

use crate::document::{Node, Reader, ScenarioError, Value};

pub(super) const KNOWN: &[&str] = &[
    "rate",
    "delay",
    "jitter",
    "loss",
    "reorder",
    "queue",
    "queue_packets",
    "overhead",
    "cost",
    "transport",
    "mtu",
    "local",
];

/// Largest datagram when nothing is said: what fits an Ethernet frame over IPv4.
const MTU_DEFAULT: usize = 1_472;

/// What a table says of links; what it leaves out comes from elsewhere.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LinkSettings {
    pub(super) config: LinkConfig,
    pub(super) transport: Transport,
    pub(super) mtu: usize,
    pub(super) is_local: bool,
    pub(super) cost: Option<u32>,
}

impl Default for LinkSettings {
    fn default() -> Self {
        Self {
            config: LinkConfig::default(),
            transport: Transport::Udp,
            mtu: MTU_DEFAULT,
            is_local: false,
            cost: None,
        }
    }
}

impl LinkSettings {
    /// A link within one host.
    pub(super) fn local() -> Self {
        let config = LinkConfig::default();
        Self { config, transport: Transport::Unix, is_local: true, ..Self::default() }
    }

    /// These settings with what `reader` says in their place.
    pub(super) fn with(&self, reader: &Reader<'_>) -> Result<Self, ScenarioError> {
        let mut settings = self.clone();
        let config = &mut settings.config;
        if reader.node("rate").is_some_and(|node| node.label() == "none") {
            config.rate_bps = None;
        } else if let Some(rate_bps) = reader.rate_bps("rate")? {
            if rate_bps == 0 {
                return Err(reader.error_at(
                    "rate",
                    "a rate of 0 would carry nothing; write \"none\" for any rate",
                ));
            }
            config.rate_bps = Some(rate_bps);
        }
        config.delay_ns = reader.duration_ns("delay")?.unwrap_or(config.delay_ns);
        config.queue_bytes_max = reader.bytes("queue")?.unwrap_or(config.queue_bytes_max);
        config.queue_packets_max =
            reader.count_u32("queue_packets", 1)?.unwrap_or(config.queue_packets_max);
        if let Some(bytes) = reader.bytes("overhead")? {
            config.overhead_bytes = u32::try_from(bytes).map_err(|_| {
                reader.error_at(
                    "overhead",
                    "`overhead` is too large; write octets of a frame's headers",
                )
            })?;
        }
        config.jitter = jitter(reader)?.unwrap_or(config.jitter);
        config.loss = loss(reader)?.unwrap_or(config.loss);
        config.reorder = reorder(reader)?.or(config.reorder);
        // Whoever gives a link a property of its own wants no local one.
        let is_emulated =
            ["rate", "delay", "jitter", "loss", "reorder"].iter().any(|key| reader.has(key));
        settings.is_local = reader.truth("local")?.unwrap_or(settings.is_local && !is_emulated);
        if settings.is_local && is_emulated {
            return Err(reader.error_at(
                "local",
                "a local link has no rate, delay or loss; leave `local` or those out",
            ));
        }
        if is_emulated && settings.transport == Transport::Unix {
            settings.transport = Transport::Udp;
        }
        if let Some(word) = reader.word("transport", &["unix", "tcp", "udp"])? {
            settings.transport = match word {
                "unix" => Transport::Unix,
                "tcp" => Transport::Tcp,
                _ => Transport::Udp,
            };
        }
        if let Some(mtu) = reader.bytes("mtu")? {
            if !(64..=65_507).contains(&mtu) {
                return Err(reader.error_at("mtu", "`mtu` must be from 64B to 65507B"));
            }
            settings.mtu = mtu as usize;
        }
        settings.cost = reader.count_u32("cost", 1)?.or(settings.cost);
        settings.config.check().map_err(|error| reader.error(reader.line(), error.to_string()))?;
        Ok(settings)
    }
}

fn duration(reader: &Reader<'_>, key: &str, node: &Node) -> Result<u64, ScenarioError> {
    let parsed = match &node.value {
        Value::Text(text) => units::parse_duration_ns(text).map_err(|error| error.to_string()),
        _ => Err(format!("it is {}; write a duration such as \"1ms\"", node.value.noun())),
    };
    parsed.map_err(|message| reader.error(node.line, format!("`{key}`: {message}")))
}

fn jitter(reader: &Reader<'_>) -> Result<Option<Jitter>, ScenarioError> {
    let Some(node) = reader.node("jitter") else { return Ok(None) };
    let Value::Table(_) = node.value else {
        return Ok(Some(Jitter::Uniform { max_ns: duration(reader, "jitter", node)? }));
    };
    let table = Reader::new(reader.file(), "`jitter`", node, &["uniform", "normal"])?;
    match (table.duration_ns("uniform")?, table.duration_ns("normal")?) {
        (Some(max_ns), None) => Ok(Some(Jitter::Uniform { max_ns })),
        (None, Some(sigma_ns)) => Ok(Some(Jitter::Normal { sigma_ns })),
        _ => Err(table
            .error(node.line, "`jitter` is either { uniform = \"1ms\" } or { normal = \"1ms\" }")),
    }
}

fn loss(reader: &Reader<'_>) -> Result<Option<Loss>, ScenarioError> {
    let Some(node) = reader.node("loss") else { return Ok(None) };
    if !matches!(node.value, Value::Table(_)) {
        let probability = reader.share("loss")?.unwrap_or(0.0);
        return Ok(Some(if probability > 0.0 {
            Loss::Independent { probability }
        } else {
            Loss::None
        }));
    }
    let known = ["good_to_bad", "bad_to_good", "loss_good", "loss_bad"];
    let table = Reader::new(reader.file(), "`loss`", node, &known)?;
    let share = |key: &str, otherwise: Option<f64>| {
        table.required(key, "\"1%\"", table.share(key)?.or(otherwise))
    };
    Ok(Some(Loss::GilbertElliott {
        good_to_bad: share("good_to_bad", None)?,
        bad_to_good: share("bad_to_good", None)?,
        loss_good: share("loss_good", Some(0.0))?,
        loss_bad: share("loss_bad", Some(1.0))?,
    }))
}

fn reorder(reader: &Reader<'_>) -> Result<Option<Reorder>, ScenarioError> {
    let Some(node) = reader.node("reorder") else { return Ok(None) };
    let table = Reader::new(reader.file(), "`reorder`", node, &["probability", "extra"])?;
    let probability = table.required("probability", "0.01", table.share("probability")?)?;
    let extra_ns = table.required("extra", "\"5ms\"", table.duration_ns("extra")?)?;
    Ok(Some(Reorder { probability, extra_ns }))
}
