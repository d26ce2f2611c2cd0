//! Concurrent downloads over the connections of one client.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crossbeam_channel::Receiver;
use weir_base::{Instant, NS_PER_MS};
use weir_client::{
    Client, ClientError, Context, Endpoint, EventLoop, PathChange, PrefixMap, ReceivedPacket,
};
use weir_transport::{ConsumerConfig, Target};
use weir_wire::{DataView, InterestView};

use super::download::{Download, DownloadServices};
use super::durability::DurabilityThread;
use super::host::{DownloadError, DownloadHost, DownloadId, Summary};
use super::notifier::Notifiers;
use super::spans::DownloadSpans;
use super::verify_pool::{PoolReport, Reporter, VerifyPool};

/// Upper bound of complete files that wait for their names. Each of them is open.
const CLOSING_DOWNLOADS_MAX: usize = 256;
/// How often progress is reported.
const PROGRESS_NS: u64 = 100 * NS_PER_MS;

#[derive(Clone, Debug)]
pub struct DownloadOptions {
    pub fetch: ConsumerConfig,
    /// Threads that verify and store.
    pub threads: usize,
    /// Upper bound of concurrent downloads.
    pub concurrent_max: usize,
    /// Upper bound of segments in memory for all downloads together. A larger object waits until
    /// others end; many small ones continue.
    pub segments_max: u64,
}

impl Default for DownloadOptions {
    fn default() -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let fetch = ConsumerConfig::default();
        Self { fetch, threads: threads.min(8), concurrent_max: 64, segments_max: 1 << 14 }
    }
}

/// Fetches every object that `host` names, several at once, until it names no more and all have
/// ended. Verifies each segment and stores it where the host says.
///
/// # Errors
/// The error that ended all downloads: the router is gone, or the host stopped them.
pub fn download(
    client: &mut Client,
    options: DownloadOptions,
    host: &mut dyn DownloadHost,
) -> Result<(), DownloadError> {
    Downloads::new(client, options, host)?.run(client)
}

/// A download that has ended, except for its file.
struct ClosingDownload {
    id: DownloadId,
    result: Result<Summary, DownloadError>,
    octets: u64,
    spans: DownloadSpans,
}

/// A download in progress, and its scheduling state.
struct ActiveDownload {
    download: Download,
    /// Its entry in `by_wakeup`.
    wakeup: Option<Instant>,
    /// It is in `run_queue`.
    is_queued: bool,
    /// It is in `awaiting_segments`, or has been.
    has_requested_segments: bool,
}

/// The downloads in progress. Finds the one concerned without touching the others: by a packet's
/// name, by its time, or by the serial number in a thread's report.
pub(crate) struct Downloads<'a> {
    host: &'a mut dyn DownloadHost,
    options: DownloadOptions,
    pool: VerifyPool,
    durability: DurabilityThread,
    reports: Receiver<PoolReport>,
    notifiers: Notifiers,
    notifications: Receiver<u64>,
    /// By serial number, like all following fields. Boxed: nodes of the tree are half empty, and a
    /// download is large.
    active: BTreeMap<u64, Box<ActiveDownload>>,
    by_prefix: PrefixMap<u64>,
    /// Downloads that wait for packets with other names.
    awaiting_foreign: BTreeSet<u64>,
    by_wakeup: BTreeSet<(Instant, u64)>,
    /// Downloads that can proceed now.
    run_queue: VecDeque<u64>,
    /// Downloads that need a grant for their segments.
    awaiting_segments: VecDeque<u64>,
    closing: BTreeMap<u64, ClosingDownload>,
    /// The receivers of a packet. A field, so that its memory is reused.
    scratch: Vec<u64>,
    next_serial: u64,
    /// Segments granted to downloads in progress.
    granted_segments: u64,
    /// The host has nothing more to fetch at present.
    is_exhausted: bool,
    /// Bytes of ended downloads.
    finished_bytes: u64,
    progress_reported_at: Instant,
    error: Option<DownloadError>,
}

