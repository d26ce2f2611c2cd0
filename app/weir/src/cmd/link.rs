//! `weir link`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use serde::Deserialize;
use serde_json::json;
use weir_base::units::{Fraction, Rate, Size, Time};
use weir_netem::{Jitter, LinkConfig, Loss, Reorder};
use weir_real::emulator::{DirectionStats, Emulator, EmulatorConfig, EmulatorStats, UdpEnds};

use crate::table::{Align, Table, octets, out, outln};
use crate::transfer::Stop;

/// Emulate a slow or lossy link between two UDP ports.
///
/// Two programs send to the emulator instead of to each other. A datagram that arrives at --a
/// leaves from --b to peer b, delayed, limited in rate and dropped as configured, and vice versa.
/// No privileges are needed. On Ctrl-C or SIGTERM the emulator prints its statistics, including its
/// own lateness, which shows how accurate a measurement is.
///
/// Options without a prefix apply to both directions. --a-to-b- and --b-to-a- options override them
/// for one direction; `-h` does not list these.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  weir link --a 127.0.0.1:7001 --b 127.0.0.1:7002 --rate 40Mbit \
                  --delay 10ms\n  weir link --a 127.0.0.1:7001 --b 127.0.0.1:7002 --loss 1% \
                  --b-to-a-rate 1Mbit"
)]
pub(crate) struct Args {
    /// Address that peer a sends to, such as 127.0.0.1:7001. Port 0 chooses a free port
    #[arg(long, value_name = "ADDR")]
    a: Option<SocketAddr>,
    /// Address that peer b sends to
    #[arg(long, value_name = "ADDR")]
    b: Option<SocketAddr>,
    /// Address of peer a [default: the first sender to --a]
    #[arg(long, value_name = "ADDR")]
    peer_a: Option<SocketAddr>,
    /// Address of peer b [default: the first sender to --b]
    #[arg(long, value_name = "ADDR")]
    peer_b: Option<SocketAddr>,
    /// Read a TOML file with the keys a, b, peer_a, peer_b, seed, spin and the tables [both],
    /// [a_to_b], [b_to_a]. Options override it
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    both: BothFlags,
    #[command(flatten)]
    a_to_b: AToBFlags,
    #[command(flatten)]
    b_to_a: BToAFlags,
    /// Seed of the random loss, jitter and reordering [default: 1]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Busy-wait for this time before a datagram is due, such as 50us. More accurate, but uses up
    /// to one core [default: 0, sleep]
    #[arg(long, value_name = "TIME")]
    spin: Option<Time>,
    /// Print the statistics as one JSON object
    #[arg(long)]
    json: bool,
}

/// Declares the options of a link, each with the name prefix `$prefix`.
macro_rules! link_flags {
    ($name:ident, $prefix:literal, $hidden:literal) => {
        #[derive(clap::Args)]
        struct $name {
            /// Rate, such as 40Mbit [default: unlimited]
            #[arg(id = concat!($prefix, "rate"), long = concat!($prefix, "rate"),
                  value_name = "RATE", hide_short_help = $hidden)]
            rate: Option<Rate>,
            /// Propagation delay, such as 10ms [default: 0]
            #[arg(id = concat!($prefix, "delay"), long = concat!($prefix, "delay"),
                  value_name = "TIME", hide_short_help = $hidden)]
            delay: Option<Time>,
            /// Jitter: uniform between 0 and a time such as 1ms, or normal:SIGMA. It does not
            /// reorder datagrams [default: 0]
            #[arg(id = concat!($prefix, "jitter"), long = concat!($prefix, "jitter"),
                  value_name = "TIME", value_parser = parse_jitter, hide_short_help = $hidden)]
            jitter: Option<Jitter>,
            /// Loss probability, such as 1%, or bursts:
            /// gilbert-elliott:GOOD_TO_BAD,BAD_TO_GOOD[,LOSS_GOOD,LOSS_BAD] [default: 0]
            #[arg(id = concat!($prefix, "loss"), long = concat!($prefix, "loss"),
                  value_name = "LOSS", value_parser = parse_loss, hide_short_help = $hidden)]
            loss: Option<Loss>,
            /// Delay this share of the datagrams by an extra time, such as 1%:5ms [default: none]
            #[arg(id = concat!($prefix, "reorder"), long = concat!($prefix, "reorder"),
                  value_name = "SHARE:TIME", value_parser = parse_reorder,
                  hide_short_help = $hidden)]
            reorder: Option<Reorder>,
            /// Queue limit in bytes, such as 256KiB [default: unlimited]
            #[arg(id = concat!($prefix, "queue"), long = concat!($prefix, "queue"),
                  value_name = "SIZE", hide_short_help = $hidden)]
            queue: Option<Size>,
            /// Queue limit in datagrams [default: 1000]
            #[arg(id = concat!($prefix, "queue-packets"), long = concat!($prefix, "queue-packets"),
                  value_name = "N", hide_short_help = $hidden)]
            queue_packets: Option<u32>,
            /// Bytes added to the size of each datagram, such as 28 for IPv4 and UDP headers
            /// [default: 0]
            #[arg(id = concat!($prefix, "overhead"), long = concat!($prefix, "overhead"),
                  value_name = "BYTES", hide_short_help = $hidden)]
            overhead: Option<u32>,
        }

        impl $name {
            fn apply(&self, link: &mut LinkConfig) {
                link.rate_bps = self.rate.map(|rate| rate.bps).or(link.rate_bps);
                set(&mut link.delay_ns, self.delay.map(|delay| delay.ns));
                set(&mut link.jitter, self.jitter);
                set(&mut link.loss, self.loss);
                link.reorder = self.reorder.or(link.reorder);
                set(&mut link.queue_bytes_max, self.queue.map(|queue| queue.bytes));
                set(&mut link.queue_packets_max, self.queue_packets);
                set(&mut link.overhead_bytes, self.overhead);
            }
        }
    };
}

