//! The fetches of a session's consumers: the owner of its downloads.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crossbeam_channel::Receiver;
use weir_client::ClientError;
use weir_face::FaceUri;
use weir_security::trust::{NeededPacket, Refusal, Trust, TrustDecision};
use weir_transport::{ConsumerConfig, Metadata, Target};
use weir_wire::DataView;

use super::SocketError;
use super::inbox::{Inbox, InboxWriter, ObjectStart};
use crate::fetch::{
    DownloadError, DownloadHost, DownloadId, Found, Opened, Output, OutputError, Summary,
};

/// A consumer's trust, shared by all its fetches.
#[derive(Clone)]
pub(crate) struct SharedTrust(Arc<Mutex<dyn Trust + Send>>);

impl SharedTrust {
    pub(crate) fn new(trust: impl Trust + Send + 'static) -> Self {
        Self(Arc::new(Mutex::new(trust)))
    }

    fn with<R>(&self, then: impl FnOnce(&mut dyn Trust) -> R) -> R {
        then(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Trust for SharedTrust {
    fn decide(&mut self, data: &DataView<'_>) -> TrustDecision {
        self.with(|trust| trust.decide(data))
    }

    fn offer_certificate(&mut self, certificate: &[u8]) {
        self.with(|trust| trust.offer_certificate(certificate));
    }

    fn on_fetched(&mut self, wanted: NeededPacket, packet: Option<&[u8]>) {
        self.with(|trust| trust.on_fetched(wanted, packet));
    }

    fn explain(&self, refusal: Refusal) -> String {
        self.with(|trust| trust.explain(refusal))
    }
}

/// A fetch to start. If it is dropped before its end, it ends as closed.
pub(crate) struct Fetch {
    pub(crate) target: Option<Target>,
    pub(crate) config: ConsumerConfig,
    pub(crate) trust: SharedTrust,
    /// Bytes of the object.
    pub(crate) range: Range<u64>,
    /// Instead of the range: everything from the newest segment on.
    pub(crate) from_newest: bool,
    pub(crate) inbox: Arc<Inbox>,
}

impl Drop for Fetch {
    fn drop(&mut self) {
        self.inbox.set_end(Err(SocketError::Closed));
    }
}

/// Gives the network thread new fetches, and readers their packets.
pub(crate) struct Fetches {
    new: Receiver<Fetch>,
    open: HashMap<DownloadId, Fetch>,
    next_id: u64,
    is_stopped: Arc<AtomicBool>,
    /// When the router became unreachable, and why.
    router_lost: Option<(Instant, String)>,
    /// How long fetches wait for it.
    router_wait: Duration,
}

impl Fetches {
    pub(crate) fn new(
        new: Receiver<Fetch>,
        is_stopped: Arc<AtomicBool>,
        router_wait: Duration,
    ) -> Self {
        Self { new, open: HashMap::new(), next_id: 0, is_stopped, router_lost: None, router_wait }
    }
}

impl DownloadHost for Fetches {
    fn next(&mut self) -> Option<(DownloadId, Target)> {
        let mut fetch = self.new.try_iter().find(|fetch| !fetch.inbox.is_abandoned())?;
        let target = fetch.target.take()?;
        let id = DownloadId(self.next_id);
        self.next_id += 1;
        self.open.insert(id, fetch);
        Some((id, target))
    }

    fn config(&self, id: DownloadId) -> Option<ConsumerConfig> {
        self.open.get(&id).map(|fetch| fetch.config.clone())
    }

    fn output(&mut self, id: DownloadId, found: &Found) -> Result<Box<dyn Output>, String> {
        let fetch = &self.open[&id];
        fetch.inbox.set_from_local_store(found.is_from_local_store);
        let (inbox, range) = (fetch.inbox.clone(), fetch.range.clone());
        Ok(Box::new(ReaderOutput { inbox, range, from_newest: fetch.from_newest }))
    }

    fn on_ended(
        &mut self,
        id: DownloadId,
        result: Result<Summary, DownloadError>,
    ) -> Result<(), DownloadError> {
        let fetch = self.open.remove(&id).expect("the fetch is active");
        if result.as_ref().is_ok_and(|summary| summary.stats.has_unsigned_end) {
            fetch.inbox.set_unsigned_end();
        }
        fetch.inbox.set_end(result.map(drop).map_err(SocketError::from));
        Ok(())
    }

    fn trust(&mut self, id: DownloadId) -> &mut dyn Trust {
        &mut self.open.get_mut(&id).expect("the download is active").trust
    }

    fn progress(&mut self, _octets: u64) -> bool {
        true
    }

    fn on_path_changed(&mut self, _router: &FaceUri, error: Option<&ClientError>) {
        let reason = |error: &ClientError| match error {
            ClientError::Lost(reason) => reason.clone(),
            other => other.to_string(),
        };
        self.router_lost = error.map(|error| (Instant::now(), reason(error)));
    }

    fn check_allowed(&self, id: DownloadId) -> Result<(), DownloadError> {
        if self.open.get(&id).is_none_or(|fetch| fetch.inbox.is_abandoned()) {
            return Err(DownloadError::Stopped);
        }
        match &self.router_lost {
            Some((since, reason)) if since.elapsed() >= self.router_wait => {
                Err(ClientError::Lost(reason.clone()).into())
            }
            _ => Ok(()),
        }
    }

    fn may_get_more(&self) -> bool {
        !self.is_stopped.load(Ordering::Relaxed)
    }
}

/// Gives the packets of a range to a reader.
struct ReaderOutput {
    inbox: Arc<Inbox>,
    range: Range<u64>,
    from_newest: bool,
}

impl Output for ReaderOutput {
    fn is_quick(&self) -> bool {
        true
    }

    fn open(&mut self, metadata: &Metadata) -> Result<Opened, OutputError> {
        let Range { start, end } = self.range;
        let len = end.saturating_sub(start);
        let (segments, skip) = match metadata.segment_size.filter(|&size| size > 0) {
            Some(size) if len > 0 && !self.from_newest => {
                let end = if end == u64::MAX { end } else { end.div_ceil(size) };
                (start / size..end, start % size)
            }
            _ if self.from_newest => (metadata.newest_segment().unwrap_or(0)..u64::MAX, 0),
            // Only the segments show the offsets of bytes.
            _ if len > 0 => (0..u64::MAX, start),
            _ => (0..0, 0),
        };
        let (metadata, first_segment) = (metadata.clone(), segments.start);
        self.inbox.set_start(ObjectStart { metadata, first_segment, skip_bytes: skip, len });
        let reader = Box::new(InboxWriter(self.inbox.clone()));
        Ok(Opened::Reader { reader, segments, packets_max: self.inbox.capacity })
    }
}
