//! Downloads side by side on the connections of one client.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crossbeam_channel::Receiver;
use weir_base::{Instant, NS_PER_MS};
use weir_client::{
    Client, ClientError, Context, Endpoint, EventLoop, PathChange, PrefixMap, ReceivedPacket,
};
use weir_transport::{ConsumerConfig, Target};
use weir_wire::{DataView, InterestView};

use super::download::{Download, Hands};
use super::host::{DownloadError, DownloadId, Host, Summary};
use super::keeper::Keeper;
use super::notifier::Notifiers;
use super::verify_pool::{Report, Reporter, VerifyPool};

/// Whole files at most that wait for their names, each of them open.
const CLOSING_MAX: usize = 256;
/// How often progress is told.
const PROGRESS_NS: u64 = 100 * NS_PER_MS;

#[derive(Clone, Debug)]
pub struct DownloadOptions {
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

/// A download under way, and what is noted of it.
struct Active {
    download: Download,
    /// Its place in `due`.
    due: Option<Instant>,
    /// It is in `turns`.
    has_turn: bool,
    /// It is in `awaits_units`, or has been.
    has_asked_for_units: bool,
}

/// Those under way. What goes on with one of them is found without a look at the others: by the
/// name of a packet, by its time, or by the serial number that a thread reports.
pub(crate) struct Downloads<'a> {
    host: &'a mut dyn Host,
    options: DownloadOptions,
    pool: VerifyPool,
    keeper: Keeper,
    reports: Receiver<Report>,
    notifiers: Notifiers,
    notified: Receiver<u64>,
    /// By serial number, as all of the following. In boxes: nodes of the tree are half empty, and a
    /// download is large.
    active: BTreeMap<u64, Box<Active>>,
    by_prefix: PrefixMap<u64>,
    /// Those that wait for packets of other names.
    await_others: BTreeSet<u64>,
    due: BTreeSet<(Instant, u64)>,
    /// Those that have something to do now.
    turns: VecDeque<u64>,
    /// Those that need room for their segments.
    await_units: VecDeque<u64>,
    closing: BTreeMap<u64, Closing>,
    /// Those that a packet is for, kept for its memory.
    scratch: Vec<u64>,
    next_serial: u64,
    /// Units of those that are under way.
    units: u64,
    /// The host has nothing more to fetch for now.
    is_exhausted: bool,
    /// Octets of those that are not under way any more.
    octets: u64,
    told: Instant,
    error: Option<DownloadError>,
}

