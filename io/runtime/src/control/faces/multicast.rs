//! Multicast faces: one on each network device that can multicast, for each address family. They
//! follow the devices of this host (NFD fe044ce, `UdpFactory::applyMcastConfigToNetif`).

use std::collections::BTreeMap;

use mio::{Interest, Registry, Token};
use weir_base::{FaceId, Instant, NS_PER_MS};
use weir_face::{InterfaceWatch, NetworkInterface, Socket};
use weir_link::RunsConfig;
use weir_manage::FacePersistency;

use super::Faces;
use crate::config::MulticastConfig;
use crate::face_quota::Claimant;
use crate::rate_limited_log::RateLimitedLog;

/// A change of a device causes several notifications. The devices are listed this long after the
/// first one.
const SETTLE_NS: u64 = 100 * NS_PER_MS;
/// When the devices are listed again after an error, or if the system sends no notifications.
const RETRY_NS: u64 = 5_000 * NS_PER_MS;

/// The multicast faces, and when to compare them with the devices.
pub(super) struct MulticastFaces {
    config: MulticastConfig,
    watch: Option<InterfaceWatch>,
    /// The faces that were created. An entry leaves when its device does, or when the face loses
    /// its socket. It stays if a command closes the face, so that it is not created again.
    created: BTreeMap<NetworkInterface, FaceId>,
    list_at: Option<Instant>,
    failures: RateLimitedLog,
}

impl MulticastFaces {
    pub(super) fn new(config: MulticastConfig) -> Self {
        Self {
            config,
            watch: None,
            created: BTreeMap::new(),
            list_at: None,
            failures: RateLimitedLog::default(),
        }
    }

    pub(super) fn next_wakeup(&self) -> Option<Instant> {
        self.list_at
    }

    fn list_after(&mut self, now: Instant, wait_ns: u64) {
        let at = now.plus_ns(wait_ns);
        self.list_at = Some(self.list_at.map_or(at, |earlier| earlier.min(at)));
    }

    fn log_failure(&mut self, now: Instant, what: &str, why: &str) {
        if let Some(count) = self.failures.add(now) {
            tracing::warn!(what, why, count, "cannot create multicast faces; will retry");
        }
    }

    /// A worker thread has closed the socket of a face. Returns whether it was a multicast face,
    /// whose device gets another one later.
    pub(super) fn lose(&mut self, now: Instant, id: FaceId) -> bool {
        let known = self.created.len();
        self.created.retain(|_, face| *face != id);
        let is_lost = self.created.len() < known;
        if is_lost {
            self.list_after(now, RETRY_NS);
        }
        is_lost
    }

    /// The devices that must have a face.
    fn wanted(&self) -> std::io::Result<Vec<NetworkInterface>> {
        let mut all = NetworkInterface::multicast_capable()?;
        all.retain(|interface| self.config.includes(interface));
        Ok(all)
    }
}

impl Faces {
    /// Creates the multicast faces, and subscribes to changes of the devices with `token`.
    pub(in crate::control) fn start_multicast(
        &mut self,
        now: Instant,
        registry: &Registry,
        token: Token,
    ) {
        if !self.multicast.config.is_on() {
            return;
        }
        let watch = InterfaceWatch::open().and_then(|mut watch| {
            registry.register(&mut watch, token, Interest::READABLE)?;
            Ok(watch)
        });
        match watch {
            Ok(watch) => self.multicast.watch = Some(watch),
            Err(error) => tracing::info!(
                %error,
                "the system does not report changes of network devices; looking every 5 seconds"
            ),
        }
        self.follow_devices(now);
        for device in self.multicast.config.devices.iter().flatten() {
            if !self.multicast.created.keys().any(|created| created.device == *device) {
                tracing::warn!(
                    device,
                    "no multicast face: there is no such device, or it is down, loopback, or \
                     cannot multicast; the router creates the face when that changes"
                );
            }
        }
    }

    /// Network devices or their addresses have changed.
    pub(in crate::control) fn on_devices_changed(&mut self, now: Instant) {
        if let Some(watch) = &self.multicast.watch {
            watch.discard();
        }
        self.multicast.list_after(now, SETTLE_NS);
    }

    /// Compares the faces with the devices, if that is due.
    pub(in crate::control) fn run_multicast_timer(&mut self, now: Instant) {
        if self.multicast.list_at.is_some_and(|at| at <= now) {
            self.follow_devices(now);
        }
    }

    fn follow_devices(&mut self, now: Instant) {
        self.multicast.list_at = None;
        if self.multicast.watch.is_none() {
            self.multicast.list_after(now, RETRY_NS);
        }
        let wanted = match self.multicast.wanted() {
            Ok(wanted) => wanted,
            Err(error) => {
                self.multicast.log_failure(now, "the list of devices", &error.to_string());
                return self.multicast.list_after(now, RETRY_NS);
            }
        };
        let is_gone = |interface: &NetworkInterface| !wanted.contains(interface);
        let gone: Vec<_> =
            self.multicast.created.extract_if(.., |known, _| is_gone(known)).collect();
        for (_, face) in gone {
            self.destroy(face);
        }
        for interface in wanted {
            if self.multicast.created.contains_key(&interface) {
                continue;
            }
            match self.add_multicast(&interface) {
                Ok(face) => drop(self.multicast.created.insert(interface, face)),
                // For example, the device was just removed.
                Err(why) => {
                    self.multicast.log_failure(now, &interface.device, &why);
                    self.multicast.list_after(now, RETRY_NS);
                }
            }
        }
    }

    fn add_multicast(&mut self, interface: &NetworkInterface) -> Result<FaceId, String> {
        let socket = Socket::multicast(interface).map_err(|error| error.to_string())?;
        let mut draft = self.draft(socket, FacePersistency::Permanent);
        // Offers of runs are for one peer.
        draft.link.codec.runs = RunsConfig::Off;
        self.add(draft, Claimant::Operator).map_err(|refusal| refusal.to_string())
    }
}
