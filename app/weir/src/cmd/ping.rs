//! `weir ping`, compatible with ndnping and ndnpingserver.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Write as _;

use anyhow::{Context, bail};
use serde_json::json;
use weir_base::{Instant, NS_PER_MS};
use weir_client::{Client, ReceivedPacket};
use weir_face::FaceUri;
use weir_hicn::HicnPrefix;
use weir_socket::ObjectStore;
use weir_transport::PathId;
use weir_wire::{Data, DataView, Interest, InterestView, NackReason, Name};

use crate::exit::Exit;
use crate::help::OUTPUT;
use crate::quantity::{bytes, positive_milliseconds};
use crate::table::outln;
use crate::transfer::{
    RouterArgs, Stop, connect_to, parse_name, parse_positive, refuse_local_name,
};

/// The name component between the prefix and the sequence number.
const PING_COMPONENT: &[u8] = b"ping";
/// Freshness period of answers, in milliseconds (as in ndnpingserver).
const FRESHNESS_MS: u64 = 1000;
/// Time between two checks of the stop flag.
const TICK_NS: u64 = 200 * NS_PER_MS;
/// Largest content of an answer, in bytes.
const CONTENT_BYTES_MAX: u32 = 8000;
/// Why a connection with hICN packets is refused.
const NO_PING_OVER_HICN: &str = "hICN packets cannot carry the names of pings, PREFIX/ping/NUMBER; \
                                 use an address for NDN packets, such as udp://HOST, or \
                                 hicn-ping-client";

/// Measure the round-trip time to a name or router, or answer pings.
///
/// Run `weir ping --serve PREFIX` on one machine and `weir ping PREFIX` on the other. `weir put`
/// does not answer pings. The names are PREFIX/ping/NUMBER, as in ndnping and ndnpingserver.
///
/// `weir ping udp://HOST` connects directly to the router on HOST and requests a name that does not
/// exist. A Nack proves that the router runs. Routers that drop such Interests, such as ndnd, do
/// not answer.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  weir ping --serve /demo\n  weir ping /demo -c 3")]
pub(crate) struct Args {
    /// The prefix, or the address of a router: udp://HOST[:PORT] or tcp://HOST[:PORT]
    #[arg(value_name = "PREFIX|ADDRESS", value_parser = Target::parse)]
    target: Target,
    /// Answer pings for the prefix until Ctrl-C
    #[arg(long)]
    serve: bool,
    /// Send this number of pings [default: until Ctrl-C]
    #[arg(short, long, value_name = "N", conflicts_with = "serve", value_parser = parse_positive)]
    count: Option<u32>,
    /// Time between pings
    #[arg(short, long, value_name = "TIME", default_value = "1s", conflicts_with = "serve",
          value_parser = positive_milliseconds)]
    interval: u32,
    /// Time to wait for an answer
    #[arg(short, long, value_name = "TIME", default_value = "4s", conflicts_with = "serve",
          value_parser = positive_milliseconds)]
    timeout: u32,
    /// Content size of answers
    #[arg(short, long, value_name = "SIZE", default_value = "0", requires = "serve",
          value_parser = parse_content_size)]
    size: u32,
    #[command(flatten)]
    router: RouterArgs,
    /// Print the statistics as one JSON object
    #[arg(long, help_heading = OUTPUT)]
    json: bool,
}

/// The target of the pings.
#[derive(Clone, Debug)]
enum Target {
    /// The producer of a name.
    Name(Name),
    /// The router at this address.
    Router(String),
}

impl Target {
    fn parse(text: &str) -> Result<Self, String> {
        if text.contains("://") {
            FaceUri::check(text).map_err(|error| error.to_string())?;
            if text.starts_with("hicn+") {
                return Err(NO_PING_OVER_HICN.into());
            }
            return Ok(Self::Router(text.to_owned()));
        }
        let name = parse_name(text)?;
        if HicnPrefix::from_name(name.as_view()).is_some() {
            return Err(
                "the names of pings, PREFIX/ping/NUMBER, are not hICN names; choose an NDN \
                        name, or use hicn-ping-client"
                    .into(),
            );
        }
        Ok(Self::Name(name))
    }

