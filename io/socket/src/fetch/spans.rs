//! Spans of a download: what took how long, for traces. Without a subscriber for them they cost
//! nothing. There is none for a packet or a segment.
//!
//! ```text
//! download         from its start until its file is durable
//!   discovery      until the version is known
//!   fetch          until the last segment has arrived and is verified
//!   verification   from the first batch of segments to the last verdict
//!   write          from opening the output until the file is durable
//! ```
//!
//! Their level is TRACE, so logs do not show them. Integers are `i64`, because OpenTelemetry has no
//! other.

use std::collections::BTreeMap;
use std::fmt::Write;

use tracing::field::Empty;
use tracing::{Span, trace_span};
use weir_base::FaceId;
use weir_base::units::saturating_i64;
use weir_transport::{ConsumerConfig, ConsumerStats, Controller, PathId, Target};

use super::host::{DownloadError, Found, Summary};

/// The spans of one download.
#[derive(Clone)]
pub(crate) struct DownloadSpans {
    controller: Controller,
    download: Span,
    discovery: Span,
    fetch: Span,
    verification: Span,
    write: Span,
}

/// What threads did for a download.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ThreadWork {
    /// Packets verified, and those of them that were bad.
    pub(crate) packets: u64,
    pub(crate) rejected: u64,
    /// Time that threads spent on verification and on writes to a file. Threads work at once, so
    /// it may exceed the duration of the span.
    pub(crate) verify_ns: u64,
    pub(crate) write_ns: u64,
}

impl ThreadWork {
    pub(crate) fn add(&mut self, other: Self) {
        self.packets += other.packets;
        self.rejected += other.rejected;
        self.verify_ns += other.verify_ns;
        self.write_ns += other.write_ns;
    }
}

impl DownloadSpans {
    pub(crate) fn start(target: &Target, config: &ConsumerConfig) -> Self {
        let download = trace_span!(
            "download",
            weir.name = %target.name(),
            weir.version = Empty,
            weir.bytes = Empty,
            weir.segments = Empty,
            weir.resumed_segments = Empty,
            weir.unchanged = Empty,
            otel.status_description = Empty,
        );
        let discovery = trace_span!(
            parent: &download,
            "discovery",
            weir.version = Empty,
            weir.stored = Empty,
            weir.bytes = Empty,
            otel.status_description = Empty,
        );
        let [fetch, verification, write] = [const { Span::none() }; 3];
        Self { controller: config.controller, download, discovery, fetch, verification, write }
    }

    /// Discovery has ended.
    pub(crate) fn found(&mut self, Found { metadata, stored, .. }: &Found) {
        let discovery = std::mem::replace(&mut self.discovery, Span::none());
        if discovery.is_disabled() {
            return;
        }
        discovery.record("weir.version", tracing::field::display(&metadata.versioned));
        discovery.record("weir.stored", stored.is_some());
        record_some(&discovery, "weir.bytes", metadata.size_bytes);
    }

    /// The output is being opened.
    pub(crate) fn opening(&mut self) {
        self.write = trace_span!(
            parent: &self.download,
            "write",
            weir.busy_us = Empty,
            otel.status_description = Empty,
        );
    }

    /// The first Interest for a segment can be sent.
    pub(crate) fn fetching(&mut self) {
        self.fetch = trace_span!(
            parent: &self.download,
            "fetch",
            weir.controller = %self.controller,
            weir.window = Empty,
            weir.outstanding_max = Empty,
            weir.rtt_min_ms = Empty,
            weir.rtt_median_ms = Empty,
            weir.rtt_p99_ms = Empty,
            weir.interests = Empty,
            weir.retransmissions = Empty,
            weir.losses = Empty,
            weir.timeouts = Empty,
            weir.nacks = Empty,
            weir.marks = Empty,
            weir.sources = Empty,
            otel.status_description = Empty,
        );
    }

    /// Segments are given to threads.
    pub(crate) fn verifying(&mut self) {
        if self.verification.is_disabled() && !self.fetch.is_disabled() {
            self.verification = trace_span!(
                parent: &self.download,
                "verification",
                weir.packets = Empty,
                weir.rejected = Empty,
                weir.busy_us = Empty,
            );
        }
    }

