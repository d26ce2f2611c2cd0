//! Downloads side by side on the connections of one client.

use std::collections::BTreeMap;

use crossbeam_channel::Receiver;
use weir_base::{Instant, NS_PER_MS};
use weir_transport::{ConsumerConfig, Target};
use weir_wire::{DataView, InterestView};

use crate::client::Client;
use crate::download::{Download, Hands};
use crate::event_loop::{Context, Endpoint, EventLoop};
use crate::host::{DownloadError, DownloadId, Host, Summary};
use crate::keeper::Keeper;
use crate::paths::{ClientError, FromRouter, PathChange};
use crate::verify_pool::{Report, Reporter, VerifyPool};

/// Whole files at most that wait for their names, each of them open.
const CLOSING_MAX: usize = 256;
/// How often progress is told.
const PROGRESS_NS: u64 = 100 * NS_PER_MS;

/// How to download.
#[derive(Clone, Debug)]
pub struct DownloadOptions {
    /// How to fetch.
    pub fetch: ConsumerConfig,
    /// Threads that verify and store.
    pub threads: usize,
    /// Downloads under way at a time.
    pub side_by_side: usize,
    /// Units under way at most in all downloads together: a larger object waits for others to end,
    /// many small ones go on.
    pub units_max: u64,
}

impl Default for DownloadOptions {
    fn default() -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let fetch = ConsumerConfig::default();
        Self { fetch, threads: threads.min(8), side_by_side: 64, units_max: 1 << 14 }
    }
}

/// Fetches everything that `host` names, several objects at a time, until it names
/// no more and all have ended. Every segment is verified and stored where the host says.
///
/// # Errors
/// What ended them all: the router is gone, or the host wants no more.
pub fn download(
    client: &mut Client,
    options: DownloadOptions,
    host: &mut dyn Host,
) -> Result<(), DownloadError> {
    Downloads::new(client, options, host)?.run(client)
}

/// A download that has all it needs, or never will.
struct Closing {
    id: DownloadId,
    result: Result<Summary, DownloadError>,
    octets: u64,
}

pub(crate) struct Downloads<'a> {
    host: &'a mut dyn Host,
    options: DownloadOptions,
    pool: VerifyPool,
    keeper: Keeper,
    reports: Receiver<Report>,
    active: Vec<Download>,
    /// By serial number.
    closing: BTreeMap<u64, Closing>,
    next_serial: u64,
    /// Units of those that are under way.
    units: u64,
    /// The host has nothing more to fetch for now.
    is_exhausted: bool,
    /// Octets of those that are not under way any more.
    octets: u64,
    told: Instant,
    /// Why all are to end.
    error: Option<DownloadError>,
}

impl<'a> Downloads<'a> {
    pub(crate) fn new(
        client: &mut Client,
        options: DownloadOptions,
        host: &'a mut dyn Host,
    ) -> Result<Self, DownloadError> {
        let (reporter, reports) = Reporter::new(client.waker());
        let pool = VerifyPool::new(options.threads, &reporter).map_err(ClientError::from)?;
        let keeper = Keeper::new(reporter).map_err(ClientError::from)?;
        Ok(Self {
            host,
            options,
            pool,
            keeper,
            reports,
            active: Vec::new(),
            closing: BTreeMap::new(),
            next_serial: 0,
            units: 0,
            is_exhausted: false,
            octets: 0,
            told: client.now(),
            error: None,
        })
    }

    /// Runs until all have ended.
    fn run(&mut self, client: &mut Client) -> Result<(), DownloadError> {
        let mut events = EventLoop::new(client);
        events.add(&mut *self);
        let result = events.run(&mut || true);
        drop(events);
        let error = self.error.take().or(result.err().map(DownloadError::from));
        let Some(error) = error else { return Ok(()) };
        // A connection that ends after the last packet has lost nothing.
        let open = self.active.iter_mut();
        open.for_each(|download| download.fail(DownloadError::Stopped));
        self.close(client);
        while !self.active.is_empty() || !self.closing.is_empty() {
            let report = self.reports.recv().expect("the threads run");
            self.take_report(report, client);
            self.close(client);
        }
        Err(error)
    }

    fn start(&mut self, client: &mut Client, id: DownloadId, target: Target) {
        let fetch = self.host.config(id).unwrap_or_else(|| self.options.fetch.clone());
        self.next_serial += 1;
        self.active.push(Download::new(client, (id, target), fetch, self.next_serial));
    }

    /// Goes on as far as that is possible without anything new.
    fn turn(&mut self, client: &mut Client) {
        let now = client.now();
        let is_tick = now >= self.told.plus_ns(PROGRESS_NS);
        while let Ok(report) = self.reports.try_recv() {
            self.take_report(report, client);
        }
        if is_tick {
            self.tell(now);
            self.drop_unwanted();
        }
        loop {
            let hands =
                &mut Hands { client, host: self.host, pool: &self.pool, keeper: &self.keeper };
            for download in &mut self.active {
                let is_due = || download.next_wakeup().is_some_and(|at| at <= now);
                if is_tick || download.has_news() || is_due() {
                    download.turn(hands);
                }
            }
            self.close(client);
            let has_opened = self.give_units(client);
            if !self.admit(client) && !has_opened {
                break;
            }
        }
        // Nothing waits for the next tick that could go on now.
        debug_assert!(self.active.iter().all(Download::is_settled));
    }