    /// The prefix of the names in Interests. A router does not forward names below `/localhop`, so
    /// it answers them itself.
    fn prefix(&self) -> Name {
        let mut prefix = match self {
            Self::Name(name) => name.clone(),
            Self::Router(_) => {
                let mut name = Name::new();
                name.append_str("localhop");
                name
            }
        };
        prefix.append_generic(PING_COMPONENT);
        prefix
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => name.fmt(f),
            Self::Router(uri) => f.write_str(uri),
        }
    }
}

fn parse_content_size(text: &str) -> Result<u32, String> {
    match bytes(text)? {
        size @ ..=CONTENT_BYTES_MAX => Ok(size),
        _ => Err(format!("must be at most {CONTENT_BYTES_MAX}B")),
    }
}

fn connect(args: &Args) -> anyhow::Result<Client> {
    match &args.target {
        Target::Name(_) => {
            let client = args.router.connect()?;
            if let FaceUri::HicnUdp(_) = client.uri() {
                bail!(NO_PING_OVER_HICN);
            }
            Ok(client)
        }
        Target::Router(_) if args.serve => bail!("--serve needs a prefix, not an address"),
        Target::Router(uri) => connect_to(uri),
    }
}

/// The error if no ping was answered, with advice.
fn no_answer(target: &Target, client: &Client) -> String {
    match target {
        Target::Name(name) => format!(
            "no answer for {name}. Run `weir ping --serve {name}` on the other machine, and check \
             that there is a route to it (`weir route list`)"
        ),
        Target::Router(_) if client.uri().is_refused() => format!(
            "{} refuses connections or is unreachable; start a router there with `weir router`, \
             or check the address",
            client.uri()
        ),
        Target::Router(_) => format!(
            "no answer from {}. Check that a router runs there and that no firewall blocks it. \
             Some routers, such as ndnd, never answer this ping",
            client.uri()
        ),
    }
}

pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    let stop = Stop::on_signals()?;
    let mut client = connect(&args)?;
    let prefix = args.target.prefix();
    if let (true, Target::Name(name)) = (args.serve, &args.target) {
        refuse_local_name(name)?;
        return serve(&args, &prefix, &mut client, &stop);
    }
    let next = match args.target {
        // Start at a random number, as stores may hold answers to earlier pings.
        Target::Name(_) => client.random_u64(),
        Target::Router(_) => 1,
    };
    let mut pinger = Pinger {
        args: &args,
        prefix,
        client,
        next,
        outstanding: BTreeMap::new(),
        statistics: Statistics::default(),
    };
    pinger.run(&stop)?;
    pinger.statistics.print(&args)?;
    if pinger.statistics.answers == 0 {
        let statistics = &pinger.statistics;
        let has_no_route = statistics.pings > 0 && statistics.no_routes == statistics.pings;
        let exit = if has_no_route { Exit::NoRoute } else { Exit::TryAgain };
        return Err(exit.error(no_answer(&args.target, &pinger.client)));
    }
    Ok(())
}

fn serve(args: &Args, prefix: &Name, client: &mut Client, stop: &Stop) -> anyhow::Result<()> {
    client
        .register_prefix(prefix)
        .with_context(|| format!("cannot register {prefix} with the router at {}", client.uri()))?;
    if args.json {
        outln!("{}", json!({ "prefix": prefix.to_string() }))?;
    } else {
        outln!("answering pings below {prefix}, Ctrl-C to stop")?;
    }
    let content = vec![b'a'; args.size as usize];
    let below = prefix.clone();
    let mut store = ObjectStore::on_demand(move |interest| {
        let data = Data::new(interest.name.to_name())
            .freshness_ms(FRESHNESS_MS)
            .content(content.as_slice());
        below.as_view().is_prefix_of(interest.name).then(|| data.encode_with_digest().into())
    })?;
    weir_socket::serve(client, &mut store, &mut |_| !stop.is_set())?;
    let _ = client.unregister_prefix(prefix);
    if !args.json {
        crate::table::errln!("answered {}", store.stats().data);
    }
    Ok(())
}

/// A ping without an answer so far.
#[derive(Copy, Clone)]
struct Outstanding {
    sent: Instant,
    nonce: u32,
}

struct Pinger<'a> {
    args: &'a Args,
    prefix: Name,
    client: Client,
    next: u64,
    outstanding: BTreeMap<u64, Outstanding>,
    statistics: Statistics,
}