link_flags!(BothFlags, "", false);
link_flags!(AToBFlags, "a-to-b-", true);
link_flags!(BToAFlags, "b-to-a-", true);

fn set<T>(target: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *target = value;
    }
}

fn parse_jitter(text: &str) -> Result<Jitter, String> {
    let (is_normal, time) = match text.strip_prefix("normal:") {
        Some(sigma) => (true, sigma),
        None => (false, text),
    };
    let ns = time.parse::<Time>().map_err(|error| format!("{error}, or \"normal:1ms\""))?.ns;
    Ok(match ns {
        0 => Jitter::None,
        sigma_ns if is_normal => Jitter::Normal { sigma_ns },
        max_ns => Jitter::Uniform { max_ns },
    })
}

fn parse_loss(text: &str) -> Result<Loss, String> {
    let fraction = |text: &str| text.parse::<Fraction>().map(|fraction| fraction.value);
    let Some(chain) = text.strip_prefix("gilbert-elliott:") else {
        let share: Fraction =
            text.parse().map_err(|error| format!("{error}, or \"gilbert-elliott:1%,25%\""))?;
        return Ok(share.into());
    };
    let values: Result<Vec<f64>, _> = chain.split(',').map(fraction).collect();
    let values = values.map_err(|error| error.to_string())?;
    let (good_to_bad, bad_to_good, loss_good, loss_bad) = match values[..] {
        [good_to_bad, bad_to_good] => (good_to_bad, bad_to_good, 0.0, 1.0),
        [good_to_bad, bad_to_good, loss_good, loss_bad] => {
            (good_to_bad, bad_to_good, loss_good, loss_bad)
        }
        _ => {
            return Err(
                "must be two numbers (GOOD_TO_BAD,BAD_TO_GOOD) or four (with LOSS_GOOD and \
                        LOSS_BAD), such as \"gilbert-elliott:1%,25%\""
                    .into(),
            );
        }
    };
    Ok(Loss::GilbertElliott { good_to_bad, bad_to_good, loss_good, loss_bad })
}

fn parse_reorder(text: &str) -> Result<Reorder, String> {
    let (share, extra) =
        text.split_once(':').ok_or("must be a share and a time, such as \"1%:5ms\"")?;
    Ok(Reorder {
        probability: share.parse::<Fraction>().map_err(|error| error.to_string())?.value,
        extra_ns: extra.parse::<Time>().map_err(|error| error.to_string())?.ns,
    })
}

/// The file of `--config`.
#[derive(Default, Deserialize)]
#[serde(expecting = "a table", deny_unknown_fields, default)]
struct LinkFile {
    a: Option<SocketAddr>,
    b: Option<SocketAddr>,
    peer_a: Option<SocketAddr>,
    peer_b: Option<SocketAddr>,
    seed: Option<u64>,
    spin: Option<Time>,
    /// Applies to a direction without its own table.
    both: Option<LinkConfig>,
    a_to_b: Option<LinkConfig>,
    b_to_a: Option<LinkConfig>,
}

