//! The summary that `weir get` prints at the end.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tracing::field::Empty;
use tracing::{Span, trace_span};
use weir_base::FaceId;
use weir_base::units::saturating_i64;
use weir_client::Client;
use weir_manage::FaceStatus;
use weir_security::trust::{TrustBasis, TrustedSigner};
use weir_socket::{PathSummary, Summary};
use weir_transport::{ConsumerStats, LabelStats, PathId};
use weir_wire::Name;

use super::Args;
use crate::table::{count, errln, octets, outln, printable};
use crate::transfer::trust::signer_to_json;

/// The span of the command, for traces. [`Report::record`] has its results. OpenTelemetry's
/// integers are `i64`.
pub(super) fn span(name: &Name) -> Span {
    trace_span!(
        "get",
        otel.kind = "client",
        weir.name = %name,
        weir.version = Empty,
        weir.files = Empty,
        weir.failed = Empty,
        weir.bytes = Empty,
        weir.segments = Empty,
        weir.resumed_segments = Empty,
        weir.interests = Empty,
        weir.retransmissions = Empty,
        weir.losses = Empty,
        weir.sources = Empty,
        process.exit.code = Empty,
        otel.status_description = Empty,
    )
}

/// The signers of everything that was fetched.
#[derive(Copy, Clone)]
pub(super) struct Signers<'a> {
    pub(super) all: &'a [TrustedSigner],
    /// Whether those seen for the first time have been recorded.
    pub(super) is_recorded: bool,
}

impl Signers<'_> {
    fn memory_of(self, signer: &TrustedSigner) -> &'static str {
        match (signer.basis, self.is_recorded) {
            (TrustBasis::FirstUse, true) => "; remembered from now on",
            (TrustBasis::FirstUse, false) => "; not remembered",
            _ => "",
        }
    }
}

/// The sum of all downloads of a command.
#[derive(Default)]
pub(super) struct Report {
    name: String,
    versioned: Option<String>,
    output: Option<PathBuf>,
    files: u64,
    /// Entries of a directory that could not be fetched.
    failed: u64,
    octets: u64,
    segments: u64,
    segments_resumed: u64,
    files_unchanged: u64,
    is_directory: bool,
    started: Option<Instant>,
    duration: Duration,
    is_stored: bool,
    has_manifest: bool,
    has_unsigned_end: bool,
    accepts_unverified: bool,
    may_be_unverified: bool,
    /// Segments were resumed from an earlier attempt, which may not have verified them.
    has_unverified_rest: bool,
    by_face: BTreeMap<(PathId, Option<FaceId>), u64>,
    by_path: BTreeMap<PathId, PathSummary>,
    stats: ConsumerStats,
}

impl Report {
    pub(super) fn new(args: &Args) -> Self {
        Self {
            name: args.name.to_string(),
            started: Some(Instant::now()),
            accepts_unverified: args.accept_unverified,
            may_be_unverified: args.may_be_unverified(),
            ..Self::default()
        }
    }

    /// Sets the number of failed entries.
    pub(super) fn with_failed(self, failed: u64) -> Self {
        Self { failed, ..self }
    }

    /// Records the results of the command in its span.
    pub(super) fn record(&self, span: &Span, failed: u64) {
        if let Some(version) = &self.versioned {
            span.record("weir.version", version.as_str());
        }
        for (name, count) in [
            ("weir.files", self.files),
            ("weir.failed", failed),
            ("weir.bytes", self.octets),
            ("weir.segments", self.segments),
            ("weir.resumed_segments", self.segments_resumed),
            ("weir.interests", self.stats.interests),
            ("weir.retransmissions", self.stats.retransmissions),
            ("weir.losses", self.stats.losses),
        ] {
            span.record(name, saturating_i64(count));
        }
        let mut sources = BTreeMap::<&str, u64>::new();
        for (&(_, face), &packets) in &self.by_face {
            *sources.entry(source_of(face)).or_default() += packets;
        }
        let sources: Vec<_> =
            sources.iter().map(|(source, packets)| format!("{source}={packets}")).collect();
        span.record("weir.sources", sources.join(" "));
    }

    /// Whether the requested object is a directory.
    pub(super) fn is_directory(&self) -> bool {
        self.is_directory
    }

    /// The number of files fetched so far, as text; empty unless the object is a directory.
    pub(super) fn files_of_directory(&self) -> String {
        if self.is_directory && self.files > 0 {
            format!("{}, ", count(self.files, "file", "files"))
        } else {
            String::new()
        }
    }

    pub(super) fn file(&mut self, summary: &Summary, path: Option<&Path>) {
        self.files += 1;
        self.files_unchanged += u64::from(summary.was_complete);
        self.octets += summary.octets;
        self.segments += summary.segments;
        self.segments_resumed += summary.segments_resumed;
        // A complete file was compared with the digest in its metadata.
        let has_resumed = summary.segments_resumed > 0 && !summary.was_complete;
        self.has_unverified_rest |= self.may_be_unverified && has_resumed;
        self.add(summary, path);
    }