impl Pinger<'_> {
    fn run(&mut self, stop: &Stop) -> anyhow::Result<()> {
        let timeout_ns = u64::from(self.args.timeout) * NS_PER_MS;
        let mut send_at = self.client.now();
        let mut packets = Vec::new();
        loop {
            let now = self.client.now();
            let is_all_sent =
                self.args.count.is_some_and(|count| self.statistics.pings >= u64::from(count));
            if stop.is_set() || (is_all_sent && self.outstanding.is_empty()) {
                return Ok(());
            }
            if !is_all_sent && now >= send_at {
                self.send(now)?;
                // Count from the time that was due, so that delays do not add up.
                send_at = send_at.plus_ns(u64::from(self.args.interval) * NS_PER_MS);
            }
            self.expire(now, timeout_ns)?;
            // Wait until the next ping, the next timeout or the next check for a stop.
            let first = self.outstanding.values().map(|ping| ping.sent).min();
            let expiry = first.map(|sent| sent.plus_ns(timeout_ns));
            let tick = now.plus_ns(TICK_NS);
            let deadline = [Some(tick), expiry, (!is_all_sent).then_some(send_at)];
            self.client.poll(deadline.into_iter().flatten().min(), &mut packets)?;
            for packet in packets.drain(..) {
                self.receive(&packet)?;
            }
        }
    }

    fn send(&mut self, now: Instant) -> anyhow::Result<()> {
        let sequence = self.next;
        self.next = self.next.wrapping_add(1);
        let nonce = self.client.random_u64() as u32;
        let mut name = self.prefix.clone();
        name.append_str(&sequence.to_string());
        let interest = Interest::new(name)
            .must_be_fresh(true)
            .nonce(nonce)
            .lifetime_ms(u64::from(self.args.timeout))
            .encode();
        self.client
            .send_bytes(PathId::default(), &interest)
            .map_err(|drop| anyhow::anyhow!("the Interest cannot be sent: {}", drop.name()))?;
        self.statistics.pings += 1;
        self.outstanding.insert(sequence, Outstanding { sent: now, nonce });
        Ok(())
    }

    fn expire(&mut self, now: Instant, timeout_ns: u64) -> anyhow::Result<()> {
        let late: Vec<u64> = self
            .outstanding
            .iter()
            .filter(|(_, ping)| now >= ping.sent.plus_ns(timeout_ns))
            .map(|(&sequence, _)| sequence)
            .collect();
        for sequence in late {
            self.outstanding.remove(&sequence);
            self.statistics.timeouts += 1;
            self.print_reply(sequence, "no answer")?;
        }
        Ok(())
    }

    fn receive(
        &mut self,
        ReceivedPacket { header, packet, .. }: &ReceivedPacket,
    ) -> anyhow::Result<()> {
        let now = self.client.now();
        if let Some(reason) = header.nack {
            let Ok(interest) = InterestView::decode(packet) else { return Ok(()) };
            let Some(sequence) = self.sequence_of(interest.name) else { return Ok(()) };
            // A Nack for an earlier Interest of the same name carries another nonce.
            let is_ours = self
                .outstanding
                .get(&sequence)
                .is_some_and(|ping| Some(ping.nonce) == interest.nonce);
            let ping = if is_ours { self.outstanding.remove(&sequence) } else { None };
            match (ping, &self.args.target) {
                (None, _) => {}
                // Even a Nack shows that the router is alive, so it counts as an answer.
                (Some(ping), Target::Router(_)) => {
                    let what = format!(" (Nack: {})", describe(reason));
                    self.answered(now, sequence, ping, &what)?;
                }
                (Some(_), Target::Name(_)) => {
                    self.statistics.nacks += 1;
                    self.statistics.no_routes += u64::from(reason == NackReason::NoRoute);
                    self.print_reply(sequence, describe(reason))?;
                }
            }
            return Ok(());
        }
        let Ok(data) = DataView::decode(packet) else { return Ok(()) };
        let Some(sequence) = self.sequence_of(data.name) else { return Ok(()) };
        if let Some(ping) = self.outstanding.remove(&sequence) {
            self.answered(now, sequence, ping, "")?;
        }
        Ok(())
    }

    fn answered(
        &mut self,
        now: Instant,
        sequence: u64,
        ping: Outstanding,
        what: &str,
    ) -> anyhow::Result<()> {
        let rtt_ns = now.ns_since(ping.sent);
        self.statistics.answered(rtt_ns);
        self.print_reply(sequence, &format!("{:.3} ms{what}", rtt_ns as f64 / 1e6))
    }

    fn sequence_of(&self, name: weir_wire::NameView<'_>) -> Option<u64> {
        let is_ours = name.component_count() == self.prefix.as_view().component_count() + 1
            && self.prefix.as_view().is_prefix_of(name);
        let last = name.last().filter(|_| is_ours)?;
        std::str::from_utf8(last.value).ok()?.parse().ok()
    }

    fn print_reply(&self, sequence: u64, what: &str) -> anyhow::Result<()> {
        if !self.args.json {
            outln!("{} {sequence}: {what}", self.args.target)?;
        }
        Ok(())
    }
}

