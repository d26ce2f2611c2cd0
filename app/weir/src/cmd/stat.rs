//! `weir stat`.

use anyhow::Context;
use serde_json::{Value, json};
use weir_client::Client;
use weir_security::trust::{TrustBasis, TrustedSigner};
use weir_transport::Metadata;
use weir_wire::{DataView, KeyLocatorView, Name, content_type};

use crate::exit::Exit;
use crate::table::{count, octets, out, outln};
use crate::transfer::Stop;
use crate::transfer::objects::{
    LookArgs, Part, ReadArgs, Seen, Survey, Walk, connect, date_text, kind_of, survey, version_of,
};
use crate::transfer::trust::signer_to_json;

/// Show what is known of an object: version, size, segments, signer, and whether it verifies.
///
/// Fetches metadata and the first segment only; of a stream that grows, the newest segment. If the
/// signature cannot be verified, the values are shown all the same, with the reason, and the exit
/// code is 6. The exit code is 4 if the object is not found, 5 without a route, and 8 without an
/// answer.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  weir stat /demo/services\n  weir stat /demo/services --json")]
pub(crate) struct Args {
    #[command(flatten)]
    look: LookArgs,
}

pub(crate) fn run(args: Args) -> anyhow::Result<()> {
    let args = args.look;
    let stop = Stop::on_signals()?;
    let mut client = connect(&args.router, &args.name)?;
    let (found, problem) = match look(&mut client, &args.read, &args.name, &stop) {
        Ok(found) => (found, None),
        // Data arrived but does not verify: look at it once more and accept it. After any other
        // failure, such a look could show as unverified what was never checked.
        Err(error) if Exit::of(&error) == Exit::NotVerified => {
            let accepting = args.read.accepting_unverified();
            match look(&mut client, &accepting, &args.name, &stop) {
                Ok(found) if !stop.is_set() => (found, Some(error)),
                _ => return Err(error.context(format!("cannot look at {}", args.name))),
            }
        }
        Err(error) => return Err(error.context(format!("cannot look at {}", args.name))),
    };
    let seen = found.seen.first().context("the object was not found")?;
    let facts = Facts::of(seen, &found.signers, problem.as_ref().map(|error| format!("{error:#}")));
    if args.json {
        outln!("{}", facts.to_json())?;
    } else {
        out!("{}", facts.to_text())?;
    }
    match problem {
        None => Ok(()),
        Some(error) => Err(error.context(format!("{} is not verified", args.name))),
    }
}

fn look(client: &mut Client, read: &ReadArgs, name: &Name, stop: &Stop) -> anyhow::Result<Survey> {
    let walk = Walk { part: Part::First, list_depth: 0, visits_files: false };
    survey(client, read, name, walk, stop, &mut |_, _| {})
}

/// What the first segment says.
#[derive(Default)]
struct FirstSegment {
    content_type: u64,
    freshness_ms: u64,
    bytes: u64,
    last_segment: Option<u64>,
    key: Option<String>,
}

impl FirstSegment {
    fn of(data: &DataView<'_>) -> Self {
        let key = data.signature_info().key_locator.map(|locator| match locator {
            KeyLocatorView::Name(name) => name.to_string(),
            KeyLocatorView::Digest(digest) => format!("sha256:{}", hex::encode(digest)),
        });
        Self {
            content_type: data.content_type,
            freshness_ms: data.freshness_ms,
            bytes: data.content.len() as u64,
            last_segment: data.final_block_id().and_then(|last| last.as_segment()),
            key,
        }
    }
}

struct Facts<'a> {
    name: &'a Name,
    metadata: &'a Metadata,
    is_stored: bool,
    first: FirstSegment,
    signers: &'a [TrustedSigner],
    /// Why the object does not verify.
    problem: Option<String>,
}

impl<'a> Facts<'a> {
    fn of(seen: &'a Seen, signers: &'a [TrustedSigner], problem: Option<String>) -> Self {
        let data = seen.first.as_ref().and_then(|packet| DataView::decode(packet).ok());
        Self {
            name: &seen.name,
            metadata: &seen.metadata,
            is_stored: seen.is_stored,
            first: data.map_or_else(FirstSegment::default, |data| FirstSegment::of(&data)),
            signers,
            problem,
        }
    }