impl<'a> Downloads<'a> {
    pub(crate) fn new(
        client: &mut Client,
        options: DownloadOptions,
        host: &'a mut dyn DownloadHost,
    ) -> Result<Self, DownloadError> {
        let (reporter, reports) = Reporter::new(client.waker());
        let (notifiers, notified) = Notifiers::new(client.waker());
        let pool = VerifyPool::new(options.threads, &reporter).map_err(ClientError::from)?;
        let durability = DurabilityThread::new(reporter).map_err(ClientError::from)?;
        Ok(Self {
            host,
            options,
            pool,
            durability,
            reports,
            notifiers,
            notifications: notified,
            active: BTreeMap::new(),
            by_prefix: PrefixMap::default(),
            awaiting_foreign: BTreeSet::new(),
            by_wakeup: BTreeSet::new(),
            run_queue: VecDeque::new(),
            awaiting_segments: VecDeque::new(),
            closing: BTreeMap::new(),
            scratch: Vec::new(),
            next_serial: 0,
            granted_segments: 0,
            is_exhausted: false,
            finished_bytes: 0,
            progress_reported_at: client.now(),
            error: None,
        })
    }

    /// Runs until all downloads have ended.
    fn run(&mut self, client: &mut Client) -> Result<(), DownloadError> {
        let mut events = EventLoop::new(client);
        events.add(&mut *self);
        let result = events.run(&mut || true);
        drop(events);
        let error = self.error.take().or(result.err().map(DownloadError::from));
        let Some(error) = error else { return Ok(()) };
        // Downloads that have received everything still succeed: `fail` does not change them.
        for serial in self.serials() {
            self.fail(serial, DownloadError::Stopped);
            self.update_wait(client, serial);
        }
        while !self.active.is_empty() || !self.closing.is_empty() {
            let report = self.reports.recv().expect("the threads run");
            if let Some(serial) = self.take_report(report, client) {
                self.update_wait(client, serial);
            }
        }
        Err(error)
    }

    fn serials(&self) -> Vec<u64> {
        self.active.keys().copied().collect()
    }

    fn start(&mut self, client: &mut Client, id: DownloadId, target: Target) {
        let fetch = self.host.config(id).unwrap_or_else(|| self.options.fetch.clone());
        self.next_serial += 1;
        let serial = self.next_serial;
        target.prefixes(fetch.mapping).for_each(|prefix| self.by_prefix.add(&prefix, serial));
        let notifiers = self.notifiers.clone();
        let download = Download::new(client, id, target, fetch, serial, notifiers);
        let active = Box::new(ActiveDownload {
            download,
            wakeup: None,
            is_queued: false,
            has_requested_segments: false,
        });
        self.active.insert(serial, active);
        self.enqueue(serial);
    }

    /// Queues a download for this turn.
    fn enqueue(&mut self, serial: u64) {
        let active = self.active.get_mut(&serial).expect("the download is active");
        if !std::mem::replace(&mut active.is_queued, true) {
            self.run_queue.push_back(serial);
        }
    }

    /// Does everything that is possible without new input.
    fn run_once(&mut self, client: &mut Client) {
        let now = client.now();
        while let Ok(report) = self.reports.try_recv() {
            if let Some(serial) = self.take_report(report, client) {
                self.enqueue(serial);
            }
        }
        while let Ok(serial) = self.notifications.try_recv() {
            // It may have ended since.
            if self.active.contains_key(&serial) {
                self.enqueue(serial);
            }
        }
        if now >= self.progress_reported_at.plus_ns(PROGRESS_NS) {
            self.report_progress(now);
            self.drop_unwanted_downloads();
        }
        while let Some(&(at, serial)) = self.by_wakeup.first().filter(|(at, _)| *at <= now) {
            self.by_wakeup.remove(&(at, serial));
            self.active.get_mut(&serial).expect("the download is active").wakeup = None;
            self.enqueue(serial);
        }
        // Downloads that end make room for others, which may end at once. Repeats until no download
        // is left to run.
        loop {
            while let Some(serial) = self.run_queue.pop_front() {
                self.run_download(client, serial);
            }
            self.grant_segments();
            self.admit(client);
            if self.run_queue.is_empty() {
                break;
            }
        }
    }