    pub(super) fn directory(&mut self, summary: &Summary, path: &Path) {
        self.is_directory = true;
        self.add(summary, Some(path));
    }

    fn add(&mut self, summary: &Summary, path: Option<&Path>) {
        // The first object is the requested one; the others are its entries.
        self.versioned.get_or_insert_with(|| summary.versioned.to_string());
        if let Some(path) = path {
            self.output.get_or_insert_with(|| path.to_owned());
        }
        let since_start = self.started.map_or(Duration::ZERO, |started| started.elapsed());
        // For a single file, this is the time until its last segment was stored.
        let took = Duration::from_nanos(summary.took_ns);
        self.duration = if self.is_directory { since_start } else { took };
        self.is_stored |= summary.is_stored;
        self.has_manifest |= summary.has_manifest;
        self.has_unsigned_end |= summary.stats.has_unsigned_end;
        for (&face, &count) in &summary.by_face {
            *self.by_face.entry(face).or_default() += count;
        }
        for (&path, of_path) in &summary.by_path {
            self.by_path.entry(path).or_default().add(of_path);
        }
        let stats = &summary.stats;
        self.stats = ConsumerStats {
            interests: self.stats.interests + stats.interests,
            retransmissions: self.stats.retransmissions + stats.retransmissions,
            losses: self.stats.losses + stats.losses,
            false_losses: self.stats.false_losses + stats.false_losses,
            decreases: self.stats.decreases + stats.decreases,
            timeouts: self.stats.timeouts + stats.timeouts,
            nacks: self.stats.nacks + stats.nacks,
            marks: self.stats.marks + stats.marks,
            // The other fields are those of the latest object.
            ..stats.clone()
        };
    }

    fn seconds(&self) -> f64 {
        self.duration.as_secs_f64()
    }

    fn goodput_bps(&self, octets: u64) -> f64 {
        octets as f64 * 8.0 / self.seconds().max(1e-9)
    }

    pub(super) fn print(
        &self,
        signers: Signers<'_>,
        client: &mut Client,
        is_json: bool,
    ) -> anyhow::Result<()> {
        // If everything failed, only the errors are printed.
        let has_result = self.files > 0 || self.failed == 0;
        if is_json {
            outln!("{}", self.to_json(signers.all, client))?;
        } else if has_result {
            self.print_text(signers, client);
        }
        if has_result && self.accepts_unverified && !self.is_verified(signers.all) {
            errln!(
                "NOT VERIFIED: anyone on the path may have made this data; only digests and the \
                 order of segments were checked"
            );
        }
        Ok(())
    }

    /// Whether signatures of trusted keys cover everything.
    fn is_verified(&self, signers: &[TrustedSigner]) -> bool {
        // Without a signer, nothing was fetched, or everything is from an earlier attempt.
        let has_result = self.files > 0 && (!self.may_be_unverified || !signers.is_empty());
        let is_signed = signers.iter().all(|signer| signer.basis.is_verified());
        is_signed && has_result && !self.has_unverified_rest
    }

    fn to_json(&self, signers: &[TrustedSigner], client: &Client) -> Value {
        let routers = self.by_path.iter().map(|(&path, of_path)| {
            json!({
                "uri": client.uri_of(path).to_string(),
                "packets": of_path.packets,
                "bytes": of_path.octets,
                "goodput_bps": self.goodput_bps(of_path.octets),
                "interests": of_path.stats.interests,
                "losses": of_path.stats.losses,
                "timeouts": of_path.stats.timeouts,
                "nacks": of_path.stats.nacks,
                "rtt_smoothed_ms": milliseconds(of_path.stats.rtt_smoothed_ns),
                "labels": of_path.labels.iter().map(label_to_json).collect::<Vec<_>>(),
            })
        });
        // Face numbers are local to a router.
        let served_by = self.by_face.iter().map(|(&(path, face), &packets)| {
            json!({
                "source": source_of(face),
                "face_id": face.filter(|&face| face != FaceId::CONTENT_STORE).map(|face| face.0),
                "router": client.uri_of(path).to_string(),
                "packets": packets,
            })
        });
        json!({
            "name": self.name,
            "versioned": self.versioned,
            "output": self.output,
            "files": self.files,
            "failed": self.failed,
            "bytes": self.octets,
            "seconds": self.seconds(),
            "goodput_bps": self.goodput_bps(self.octets),
            "segments": self.segments,
            "resumed_segments": self.segments_resumed,
            "files_there": self.files_unchanged,
            "stored_version": self.is_stored,
            "manifest": self.has_manifest,
            "unsigned_end": self.has_unsigned_end,
            "interests": self.stats.interests,
            "retransmissions": self.stats.retransmissions,
            "losses": self.stats.losses,
            "false_losses": self.stats.false_losses,
            "decreases": self.stats.decreases,
            "unwanted": self.stats.unwanted,
            "timeouts": self.stats.timeouts,
            "nacks": self.stats.nacks,
            "marks": self.stats.marks,
            "window": self.stats.window,
            "outstanding_max": self.stats.outstanding_max,
            "rtt_ms": {
                "min": milliseconds(self.stats.rtt_min_ns),
                "median": milliseconds(self.stats.rtt_median_ns),
                "p99": milliseconds(self.stats.rtt_p99_ns),
            },
            "served_by": served_by.collect::<Vec<_>>(),
            "routers": routers.collect::<Vec<_>>(),
            "verified": self.is_verified(signers),
            "signers": signers.iter().map(signer_to_json).collect::<Vec<_>>(),
        })
    }