fn describe(reason: NackReason) -> &'static str {
    match reason {
        NackReason::NoRoute => "no route",
        NackReason::Congestion => "rejected: congestion",
        NackReason::Duplicate => "rejected: duplicate",
        _ => "rejected",
    }
}

/// Sums over all pings. Times in nanoseconds.
#[derive(Debug, Default)]
struct Statistics {
    pings: u64,
    answers: u64,
    nacks: u64,
    /// Those of `nacks` that say that a router has no route.
    no_routes: u64,
    timeouts: u64,
    min_ns: u64,
    max_ns: u64,
    sum_ns: f64,
    square_sum_ns: f64,
}

impl Statistics {
    fn answered(&mut self, rtt_ns: u64) {
        self.min_ns = if self.answers == 0 { rtt_ns } else { self.min_ns.min(rtt_ns) };
        self.max_ns = self.max_ns.max(rtt_ns);
        self.answers += 1;
        self.sum_ns += rtt_ns as f64;
        self.square_sum_ns += (rtt_ns as f64).powi(2);
    }

    fn mean_ns(&self) -> f64 {
        self.sum_ns / self.answers.max(1) as f64
    }

    /// The standard deviation, as ping(8) calls it.
    fn deviation_ns(&self) -> f64 {
        let mean = self.mean_ns();
        (self.square_sum_ns / self.answers.max(1) as f64 - mean * mean).max(0.0).sqrt()
    }

    fn loss(&self) -> f64 {
        let decided = self.answers + self.nacks + self.timeouts;
        (self.nacks + self.timeouts) as f64 / decided.max(1) as f64
    }

    fn print(&self, args: &Args) -> anyhow::Result<()> {
        let milliseconds = |ns: f64| ns / 1e6;
        let mut out = crate::table::standard_output()?;
        if args.json {
            let rtt = (self.answers > 0).then(|| {
                json!({
                    "min": milliseconds(self.min_ns as f64),
                    "avg": milliseconds(self.mean_ns()),
                    "max": milliseconds(self.max_ns as f64),
                    "mdev": milliseconds(self.deviation_ns()),
                })
            });
            let statistics = json!({
                "prefix": args.target.to_string(),
                "sent": self.pings,
                "received": self.answers,
                "nacked": self.nacks,
                "timed_out": self.timeouts,
                "loss": self.loss(),
                "rtt_ms": rtt,
            });
            writeln!(out, "{statistics}")?;
            return Ok(());
        }
        writeln!(
            out,
            "{} sent, {} answered, {} rejected, {:.0} % lost",
            self.pings,
            self.answers,
            self.nacks,
            100.0 * self.loss()
        )?;
        if self.answers > 0 {
            writeln!(
                out,
                "round trip min/avg/max/mdev = {:.3}/{:.3}/{:.3}/{:.3} ms",
                milliseconds(self.min_ns as f64),
                milliseconds(self.mean_ns()),
                milliseconds(self.max_ns as f64),
                milliseconds(self.deviation_ns()),
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_match_the_samples() {
        let mut statistics = Statistics::default();
        for milliseconds in [1, 2, 3, 4] {
            statistics.answered(milliseconds * NS_PER_MS);
        }
        statistics.timeouts = 1;
        assert_eq!(statistics.min_ns, NS_PER_MS);
        assert_eq!(statistics.max_ns, 4 * NS_PER_MS);
        assert!((statistics.mean_ns() - 2.5e6).abs() < 1.0);
        assert!((statistics.deviation_ns() - 1.118_034e6).abs() < 1.0);
        assert!((statistics.loss() - 0.2).abs() < 1e-9);
    }
}