    fn run_download(&mut self, client: &mut Client, serial: u64) {
        let active = self.active.get_mut(&serial).expect("the download is active");
        active.is_queued = false;
        let (host, pool, durability) = (&mut *self.host, &self.pool, &self.durability);
        active.download.advance(&mut DownloadServices { client, host, pool, durability });
        debug_assert!(active.download.is_idle(), "possible work would be delayed");
        self.update_wait(client, serial);
    }

    /// Updates the events that a download waits for, or removes it if it has ended.
    fn update_wait(&mut self, client: &Client, serial: u64) {
        let active = self.active.get_mut(&serial).expect("the download is active");
        if active.download.can_close() {
            return self.close(client, serial);
        }
        if let Some(prefix) = active.download.take_new_prefix() {
            self.by_prefix.add(&prefix, serial);
        }
        let due = active.download.next_wakeup();
        if due != active.wakeup {
            let before = std::mem::replace(&mut active.wakeup, due);
            before.map(|at| self.by_wakeup.remove(&(at, serial)));
            self.by_wakeup.extend(due.map(|at| (at, serial)));
        }
        if !active.has_requested_segments && active.download.needed_segments().is_some() {
            active.has_requested_segments = true;
            self.awaiting_segments.push_back(serial);
        }
        match active.download.awaits_foreign_packets() {
            true => self.awaiting_foreign.insert(serial),
            false => self.awaiting_foreign.remove(&serial),
        };
    }

    /// Starts downloads while there is room.
    fn admit(&mut self, client: &mut Client) {
        // The host may have new objects since the last call.
        self.is_exhausted = false;
        while !self.is_exhausted
            && self.error.is_none()
            && self.active.len() < self.options.concurrent_max
            && self.closing.len() < CLOSING_DOWNLOADS_MAX
        {
            match self.host.next() {
                Some((id, target)) => self.start(client, id, target),
                None => self.is_exhausted = true,
            }
        }
    }

    /// Grants segments to waiting downloads while the budget lasts.
    fn grant_segments(&mut self) {
        for serial in std::mem::take(&mut self.awaiting_segments) {
            // It may have ended since.
            let Some(active) = self.active.get_mut(&serial) else { continue };
            let Some(units) = active.download.needed_segments() else { continue };
            let total = self.granted_segments + u64::from(units);
            // An object larger than the whole budget runs when no other holds segments.
            if self.granted_segments == 0 || total <= self.options.segments_max {
                self.granted_segments = total;
                active.download.open(units, &self.pool);
                self.enqueue(serial);
            } else {
                self.awaiting_segments.push_back(serial);
            }
        }
    }

    /// Takes a thread's report. Returns the download that it concerns.
    fn take_report(&mut self, report: PoolReport, client: &Client) -> Option<u64> {
        let (PoolReport::Verified { serial, .. }
        | PoolReport::Opened { serial, .. }
        | PoolReport::Saved { serial, .. }
        | PoolReport::Finished { serial, .. }) = report;
        if let PoolReport::Finished { result, .. } = report {
            let mut closing = self.closing.remove(&serial).expect("closed exactly once");
            closing.result = result.and(closing.result);
            self.end(closing);
            return None;
        }
        let Some(active) = self.active.get_mut(&serial) else {
            unreachable!("not closed while threads work for it")
        };
        let download = &mut active.download;
        match report {
            PoolReport::Verified { verified, fault, .. } => download.on_verified(verified, fault),
            PoolReport::Opened { output, result, .. } => download.on_opened(output, result),
            PoolReport::Saved { output, .. } => download.on_saved(client.now(), output),
            PoolReport::Finished { .. } => {}
        }
        Some(serial)
    }

