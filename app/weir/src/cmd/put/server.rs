//! Serves the published objects until a signal.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::time::Duration;

use anyhow::{Context, bail};
use weir_client::{Client, Inheritance};
use weir_hicn::HicnName;
use weir_socket::{ServeProblem, serve};
use weir_transport::Metadata;
use weir_wire::{DataView, Interest, Name};

use super::announcement::{Announcement, fail_if_unpublished};
use super::handover::PrefixRegistration;
use super::served::{Registration, Served};
use crate::table::{count, errln, octets};
use crate::transfer::{RouterArgs, Stop};

/// Pauses between attempts to reconnect to the router. The first attempt is immediate: the service
/// manager may keep the socket of a router that restarts.
const RECONNECT_PAUSE_FIRST: Duration = Duration::from_millis(50);
const RECONNECT_PAUSE_MAX: Duration = Duration::from_millis(500);
/// How long to wait for another producer of the same name. Without a route, the router sends a Nack
/// immediately.
const OTHER_PRODUCER_WAIT_MS: u64 = 400;
/// Number of names that are probed for other producers.
const NAMES_PROBED_MAX: usize = 4;
/// Suffixes with this bit name no segment: an object has at most 2^30.
const SUFFIX_OF_NO_SEGMENT: u32 = 1 << 31;

/// The serving thread.
pub(super) struct Server<'a> {
    pub(super) router: &'a RouterArgs,
    pub(super) announcement: Announcement<'a>,
    pub(super) served: Served,
    pub(super) stop: &'a Stop,
    /// Names to register while serving, from the handover of other processes.
    pub(super) registrations: Option<Receiver<PrefixRegistration>>,
}