impl LinkFile {
    fn read(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        toml::from_str(&text).map_err(|error| {
            anyhow::anyhow!("{}: {}", path.display(), error.to_string().trim_end())
        })
    }
}

fn configuration(args: &Args) -> anyhow::Result<(UdpEnds, EmulatorConfig)> {
    let file = args.config.as_deref().map(LinkFile::read).transpose()?.unwrap_or_default();
    let (Some(a), Some(b)) = (args.a.or(file.a), args.b.or(file.b)) else {
        bail!(
            "both addresses are needed: use --a 127.0.0.1:7001 --b 127.0.0.1:7002, or set `a` and \
             `b` in the file of --config"
        );
    };
    // Later values win: the file, then flags for both directions, then flags for one direction.
    let mut config = EmulatorConfig::symmetric(file.both.unwrap_or_default());
    set(&mut config.a_to_b, file.a_to_b);
    set(&mut config.b_to_a, file.b_to_a);
    args.both.apply(&mut config.a_to_b);
    args.both.apply(&mut config.b_to_a);
    args.a_to_b.apply(&mut config.a_to_b);
    args.b_to_a.apply(&mut config.b_to_a);
    set(&mut config.seed, args.seed.or(file.seed));
    set(&mut config.spin_ns, args.spin.or(file.spin).map(|spin| spin.ns));
    let (peer_a, peer_b) = (args.peer_a.or(file.peer_a), args.peer_b.or(file.peer_b));
    Ok((UdpEnds { a, b, peer_a, peer_b }, config))
}

pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    let (ends, config) = configuration(&args)?;
    let stop = Stop::on_signals()?;
    let links = json!({ "a_to_b": config.a_to_b, "b_to_a": config.b_to_a });
    let emulator = Emulator::bind(ends, config)?;
    // Use standard error, as standard output contains only the statistics.
    crate::table::errln!("link between {} (a) and {} (b)", emulator.local_a(), emulator.local_b());
    let stats = emulator.run(stop.flag())?;
    if args.json {
        let mut report = serde_json::to_value(&stats)?;
        report["link"] = links;
        outln!("{report}")?;
    } else {
        out!("{}", describe(&stats))?;
    }
    Ok(())
}

fn describe(stats: &EmulatorStats) -> String {
    let seconds = stats.duration_ns as f64 / 1e9;
    let share = 100.0 * stats.processor_ns as f64 / stats.duration_ns.max(1) as f64;
    let mut table =
        Table::new(&[("", Align::Left), ("A TO B", Align::Right), ("B TO A", Align::Right)]);
    let mut row = |name: &str, value: &dyn Fn(&DirectionStats) -> String| {
        table.row(vec![name.into(), value(&stats.a_to_b), value(&stats.b_to_a)]);
    };
    row("datagrams received", &|direction| direction.received_frames.to_string());
    row("datagrams sent", &|direction| direction.sent_frames.to_string());
    row("bytes sent", &|direction| octets(direction.sent_bytes));
    row("mean rate, Mbit/s", &|direction| {
        format!("{:.3}", direction.sent_bytes as f64 * 8e-6 / seconds.max(1e-9))
    });
    for (name, count) in drops() {
        row(name, &|direction| count(direction).to_string());
    }
    row("arrived out of order", &|direction| direction.reordered_frames.to_string());
    row("longest queue", &|direction| {
        format!("{}, {}", direction.queue_packets_peak, octets(direction.queue_bytes_peak))
    });
    row("in flight at the end", &|direction| direction.in_flight_frames.to_string());
    let us = |ns: u64| format!("{:.1} us", ns as f64 / 1e3);
    row("lateness, median", &|direction| us(direction.lateness.p50_ns));
    row("lateness, 99 %", &|direction| us(direction.lateness.p99_ns));
    row("lateness, maximum", &|direction| us(direction.lateness.max_ns));
    let mut text = table.render("");
    text.push_str(&format!("{seconds:.1} s, seed {}, {share:.1} % of a core\n", stats.seed));
    if stats.a_to_b.dropped_socket + stats.b_to_a.dropped_socket > 0 {
        text.push_str(
            "This machine was too slow: the emulator lost datagrams, so the results are invalid.\n",
        );
    }
    text
}