impl<'a> Downloads<'a> {
    pub(crate) fn new(
        client: &mut Client,
        options: DownloadOptions,
        host: &'a mut dyn Host,
    ) -> Result<Self, DownloadError> {
        let (reporter, reports) = Reporter::new(client.waker());
        let (notifiers, notified) = Notifiers::new(client.waker());
        let pool = VerifyPool::new(options.threads, &reporter).map_err(ClientError::from)?;
        let keeper = Keeper::new(reporter).map_err(ClientError::from)?;
        Ok(Self {
            host,
            options,
            pool,
            keeper,
            reports,
            notifiers,
            notified,
            active: BTreeMap::new(),
            by_prefix: PrefixMap::default(),
            await_others: BTreeSet::new(),
            due: BTreeSet::new(),
            turns: VecDeque::new(),
            await_units: VecDeque::new(),
            closing: BTreeMap::new(),
            scratch: Vec::new(),
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
        for serial in self.serials() {
            self.fail(serial, DownloadError::Stopped);
            self.settle(client, serial);
        }
        while !self.active.is_empty() || !self.closing.is_empty() {
            let report = self.reports.recv().expect("the threads run");
            if let Some(serial) = self.take_report(report, client) {
                self.settle(client, serial);
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
        target.prefixes().for_each(|prefix| self.by_prefix.add(&prefix, serial));
        let notifiers = self.notifiers.clone();
        let download = Download::new(client, id, target, fetch, serial, notifiers);
        let active =
            Box::new(Active { download, due: None, has_turn: false, has_asked_for_units: false });
        self.active.insert(serial, active);
        self.give_turn(serial);
    }

    /// Has one go on in this turn.
    fn give_turn(&mut self, serial: u64) {
        let active = self.active.get_mut(&serial).expect("it is under way");
        if !std::mem::replace(&mut active.has_turn, true) {
            self.turns.push_back(serial);
        }
    }

    /// Goes on as far as that is possible without anything new.
    fn turn(&mut self, client: &mut Client) {
        let now = client.now();
        while let Ok(report) = self.reports.try_recv() {
            if let Some(serial) = self.take_report(report, client) {
                self.give_turn(serial);
            }
        }
        while let Ok(serial) = self.notified.try_recv() {
            // It may have ended since.
            if self.active.contains_key(&serial) {
                self.give_turn(serial);
            }
        }
        if now >= self.told.plus_ns(PROGRESS_NS) {
            self.tell(now);
            self.drop_unwanted();
        }
        while let Some(&(at, serial)) = self.due.first().filter(|(at, _)| *at <= now) {
            self.due.remove(&(at, serial));
            self.active.get_mut(&serial).expect("it is under way").due = None;
            self.give_turn(serial);
        }
        loop {
            while let Some(serial) = self.turns.pop_front() {
                self.turn_one(client, serial);
            }
            self.give_units();
            self.admit(client);
            if self.turns.is_empty() {
                break;
            }
        }
    }

    fn turn_one(&mut self, client: &mut Client, serial: u64) {
        let active = self.active.get_mut(&serial).expect("it is under way");
        active.has_turn = false;
        let (host, pool, keeper) = (&mut *self.host, &self.pool, &self.keeper);
        active.download.turn(&mut Hands { client, host, pool, keeper });
        debug_assert!(active.download.is_settled(), "what it could do now would wait");
        self.settle(client, serial);
    }

    /// Notes what one waits for now, or takes it away if it is over.
    fn settle(&mut self, client: &Client, serial: u64) {
        let active = self.active.get_mut(&serial).expect("it is under way");
        if active.download.can_close() {
            return self.close(client, serial);
        }
        let due = active.download.next_wakeup();
        if due != active.due {
            let before = std::mem::replace(&mut active.due, due);
            before.map(|at| self.due.remove(&(at, serial)));
            self.due.extend(due.map(|at| (at, serial)));
        }
        if !active.has_asked_for_units && active.download.needs_units().is_some() {
            active.has_asked_for_units = true;
            self.await_units.push_back(serial);
        }
        match active.download.awaits_others() {
            true => self.await_others.insert(serial),
            false => self.await_others.remove(&serial),
        };
    }

    /// Starts what there is room for.
    fn admit(&mut self, client: &mut Client) {
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
    }

    /// Has those begin with their segments for which there is room.
    fn give_units(&mut self) {
        for serial in std::mem::take(&mut self.await_units) {
            // It may have ended since.
            let Some(active) = self.active.get_mut(&serial) else { continue };
            let Some(units) = active.download.needs_units() else { continue };
            let sum = self.units + u64::from(units);
            if self.units == 0 || sum <= self.options.units_max {
                self.units = sum;
                active.download.open(units, &self.pool);
                self.give_turn(serial);
            } else {
                self.await_units.push_back(serial);
            }
        }
    }

    /// Takes what a thread reports; the download that it concerns.
    fn take_report(&mut self, report: Report, client: &Client) -> Option<u64> {
        let (Report::Verified { serial, .. }
        | Report::Opened { serial, .. }
        | Report::Saved { serial, .. }
        | Report::Kept { serial, .. }) = report;
        if let Report::Kept { result, .. } = report {
            let Closing { id, result: ended, octets } =
                self.closing.remove(&serial).expect("it was closed once");
            self.end(id, octets, result.and(ended));
            return None;
        }
        let Some(active) = self.active.get_mut(&serial) else {
            unreachable!("it is not closed as long as threads have something of it")
        };
        let download = &mut active.download;
        match report {
            Report::Verified { verified, fault, .. } => download.verified(verified, fault),
            Report::Opened { output, result, .. } => download.opened(output, result),
            Report::Saved { output, .. } => download.saved(client.now(), output),
            Report::Kept { .. } => {}
        }
        Some(serial)
    }

    /// Takes one away that is over.
    fn close(&mut self, client: &Client, serial: u64) {
        let active = self.active.remove(&serial).expect("it is under way");
        let Active { download, due, has_turn, .. } = *active;
        due.map(|at| self.due.remove(&(at, serial)));
        self.await_others.remove(&serial);
        self.by_prefix.remove(serial);
        if has_turn {
            self.turns.retain(|&other| other != serial);
        }
        let (id, octets) = (download.id, download.octets_stored());
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

    fn end(&mut self, id: DownloadId, octets: u64, result: Result<Summary, DownloadError>) {
        self.octets += octets;
        if let Err(error) = self.host.ended(id, result) {
            self.error.get_or_insert(error);
        }
        self.is_exhausted = false;
    }

    fn drop_unwanted(&mut self) {
        for serial in self.serials() {
            if let Err(error) = self.host.may_go_on(self.active[&serial].download.id) {
                self.fail(serial, error);
                self.give_turn(serial);
            }
        }
    }

    fn fail(&mut self, serial: u64, error: DownloadError) {
        self.active.get_mut(&serial).expect("it is under way").download.fail(error);
    }

    fn tell(&mut self, now: Instant) {
        self.told = now;
        let under_way = self.active.values().map(|active| active.download.octets_stored());
        let closing = self.closing.values().map(|closing| closing.octets);
        let octets = under_way.chain(closing).sum::<u64>() + self.octets;
        if !self.host.progress(octets) {
            self.error.get_or_insert(DownloadError::Stopped);
        }
    }

    /// Gives a packet to those that may have asked for it.
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
        serials.extend(&self.await_others);
        serials.sort_unstable();
        serials.dedup();
        for serial in serials.drain(..) {
            self.receive(now, serial, packet.clone());
        }
        self.scratch = serials;
    }

    fn receive(&mut self, now: Instant, serial: u64, packet: ReceivedPacket) {
        let active = self.active.get_mut(&serial).expect("it is under way");
        active.download.receive(now, packet, self.host);
        self.give_turn(serial);
    }
}

impl Endpoint for Downloads<'_> {
    fn handle(&mut self, context: &mut Context<'_>, packets: &mut Vec<ReceivedPacket>) {
        let now = context.client.now();
        for packet in packets.drain(..) {
            self.dispatch(now, packet);
        }
        self.turn(context.client);
    }

    fn on_path_changed(&mut self, change: &PathChange, client: &Client) {
        let PathChange { path, error } = change;
        self.host.path_changed(client.uri_of(*path), error.as_ref());
        for serial in self.serials() {
            let active = self.active.get_mut(&serial).expect("it is under way");
            let is_local = client.is_local_at(*path);
            active.download.set_path(*path, is_local, error.is_none(), client.now());
            self.give_turn(serial);
        }
    }

    fn next_wakeup(&self) -> Option<Instant> {
        let is_idle = self.active.is_empty() && self.closing.is_empty();
        let tick = (!is_idle).then(|| self.told.plus_ns(PROGRESS_NS));
        let due = self.due.first().map(|&(at, _)| at);
        [due, tick, self.host.next_at()].into_iter().flatten().min()
    }

    fn is_done(&self) -> bool {
        let is_idle = self.active.is_empty() && self.closing.is_empty();
        self.error.is_some() || (is_idle && self.is_exhausted && !self.host.is_open())
    }
}