impl Server<'_> {
    /// Serves while another thread runs `publish`, which returns the number of entries that could
    /// not be published.
    pub(super) fn run_with_publisher(
        &mut self,
        mut client: Client,
        publish: impl FnOnce() -> usize + Send,
        is_over: &AtomicBool,
    ) -> anyhow::Result<()> {
        self.warn_of_other_producers(&mut client);
        self.register(&mut client)?;
        self.announcement.print(&self.served)?;
        std::thread::scope(|scope| {
            let publishing = scope.spawn(publish);
            let result = self.serve(client);
            is_over.store(true, Ordering::Relaxed);
            let failures = publishing.join().expect("it does not panic");
            result.and_then(|()| fail_if_unpublished(failures))
        })
    }

    /// Warns if another producer already serves a name, as consumers would get the content of
    /// either one.
    fn warn_of_other_producers(&self, client: &mut Client) {
        let Announcement { mapping, name, .. } = &self.announcement;
        let names: Vec<&Name> = match self.served.registration {
            Registration::Names => self.served.names.iter().take(NAMES_PROBED_MAX).collect(),
            // Only the names of the objects identify their producer.
            Registration::Addresses | Registration::SharedPrefix => name.iter().copied().collect(),
        };
        for name in names {
            let name = name.as_view();
            let interest = match HicnName::address_of(name).filter(|_| mapping.is_direct(name)) {
                // An address has no metadata. Segments stay fresh in stores after their producer
                // has ended, so request a segment that no object has. Its producer denies it.
                Some(address) => {
                    let suffix = client.random_u64() as u32 | SUFFIX_OF_NO_SEGMENT;
                    Interest::new(HicnName { address, suffix }.to_name())
                }
                None => {
                    let (metadata, is_prefix) = mapping.metadata_interest(name);
                    Interest::new(metadata).can_be_prefix(is_prefix)
                }
            };
            let interest = interest.must_be_fresh(true).lifetime_ms(OTHER_PRODUCER_WAIT_MS);
            let Ok(found) = client.express(&interest.encode()) else { continue };
            let Ok(data) = DataView::decode(&found.packet) else { continue };
            let what = match Metadata::decode(data.content) {
                Ok(metadata) => format!(" ({})", metadata.versioned),
                Err(_) if mapping.is_direct(name) => String::new(),
                // The answer may say that the object does not exist.
                Err(_) => continue,
            };
            errln!(
                "weir: another producer already serves {name}{what}, so consumers may get either \
                 content; stop one of them, or choose another name"
            );
        }
    }

    fn serve(&mut self, mut client: Client) -> anyhow::Result<()> {
        let (mut lost, mut registration) = (None, None);
        // `serve` borrows the store and the client, so it returns for each registration.
        while lost.is_none() {
            let served = {
                let registrations = self.registrations.as_ref();
                let mut take_losses =
                    loss_reporter(self.stop, self.served.is_single_file(), &mut lost);
                let mut should_continue = |losses| {
                    registration = registrations.and_then(|names| names.try_recv().ok());
                    take_losses(losses) && registration.is_none()
                };
                serve(&mut client, &mut self.served.store, &mut should_continue)
            };
            if let Some((names, done)) = registration.take() {
                // Fails if the waiting thread has timed out.
                let _ = done.send(self.register_more(&mut client, names));
                if served.is_ok() && lost.is_none() && !self.stop.is_set() {
                    continue;
                }
            }
            let Err(error) = served else { break };
            errln!("weir: {error}; reconnecting to the router");
            let Some(connected) = self.reconnect() else { break };
            client = connected;
            errln!("weir: serving again");
        }
        self.unregister(&mut client);
        if let Some(loss) = lost {
            bail!("{loss}; run the command again to sign and serve the current content");
        }
        if !self.announcement.json {
            let stats = self.served.store.stats();
            errln!("sent {} ({})", count(stats.data, "Data", "Data"), octets(stats.octets));
        }
        if let unread @ 1.. = self.served.store.unread() {
            let packets = count(unread, "packet", "packets");
            errln!("weir: {packets} of the repository could not be read");
        }
        if let damaged @ 1.. = self.served.store.damaged() {
            errln!(
                "weir: {} not sent",
                count(damaged, "damaged packet was", "damaged packets were")
            );
        }
        Ok(())
    }

    fn register(&self, client: &mut Client) -> anyhow::Result<()> {
        // Another producer, such as one of a file, may have longer prefixes below a shared one.
        let inheritance = if self.served.registration == Registration::SharedPrefix {
            Inheritance::Longest
        } else {
            Inheritance::Inherited
        };
        for name in &self.served.names {
            client.register_prefix_with(name, inheritance).with_context(|| {
                format!("cannot register {name} with the router at {}", client.uri())
            })?;
        }
        for name in self.served.key_names() {
            // Optional: the metadata also carries the certificate.
            let _ = client.register_prefix(name);
        }
        Ok(())
    }

    /// Registers the names of objects from a handover.
    fn register_more(&mut self, client: &mut Client, names: Vec<Name>) -> Result<(), String> {
        for name in names {
            let is_above = |above: &Name| above.as_view().is_prefix_of(name.as_view());
            if self.served.names.iter().any(is_above) {
                continue;
            }
            let registered = client.register_prefix(&name);
            // Keep the name even if this fails: a reconnect registers all names again.
            self.served.names.push(name.clone());
            self.served.store.own_prefix(&name);
            registered.map_err(|error| format!("cannot register {name}: {error}"))?;
        }
        Ok(())
    }

    /// Unregisters all names. Weir and NFD remove the routes with the connection; other routers may
    /// not.
    fn unregister(&self, client: &mut Client) {
        for name in self.served.names.iter().chain(self.served.key_names()) {
            let _ = client.unregister_prefix(name);
        }
    }

    fn reconnect(&self) -> Option<Client> {
        let mut pause = RECONNECT_PAUSE_FIRST;
        while !self.stop.is_set() {
            if let Ok(mut client) = self.router.connect()
                && self.register(&mut client).is_ok()
            {
                return Some(client);
            }
            std::thread::sleep(pause);
            pause = (2 * pause).min(RECONNECT_PAUSE_MAX);
        }
        None
    }
}

/// Returns a function that reports lost content. If a single file is served, its loss ends the
/// command; a damaged or unreadable packet of a repository does not.
fn loss_reporter<'a>(
    stop: &'a Stop,
    is_lone_file: bool,
    lost: &'a mut Option<ServeProblem>,
) -> impl FnMut(Vec<ServeProblem>) -> bool + 'a {
    move |losses| {
        for loss in losses {
            match loss {
                ServeProblem::Damaged { .. } => {
                    errln!("weir: {loss}; it is not served. Put the file again");
                }
                ServeProblem::Unreadable { .. } | ServeProblem::BucketUnreachable { .. } => {
                    errln!("weir: {loss}; trying again at the next request");
                }
                ServeProblem::BucketReachable { .. } => errln!("weir: {loss}"),
                loss if is_lone_file => *lost = Some(loss),
                loss => errln!("weir: {loss}; it is no longer served"),
            }
        }
        !stop.is_set() && lost.is_none()
    }
}