type Count = fn(&DirectionStats) -> u64;

fn drops() -> [(&'static str, Count); 9] {
    [
        ("dropped: lost on the link", |direction| direction.dropped_loss),
        ("dropped: queue full, bytes", |direction| direction.dropped_queue_bytes),
        ("dropped: queue full, datagrams", |direction| direction.dropped_queue_packets),
        ("dropped: link down", |direction| direction.dropped_down),
        ("dropped: peer unknown", |direction| direction.dropped_no_peer),
        ("dropped: memory limit", |direction| direction.dropped_memory),
        ("dropped: send error", |direction| direction.dropped_send),
        ("dropped: unknown sender", |direction| direction.strangers),
        ("dropped: emulator too slow", |direction| direction.dropped_socket),
    ]
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Program {
        #[command(flatten)]
        args: Args,
    }

    fn config(text: &str) -> anyhow::Result<(UdpEnds, EmulatorConfig)> {
        let words = std::iter::once("link").chain(text.split_whitespace());
        configuration(&Program::try_parse_from(words)?.args)
    }

    #[test]
    fn one_direction_overrides_both() {
        let (_, config) = config(
            "--a 127.0.0.1:1 --b 127.0.0.1:2 --rate 40Mbit --delay 10ms --loss 1% \
             --b-to-a-rate 1Mbit --a-to-b-jitter normal:1ms --queue 256KiB --reorder 2%:5ms \
             --b-to-a-loss gilbert-elliott:1%,25% --seed 7 --spin 20us",
        )
        .unwrap();
        assert_eq!(config.a_to_b.rate_bps, Some(40_000_000));
        assert_eq!(config.b_to_a.rate_bps, Some(1_000_000));
        assert_eq!(config.a_to_b.delay_ns, 10_000_000);
        assert_eq!(config.a_to_b.jitter, Jitter::Normal { sigma_ns: 1_000_000 });
        assert_eq!(config.b_to_a.jitter, Jitter::None);
        assert_eq!(config.a_to_b.loss, Loss::Independent { probability: 0.01 });
        assert_eq!(config.b_to_a.loss.mean(), 0.01 / 0.26);
        assert_eq!(config.b_to_a.reorder.unwrap().extra_ns, 5_000_000);
        assert_eq!(config.a_to_b.queue_bytes_max, 256 << 10);
        assert_eq!((config.seed, config.spin_ns), (7, 20_000));
    }

    #[test]
    fn arguments_override_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("link.toml");
        let text = "a = \"127.0.0.1:1\"\nb = \"127.0.0.1:2\"\nseed = 3\nspin = \"5us\"\n\
                    [both]\nrate = \"1Gbit\"\n[b_to_a]\ndelay = \"3ms\"\n";
        std::fs::write(&path, text).unwrap();
        let (ends, read) = config(&format!("--config {} --seed 4", path.display())).unwrap();
        assert_eq!(read.a_to_b.rate_bps, Some(1_000_000_000));
        assert_eq!((read.b_to_a.rate_bps, read.b_to_a.delay_ns), (None, 3_000_000));
        assert_eq!((read.seed, read.spin_ns, ends.a.port()), (4, 5_000, 1));
        std::fs::write(&path, "a = \"127.0.0.1:1\"\n[both]\ndelay = 3\n").unwrap();
        let error = config(&format!("--config {}", path.display())).unwrap_err().to_string();
        assert!(error.contains("link.toml") && error.contains("line 3"), "{error}");
        assert!(error.contains("3ms"), "{error}");
    }

    #[test]
    fn bad_arguments_get_a_valid_example() {
        let ends = "--a 127.0.0.1:1 --b 127.0.0.1:2";
        for (text, needle) in [
            ("--a 127.0.0.1:1".to_owned(), "--b 127.0.0.1:7002"),
            (format!("{ends} --rate fast"), "40Mbit"),
            (format!("{ends} --delay 10"), "10ms"),
            (format!("{ends} --jitter normal:1"), "normal:1ms"),
            (format!("{ends} --loss 120%"), "1%"),
            (format!("{ends} --loss gilbert-elliott:1%"), "two numbers"),
            (format!("{ends} --reorder 1%"), "1%:5ms"),
            (format!("{ends} --queue big"), "256KiB"),
        ] {
            let error = format!("{:#}", config(&text).unwrap_err());
            assert!(error.contains(needle), "{text}: {error}");
        }
    }
}
