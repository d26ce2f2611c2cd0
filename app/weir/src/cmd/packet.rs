//! `weir packet`.

mod capture;

use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal, Read, Write};
use std::path::PathBuf;

use anyhow::{Context, anyhow, bail, ensure};
use serde_json::{Value, json};
use weir_crypto::packet_in_file;
use weir_wire::{LpView, tlv};

use crate::packet_json::{self, Fields, PacketError, PacketKind};
use crate::table::count;
use crate::transfer::cannot_read;

/// Largest input that is not a capture, in bytes.
const INPUT_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// The first bytes of NDN packets: their TLV types.
const NDN_OCTETS: [u8; 3] = [tlv::INTEREST as u8, tlv::DATA as u8, tlv::LP_PACKET as u8];

/// Number of hexadecimal digits after which the text output cuts a value.
const SHOWN_HEX_MAX: usize = 96;

/// Decode packets and show their fields, or why they are invalid.
///
/// The input is one packet in hexadecimal (--hex) or a file. A file contains consecutive packets,
/// binary or in hexadecimal, or one in base64, as ndnsec and `weir key export` write certificates.
/// It may also be a capture (.pcap, .pcapng). In a capture, packets are found on UDP and TCP port
/// 6363 and ethertype 0x8624, and hICN packets on UDP port 9695 and as plain IPv6.
/// Only signatures of type DigestSha256 are verified.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  weir packet --hex 05050703080161\n  echo 05050703080161 | weir \
                  packet - --json"
)]
pub(crate) struct Args {
    /// Decode this packet, in hexadecimal
    #[arg(long, value_name = "HEX", conflicts_with = "file")]
    hex: Option<String>,
    /// Read this file, or standard input (-) [default: standard input, unless it is a terminal]
    #[arg(value_name = "FILE|-")]
    file: Option<PathBuf>,
    /// Decode the packets as this kind [default: the kind given by the first byte]
    #[arg(long = "as", value_name = "KIND", value_enum)]
    kind: Option<PacketKind>,
    /// Print one JSON object per packet and line
    #[arg(long, help_heading = crate::help::OUTPUT)]
    json: bool,
}

pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    let mut printer =
        Printer { kind: args.kind, json: args.json, out: io::stdout().lock(), seen: 0, refused: 0 };
    if let Some(text) = &args.hex {
        printer.packet(&from_hex(text)?, None)?;
        return printer.finish();
    }
    match args.file {
        Some(path) if path.as_os_str() != "-" => {
            let file = File::open(&path).map_err(|error| cannot_read(&path, &error));
            read_input(BufReader::new(file?), &mut printer)
                .with_context(|| path.display().to_string())?;
        }
        None if io::stdin().is_terminal() => {
            bail!("no input; use --hex HEX, a FILE, or - for standard input");
        }
        _ => read_input(BufReader::new(io::stdin().lock()), &mut printer)?,
    }
    printer.finish()
}

/// Decodes hexadecimal text. White space is ignored.
fn from_hex(text: &str) -> anyhow::Result<Vec<u8>> {
    let digits: String = text.split_whitespace().collect();
    let digits = digits.strip_prefix("0x").unwrap_or(&digits);
    hex::decode(digits).map_err(|error| {
        anyhow!("not hexadecimal: {error}; write two digits (0 to 9, a to f) for each byte")
    })
}