    /// Removes a download that has ended.
    fn close(&mut self, client: &Client, serial: u64) {
        let active = self.active.remove(&serial).expect("the download is active");
        let ActiveDownload { download, wakeup, is_queued, .. } = *active;
        wakeup.map(|at| self.by_wakeup.remove(&(at, serial)));
        self.awaiting_foreign.remove(&serial);
        self.by_prefix.remove(serial);
        if is_queued {
            self.run_queue.retain(|&other| other != serial);
        }
        let (id, octets) = (download.id, download.octets_stored());
        self.granted_segments -= u64::from(download.granted_segments());
        let mut spans = download.spans();
        let (result, task) = download.close(client.now(), self.host.trust(id));
        spans.closing(&result);
        let closing = ClosingDownload { id, result, octets, spans };
        match task {
            Some(task) => {
                self.closing.insert(serial, closing);
                self.durability.submit(task);
            }
            None => self.end(closing),
        }
    }

    fn end(&mut self, closing: ClosingDownload) {
        let ClosingDownload { id, result, octets, spans } = closing;
        spans.end(&result);
        self.finished_bytes += octets;
        if let Err(error) = self.host.on_ended(id, result) {
            self.error.get_or_insert(error);
        }
        self.is_exhausted = false;
    }

    fn drop_unwanted_downloads(&mut self) {
        for serial in self.serials() {
            if let Err(error) = self.host.check_allowed(self.active[&serial].download.id) {
                self.fail(serial, error);
                self.enqueue(serial);
            }
        }
    }

    fn fail(&mut self, serial: u64, error: DownloadError) {
        self.active.get_mut(&serial).expect("the download is active").download.fail(error);
    }

    fn report_progress(&mut self, now: Instant) {
        self.progress_reported_at = now;
        let under_way = self.active.values().map(|active| active.download.octets_stored());
        let closing = self.closing.values().map(|closing| closing.octets);
        let octets = under_way.chain(closing).sum::<u64>() + self.finished_bytes;
        if !self.host.progress(octets) {
            self.error.get_or_insert(DownloadError::Stopped);
        }
    }

    /// Gives a packet to the downloads that may have requested it.
    fn dispatch(&mut self, now: Instant, packet: ReceivedPacket) {
        if self.active.len() == 1 {
            let (&serial, _) = self.active.first_key_value().expect("there is one");
            return self.receive(now, serial, packet);
        }
        let name = match packet.header.nack {
            Some(_) => InterestView::decode(&packet.packet).map(|interest| interest.name),
            None => DataView::decode(&packet.packet).map(|data| data.name),
        };
        let Ok(name) = name else { return };
        let mut serials = std::mem::take(&mut self.scratch);
        serials.extend(self.by_prefix.matches(name));
        serials.extend(&self.awaiting_foreign);
        serials.sort_unstable();
        serials.dedup();
        for serial in serials.drain(..) {
            self.receive(now, serial, packet.clone());
        }
        self.scratch = serials;
    }

    fn receive(&mut self, now: Instant, serial: u64, packet: ReceivedPacket) {
        let active = self.active.get_mut(&serial).expect("the download is active");
        active.download.receive(now, packet, self.host);
        self.enqueue(serial);
    }
}

impl Endpoint for Downloads<'_> {
    fn handle(&mut self, context: &mut Context<'_>, packets: &mut Vec<ReceivedPacket>) {
        let now = context.client.now();
        for packet in packets.drain(..) {
            self.dispatch(now, packet);
        }
        self.run_once(context.client);
    }

    fn on_path_changed(&mut self, change: &PathChange, client: &Client) {
        let PathChange { path, error } = change;
        self.host.on_path_changed(client.uri_of(*path), error.as_ref());
        for serial in self.serials() {
            let active = self.active.get_mut(&serial).expect("the download is active");
            let is_local = client.is_local_at(*path);
            active.download.on_path_changed(*path, is_local, error.is_none(), client.now());
            self.enqueue(serial);
        }
    }

    fn next_wakeup(&self) -> Option<Instant> {
        let is_idle = self.active.is_empty() && self.closing.is_empty();
        let tick = (!is_idle).then(|| self.progress_reported_at.plus_ns(PROGRESS_NS));
        let due = self.by_wakeup.first().map(|&(at, _)| at);
        [due, tick, self.host.next_retry_at()].into_iter().flatten().min()
    }

    fn is_done(&self) -> bool {
        let is_idle = self.active.is_empty() && self.closing.is_empty();
        self.error.is_some() || (is_idle && self.is_exhausted && !self.host.may_get_more())
    }
}