    /// Why the object counts as not verified.
    fn doubt(&self) -> Option<&str> {
        let is_unsure = |signer: &TrustedSigner| {
            matches!(signer.basis, TrustBasis::Unsigned | TrustBasis::Unverified)
        };
        let accepted = self.signers.iter().any(is_unsure).then_some("accepted as you asked");
        self.problem.as_deref().or(accepted)
    }

    /// Segments of the whole object, or so far.
    fn segments(&self) -> Option<u64> {
        let last = self.metadata.newest_segment().or(self.first.last_segment)?;
        last.checked_add(1)
    }

    /// Bytes of the whole object. An object of one segment has its size.
    fn size_bytes(&self) -> Option<u64> {
        let is_alone = self.segments() == Some(1) && self.metadata.next_segment.is_none();
        self.metadata.size_bytes.or_else(|| is_alone.then_some(self.first.bytes))
    }

    fn segment_bytes(&self) -> u64 {
        self.metadata.segment_size.unwrap_or(self.first.bytes)
    }

    fn to_text(&self) -> String {
        let segments = self.segments().map(|segments| {
            let so_far = if kind_of(self.metadata) == "stream" { " so far" } else { "" };
            let segments = count(segments, "segment", "segments");
            format!("{segments}{so_far}, {} bytes each", self.segment_bytes())
        });
        let size = self.size_bytes().map(|bytes| match bytes {
            ..1024 => count(bytes, "byte", "bytes"),
            _ => format!("{} ({bytes} bytes)", octets(bytes)),
        });
        let signers: Vec<String> = self.signers.iter().map(signer_text).collect();
        let verified = match self.doubt() {
            None => "yes".to_owned(),
            Some(doubt) => format!("no: {doubt}"),
        };
        let source = if self.is_stored {
            Some("a router's store; the producer could not be reached")
        } else {
            None
        };
        let rows = [
            ("name", Some(self.name.to_string())),
            ("versioned", Some(self.metadata.versioned.to_string())),
            ("kind", Some(kind_of(self.metadata).to_owned())),
            ("size", size),
            ("segments", segments),
            ("modified", self.metadata.mtime_ns.map(date_text)),
            ("mode", self.metadata.mode.map(|mode| format!("{:o}", mode & 0o7777))),
            ("content", Some(content_type_text(self.first.content_type))),
            ("fresh for", Some(crate::table::span(self.first.freshness_ms))),
            ("signed by", self.first.key.clone()),
            ("trusted as", (!signers.is_empty()).then(|| signers.join(", "))),
            ("digest", self.metadata.content_digest.map(hex::encode)),
            ("answer of", source.map(str::to_owned)),
            ("verified", Some(verified)),
        ];
        let rows = rows.into_iter().filter_map(|(label, text)| Some((label, text?)));
        rows.map(|(label, text)| format!("  {label:<10} {text}\n")).collect()
    }

    fn to_json(&self) -> Value {
        json!({
            "name": self.name.to_string(),
            "versioned": self.metadata.versioned.to_string(),
            "version": version_of(self.metadata),
            "kind": kind_of(self.metadata),
            "size_bytes": self.size_bytes(),
            "segments": self.segments(),
            "segment_bytes": self.segment_bytes(),
            "modified_unix_ms": self.metadata.mtime_ns.map(|ns| ns / 1_000_000),
            "mode": self.metadata.mode,
            "content_type": self.first.content_type,
            "freshness_ms": self.first.freshness_ms,
            "key": self.first.key,
            "signers": self.signers.iter().map(signer_to_json).collect::<Vec<_>>(),
            "content_digest": self.metadata.content_digest.map(hex::encode),
            "stored": self.is_stored,
            "verified": self.doubt().is_none(),
            "problem": self.doubt(),
        })
    }
}

fn signer_text(signer: &TrustedSigner) -> String {
    let json = signer_to_json(signer);
    let text = |key: &str| json[key].as_str().unwrap_or("-").to_owned();
    format!("{} ({})", text("name"), text("trust"))
}

fn content_type_text(number: u64) -> String {
    match number {
        0 => "blob".to_owned(),
        content_type::NACK => "nack: the producer has no such data".to_owned(),
        other => format!("type {other}"),
    }
}