fn read_input(mut input: impl BufRead, printer: &mut Printer<impl Write>) -> anyhow::Result<()> {
    if let Some(format) = capture::format_of(input.fill_buf().context("cannot read")?) {
        let ignored = capture::read(input, format, &mut |origin, packet| {
            printer.packet(packet, Some(origin))
        })?;
        ensure!(
            printer.seen > 0,
            "the capture has no NDN packets (UDP and TCP port 6363, ethertype 0x8624) and no hICN \
             packets (UDP port 9695, plain IPv6)"
        );
        if ignored > 0 {
            eprintln!(
                "weir: skipped {} with a truncated or fragmented packet",
                count(ignored, "frame", "frames")
            );
        }
        return Ok(());
    }
    let mut octets = Vec::new();
    input.take(INPUT_BYTES_MAX + 1).read_to_end(&mut octets).context("cannot read")?;
    ensure!(octets.len() as u64 <= INPUT_BYTES_MAX, "the input is larger than 256 MiB");
    // A binary Interest or Data starts with no hexadecimal digit. An LpPacket does (0x64 is `d`),
    // but the Interest or Data inside contains bytes that are no digits. In base64, they all start
    // with a letter beyond f, or have one as the second (`BQ`, `Bg`, `Bv`, `ZA` and so on).
    let is_text = |octet: &u8| octet.is_ascii_hexdigit() || octet.is_ascii_whitespace();
    if !octets.is_empty() && octets.iter().all(is_text) {
        octets = from_hex(&String::from_utf8_lossy(&octets))?;
    } else if let Some(packet) = packet_in_file(&octets, &NDN_OCTETS) {
        octets = packet;
    }
    let mut rest = &octets[..];
    loop {
        // If the start of the next packet is unknown, the decoder reports the error.
        let (packet, next) = rest.split_at(packet_len(printer.kind, rest).min(rest.len()));
        printer.packet(packet, None)?;
        rest = next;
        if rest.is_empty() {
            return Ok(());
        }
    }
}

/// The length of the first packet in `octets`; all of them if it is unknown.
fn packet_len(kind: Option<PacketKind>, octets: &[u8]) -> usize {
    const IPV6_HEADER_SIZE: usize = 40;
    match (kind.unwrap_or_else(|| PacketKind::of(octets)), octets) {
        (PacketKind::Hicn, [0x60..=0x6F, _, _, _, length0, length1, ..]) => {
            IPV6_HEADER_SIZE + usize::from(u16::from_be_bytes([*length0, *length1]))
        }
        (PacketKind::Hicn | PacketKind::HicnControl, _) => octets.len(),
        _ => {
            let element = tlv::Reader::new(octets).next_element().ok().flatten();
            element.map_or(octets.len(), |element| element.wire.len())
        }
    }
}

/// The position of a packet in a capture.
pub(crate) struct FrameOrigin {
    /// Number of the frame, from 1.
    frame: u64,
    /// Microseconds since the Unix epoch.
    time_us: u64,
    /// Addresses with ports, or empty.
    from: String,
    to: String,
}

struct Printer<W> {
    kind: Option<PacketKind>,
    json: bool,
    out: W,
    seen: u64,
    refused: u64,
}

impl<W: Write> Printer<W> {
    /// Prints the fields of one packet, or why it is invalid.
    fn packet(&mut self, wire: &[u8], origin: Option<FrameOrigin>) -> anyhow::Result<()> {
        self.seen += 1;
        let kind = self.kind.unwrap_or_else(|| PacketKind::of(wire));
        let printed = match packet_json::packet(kind, wire) {
            Err(error) => self.refusal(wire, error, origin),
            Ok(fields) if self.json => self.json_line(kind, fields, origin),
            Ok(fields) => self.text(kind, wire, &fields, origin),
        };
        ignore_closed_pipe(printed)
    }

    fn refusal(
        &mut self,
        wire: &[u8],
        error: PacketError,
        origin: Option<FrameOrigin>,
    ) -> io::Result<()> {
        self.refused += 1;
        let position = origin.as_ref().map(|origin| format!("frame {}: ", origin.frame));
        let position = position.unwrap_or_else(|| match self.seen {
            1 => String::new(),
            seen => format!("packet {seen}: "),
        });
        eprintln!("weir: {position}{error} ({})", error.reason());
        if self.json {
            let fields = vec![
                ("error", Value::from(error.to_string())),
                ("reason", error.reason().into()),
                ("hex", hex::encode(wire).into()),
            ];
            self.object_line(fields, origin)?;
        }
        Ok(())
    }

    fn json_line(
        &mut self,
        kind: PacketKind,
        mut fields: Fields,
        origin: Option<FrameOrigin>,
    ) -> io::Result<()> {
        fields.push(("kind", kind.name().into()));
        self.object_line(fields, origin)
    }