    /// Starts what there is room for; tells whether anything was started.
    fn admit(&mut self, client: &mut Client) -> bool {
        let before = self.active.len();
        self.is_exhausted = false;
        while !self.is_exhausted
            && self.error.is_none()
            && self.active.len() < self.options.side_by_side
            && self.closing.len() < CLOSING_MAX
        {
            match self.host.next() {
                Some((id, target)) => self.start(client, id, target),
                None => self.is_exhausted = true,
            }
        }
        self.active.len() > before
    }

    /// Has those begin with their segments for which there is room; tells whether any can go on at
    /// once.
    fn give_units(&mut self, client: &Client) -> bool {
        let mut has_opened = false;
        for download in &mut self.active {
            let Some(units) = download.needs_units() else { continue };
            let sum = self.units + u64::from(units);
            if self.units == 0 || sum <= self.options.units_max {
                self.units = sum;
                download.open(units, &self.pool, client);
                has_opened |= download.has_news();
            }
        }
        has_opened
    }

    fn take_report(&mut self, report: Report, client: &Client) {
        let (Report::Verified { serial, .. }
        | Report::Opened { serial, .. }
        | Report::Saved { serial, .. }
        | Report::Kept { serial, .. }) = report;
        if let Report::Kept { result, .. } = report {
            let Closing { id, result: ended, octets } =
                self.closing.remove(&serial).expect("it was closed once");
            return self.end(id, octets, result.and(ended));
        }
        // It is not closed as long as threads have something of it.
        let download = self.active.iter_mut().find(|download| download.serial == serial);
        let download = download.expect("it is under way");
        match report {
            Report::Verified { verified, fault, .. } => download.verified(verified, fault),
            Report::Opened { output, result, .. } => download.opened(output, result, client),
            Report::Saved { output, .. } => download.saved(client.now(), output),
            Report::Kept { .. } => {}
        }
    }

    /// Takes away those that are over.
    fn close(&mut self, client: &Client) {
        let mut at = 0;
        while at < self.active.len() {
            if !self.active[at].can_close() {
                at += 1;
                continue;
            }
            let download = self.active.swap_remove(at);
            let (id, serial, octets) = (download.id, download.serial, download.octets_stored());
            self.units -= u64::from(download.units());
            let (result, keep) = download.close(client.now());
            match keep {
                Some(keep) => {
                    self.closing.insert(serial, Closing { id, result, octets });
                    self.keeper.submit(keep);
                }
                None => self.end(id, octets, result),
            }
        }
    }

    fn end(&mut self, id: DownloadId, octets: u64, result: Result<Summary, DownloadError>) {
        self.octets += octets;
        if let Err(error) = self.host.ended(id, result) {
            self.error.get_or_insert(error);
        }
        self.is_exhausted = false;
    }

    fn drop_unwanted(&mut self) {
        for download in &mut self.active {
            if let Err(error) = self.host.may_go_on(download.id) {
                download.fail(error);
            }
        }
    }

    fn tell(&mut self, now: Instant) {
        self.told = now;
        let under_way = self.active.iter().map(Download::octets_stored);
        let closing = self.closing.values().map(|closing| closing.octets);
        let octets = under_way.chain(closing).sum::<u64>() + self.octets;
        if !self.host.progress(octets) {
            self.error.get_or_insert(DownloadError::Stopped);
        }
    }

    /// Gives a packet to those that may have asked for it.
    fn dispatch(&mut self, now: Instant, packet: FromRouter) {
        if let [download] = &mut self.active[..] {
            return download.receive(now, packet, self.host);
        }
        let name = match packet.header.nack {
            Some(_) => InterestView::decode(&packet.packet).map(|interest| interest.name),
            None => DataView::decode(&packet.packet).map(|data| data.name),
        };
        let Ok(name) = name else { return };
        for download in &mut self.active {
            if download.expects(name.value()) {
                download.receive(now, packet.clone(), self.host);
            }
        }
    }
}

impl Endpoint for Downloads<'_> {
    fn handle(&mut self, context: &mut Context<'_>, packets: &mut Vec<FromRouter>) {
        let now = context.client.now();
        for packet in packets.drain(..) {
            self.dispatch(now, packet);
        }
        self.turn(context.client);
    }

    fn path_changed(&mut self, change: &PathChange, client: &Client) {
        let PathChange { path, error } = change;
        self.host.path_changed(client.uri_of(*path), error.as_ref());
        for download in &mut self.active {
            download.set_path(*path, error.is_none(), client.now());
        }
    }

    fn next_wakeup(&self) -> Option<Instant> {
        let wakeups = self.active.iter().filter_map(Download::next_wakeup);
        let is_idle = self.active.is_empty() && self.closing.is_empty();
        wakeups.chain((!is_idle).then(|| self.told.plus_ns(PROGRESS_NS))).min()
    }

    fn is_done(&self) -> bool {
        let is_idle = self.active.is_empty() && self.closing.is_empty();
        self.error.is_some() || (is_idle && self.is_exhausted && !self.host.is_open())
    }
}