    fn print_text(&self, signers: Signers<'_>, client: &mut Client) {
        let target = self.output.as_ref().map(|path| format!(" -> {}", printable(path.display())));
        errln!("{}{}", self.versioned.as_deref().unwrap_or(&self.name), target.unwrap_or_default());
        let files = match self.files {
            1 => String::new(),
            files => format!("{}, ", count(files, "file", "files")),
        };
        errln!(
            "{files}{} in {:.3} s, {}/s, {}",
            octets(self.octets),
            self.seconds(),
            octets((self.goodput_bps(self.octets) / 8.0) as u64),
            count(self.segments, "segment", "segments"),
        );
        if self.files_unchanged > 0 {
            let files = count(self.files_unchanged, "file was", "files were");
            errln!("{files} already complete");
        }
        if self.segments_resumed > 0 {
            let segments = count(self.segments_resumed, "segment was", "segments were");
            errln!("{segments} kept from an earlier attempt");
        }
        let stats = &self.stats;
        let milliseconds = |ns| milliseconds(ns).map_or("-".into(), |ms| format!("{ms:.2} ms"));
        errln!(
            "{}, {} retransmitted; {}; round trip {} (median), {} (minimum)",
            count(stats.interests, "Interest", "Interests"),
            stats.retransmissions,
            count(stats.marks, "congestion mark", "congestion marks"),
            milliseconds(stats.rtt_median_ns),
            milliseconds(stats.rtt_min_ns),
        );
        for signer in signers.all {
            errln!("signed by {signer}{}", signers.memory_of(signer));
        }
        if self.has_unsigned_end {
            errln!("no signature covers the end: only a flag states which packet is the last");
        }
        for (&path, of_path) in &self.by_path {
            if self.by_path.len() > 1 {
                errln!(
                    "router {}: {}, {}/s; {} lost, {} timed out, {} rejected; round trip {}",
                    client.uri_of(path),
                    octets(of_path.octets),
                    octets((self.goodput_bps(of_path.octets) / 8.0) as u64),
                    of_path.stats.losses,
                    of_path.stats.timeouts,
                    of_path.stats.nacks,
                    milliseconds(of_path.stats.rtt_smoothed_ns),
                );
            }
            self.print_sources(path, client);
        }
    }

    /// Prints the number of packets by source, if the router reported the sources.
    fn print_sources(&self, path: PathId, client: &mut Client) {
        // `None` sorts before all faces, so the range begins with the first entry of the path.
        let by_face = self.by_face.range((path, None)..).take_while(|((of, _), _)| *of == path);
        let by_face = by_face.map(|(&(_, face), &data)| (face, data));
        if by_face.clone().all(|(face, _)| face.is_none()) {
            return;
        }
        client.set_managed_path(path);
        let uris = face_uris(client);
        for (face, data) in by_face {
            let data = count(data, "packet", "packets");
            match face {
                Some(FaceId::CONTENT_STORE) => errln!("{data} from this router's store"),
                Some(face) => match uris.get(&face) {
                    Some(uri) => errln!("{data} from face {face}, {uri}"),
                    None => errln!("{data} from face {face}"),
                },
                None => errln!("{data} from an unknown source"),
            }
        }
    }
}

/// Measurements for a path label of hICN.
fn label_to_json(stats: &LabelStats) -> Value {
    json!({
        "label": stats.label,
        "answers": stats.answers,
        "losses": stats.losses,
        "rtt_smoothed_ms": milliseconds(stats.rtt_smoothed_ns),
    })
}

fn milliseconds(ns: Option<u64>) -> Option<f64> {
    ns.map(|ns| ns as f64 / 1e6)
}

fn source_of(face: Option<FaceId>) -> &'static str {
    match face {
        Some(FaceId::CONTENT_STORE) => "store",
        Some(_) => "face",
        None => "unknown",
    }
}

/// The URIs of the router's faces, or an empty map if the router does not answer.
fn face_uris(client: &mut Client) -> BTreeMap<FaceId, String> {
    let faces = client.dataset::<FaceStatus>("faces/list").unwrap_or_default();
    faces.into_iter().map(|face| (face.info.face_id, face.info.uri)).collect()
}