    fn object_line(&mut self, mut fields: Fields, origin: Option<FrameOrigin>) -> io::Result<()> {
        if let Some(FrameOrigin { frame, time_us, from, to }) = origin {
            let capture = json!({ "frame": frame, "time_us": time_us, "from": from, "to": to });
            fields.push(("capture", capture));
        }
        writeln!(self.out, "{}", packet_json::object(fields))
    }

    fn text(
        &mut self,
        kind: PacketKind,
        wire: &[u8],
        fields: &Fields,
        origin: Option<FrameOrigin>,
    ) -> io::Result<()> {
        if self.seen > 1 {
            writeln!(self.out)?;
        }
        write!(self.out, "{}, {} bytes", title(kind), wire.len())?;
        if let Some(FrameOrigin { frame, from, to, .. }) = origin {
            write!(self.out, ", frame {frame}")?;
            if !from.is_empty() {
                write!(self.out, ", {from} to {to}")?;
            }
        }
        writeln!(self.out)?;
        let mut outer = fields.iter().filter(|(key, _)| *key != "inner");
        outer.try_for_each(|(key, value)| self.text_field(key, value, 1))?;
        if let (PacketKind::Hicn, Ok(packet)) = (kind, packet_json::as_ndn(wire)) {
            return self.text_inner(&packet);
        }
        match LpView::decode(wire) {
            Ok(view) if kind == PacketKind::Lp && view.framing.frag_count == 1 => {
                view.fragment.map_or(Ok(()), |fragment| self.text_inner(fragment))
            }
            _ => Ok(()),
        }
    }

    fn text_inner(&mut self, wire: &[u8]) -> io::Result<()> {
        let kind = PacketKind::of(wire);
        writeln!(self.out, "  {}, {} bytes", title(kind), wire.len())?;
        // The inner packet is valid: it was decoded together with the outer one.
        let fields = packet_json::packet(kind, wire).unwrap_or_default();
        fields.iter().try_for_each(|(key, value)| self.text_field(key, value, 2))
    }

    fn text_field(&mut self, key: &str, value: &Value, depth: usize) -> io::Result<()> {
        let indent = 2 * depth;
        let width = 26 - indent;
        match value {
            Value::Object(fields) => {
                writeln!(self.out, "{:indent$}{key}", "")?;
                fields.iter().try_for_each(|(key, value)| self.text_field(key, value, depth + 1))
            }
            Value::String(text) if key.ends_with("_hex") && text.len() > SHOWN_HEX_MAX => {
                let (shown, size) = (&text[..SHOWN_HEX_MAX], text.len() / 2);
                writeln!(self.out, "{:indent$}{key:width$}{shown}.. ({size} bytes)", "")
            }
            Value::String(text) => writeln!(self.out, "{:indent$}{key:width$}{text}", ""),
            Value::Array(items) => {
                let text = |item: &Value| item.as_str().map_or(item.to_string(), str::to_owned);
                let items: Vec<String> = items.iter().map(text).collect();
                writeln!(self.out, "{:indent$}{key:width$}{}", "", items.join(" "))
            }
            other => writeln!(self.out, "{:indent$}{key:width$}{other}", ""),
        }
    }

    fn finish(mut self) -> anyhow::Result<()> {
        ignore_closed_pipe(self.out.flush())?;
        match (self.refused, self.seen) {
            (0, _) => Ok(()),
            (_, 1) => {
                bail!("the packet is invalid; for the accepted input, see `weir packet --help`")
            }
            (refused, seen) => bail!("{refused} of {seen} packets are invalid"),
        }
    }
}

fn title(kind: PacketKind) -> &'static str {
    match kind {
        PacketKind::Interest => "Interest",
        PacketKind::Data => "Data",
        PacketKind::Lp => "LpPacket",
        PacketKind::Hicn => "hICN packet",
        PacketKind::HicnControl => "hicn-light control message",
    }
}

/// Turns the error of a closed pipe (as by `head`) into success.
fn ignore_closed_pipe(result: io::Result<()>) -> anyhow::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result.context("cannot write"),
    }
}