    /// All segments have arrived and are verified, or the download failed.
    pub(crate) fn fetched(
        &mut self,
        stats: &ConsumerStats,
        work: ThreadWork,
        by_face: &BTreeMap<(PathId, Option<FaceId>), u64>,
    ) {
        let verification = std::mem::replace(&mut self.verification, Span::none());
        verification.record("weir.packets", saturating_i64(work.packets));
        verification.record("weir.rejected", saturating_i64(work.rejected));
        verification.record("weir.busy_us", saturating_i64(work.verify_ns / 1000));
        self.write.record("weir.busy_us", saturating_i64(work.write_ns / 1000));
        if self.fetch.is_disabled() {
            return;
        }
        let fetch = &self.fetch;
        fetch.record("weir.window", stats.window);
        for (name, ns) in [
            ("weir.rtt_min_ms", stats.rtt_min_ns),
            ("weir.rtt_median_ms", stats.rtt_median_ns),
            ("weir.rtt_p99_ms", stats.rtt_p99_ns),
        ] {
            if let Some(ns) = ns {
                fetch.record(name, ns as f64 / 1e6);
            }
        }
        for (name, count) in [
            ("weir.outstanding_max", u64::from(stats.outstanding_max)),
            ("weir.interests", stats.interests),
            ("weir.retransmissions", stats.retransmissions),
            ("weir.losses", stats.losses),
            ("weir.timeouts", stats.timeouts),
            ("weir.nacks", stats.nacks),
            ("weir.marks", stats.marks),
        ] {
            fetch.record(name, saturating_i64(count));
        }
        fetch.record("weir.sources", sources(by_face).as_str());
    }

    /// The fetch has ended, and only the file is not durable yet.
    pub(crate) fn closing(&mut self, result: &Result<Summary, DownloadError>) {
        let fetch = std::mem::replace(&mut self.fetch, Span::none());
        let discovery = std::mem::replace(&mut self.discovery, Span::none());
        if let Err(error) = result {
            // The phase in which it failed. Later ones have not begun.
            let failed = if discovery.is_disabled() { fetch } else { discovery };
            record_error(&failed, error);
        }
    }

    /// The download has ended.
    pub(crate) fn end(self, result: &Result<Summary, DownloadError>) {
        let Self { download, write, .. } = self;
        match result {
            Ok(summary) => {
                if !download.is_disabled() {
                    let version = tracing::field::display(&summary.versioned);
                    download.record("weir.version", version);
                }
                download.record("weir.bytes", saturating_i64(summary.octets));
                download.record("weir.segments", saturating_i64(summary.segments));
                download.record("weir.resumed_segments", saturating_i64(summary.segments_resumed));
                download.record("weir.unchanged", summary.was_complete);
            }
            Err(error) => {
                record_error(&download, error);
                if let DownloadError::Output(_) | DownloadError::Store(_) = error {
                    record_error(&write, error);
                }
            }
        }
    }
}

fn record_some(span: &Span, name: &str, value: Option<u64>) {
    if let Some(value) = value {
        span.record(name, saturating_i64(value));
    }
}

fn record_error(span: &Span, error: &DownloadError) {
    if !span.is_disabled() {
        span.record("otel.status_description", tracing::field::display(error));
    }
}

/// Packets by where the router had them from: `store=90 face-262=10`.
fn sources(by_face: &BTreeMap<(PathId, Option<FaceId>), u64>) -> String {
    let mut text = String::new();
    for ((_, face), packets) in by_face {
        let separator = if text.is_empty() { "" } else { " " };
        // Writing to a string never fails.
        let _ = match face {
            Some(FaceId::CONTENT_STORE) => write!(text, "{separator}store={packets}"),
            Some(face) => write!(text, "{separator}face-{face}={packets}"),
            None => write!(text, "{separator}unknown={packets}"),
        };
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_name_store_and_faces() {
        let counts = [(None, 1), (Some(FaceId::CONTENT_STORE), 90), (Some(FaceId(262)), 10)];
        let by_face = counts.map(|(face, packets)| ((PathId(0), face), packets));
        assert_eq!(sources(&by_face.into()), "unknown=1 store=90 face-262=10");
    }
}
