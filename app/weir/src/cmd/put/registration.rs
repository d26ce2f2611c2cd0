//! Registers served objects with a controller.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;
use weir_agent::{BackgroundRegistration, FileRefused, Files, FilesEvent};
use weir_control::{File, List};
use weir_socket::Published;
use weir_wire::Name;

use crate::table::errln;

/// Smaller objects are not registered, as a controller cannot divide them: a range has 64 segments.
const SEGMENTS_MIN: u64 = 65;

/// Registers large objects with a controller in the background, in order, one request at a time.
///
/// An object that the controller rejects is still served. The end of the producer withdraws
/// nothing, so that routers keep their parts.
pub(super) struct ControllerRegistration {
    files: Files,
    pending: Option<PendingUpdate>,
    add: BTreeMap<Name, File>,
    withdraw: BTreeSet<Name>,
    /// The registered version of each object, including pending registrations.
    versions: HashMap<Name, Name>,
}

struct PendingUpdate {
    _telling: BackgroundRegistration,
    is_done: Arc<AtomicBool>,
}

impl ControllerRegistration {
    pub(super) fn new(files: Files) -> Self {
        let (add, withdraw) = (BTreeMap::new(), BTreeSet::new());
        Self { files, pending: None, add, withdraw, versions: HashMap::new() }
    }

    /// Queues the registration of objects, and the withdrawal of their earlier versions.
    pub(super) fn add<'a>(&mut self, objects: impl Iterator<Item = &'a Published>) {
        for object in objects {
            let name = object.object().to_name();
            self.withdraw(&name);
            if object.segments() < SEGMENTS_MIN {
                continue;
            }
            let versioned = object.versioned();
            let file = File {
                name: versioned.clone(),
                segments: object.segments(),
                size_bytes: object.size_bytes(),
                packet_bytes: object.packet_bytes(),
                manifest: manifest(object),
            };
            // If this version was registered already, the call above has queued its withdrawal.
            self.withdraw.remove(versioned);
            self.add.insert(versioned.clone(), file);
            self.versions.insert(name, versioned.clone());
        }
    }

    /// Queues the withdrawal of an object.
    pub(super) fn withdraw(&mut self, object: &Name) {
        if let Some(versioned) = self.versions.remove(object) {
            self.add.remove(&versioned);
            self.withdraw.insert(versioned);
        }
    }

    /// Sends the queued changes, unless a request is in progress.
    pub(super) fn send_if_idle(&mut self) -> anyhow::Result<()> {
        let is_busy = |under_way: &PendingUpdate| !under_way.is_done.load(Ordering::Relaxed);
        let is_idle = self.add.is_empty() && self.withdraw.is_empty();
        if is_idle || self.pending.as_ref().is_some_and(is_busy) {
            return Ok(());
        }
        let is_done = Arc::<AtomicBool>::default();
        let add = std::mem::take(&mut self.add).into_values().collect();
        let withdraw = std::mem::take(&mut self.withdraw).into_iter().collect();
        let telling =
            self.files.register_in_background(add, withdraw, report_events(is_done.clone()));
        let _telling = telling.context("cannot start the registration with the controller")?;
        self.pending = Some(PendingUpdate { _telling, is_done });
        Ok(())
    }
}

/// Reports the results of a registration to the user.
fn report_events(is_done: Arc<AtomicBool>) -> impl FnMut(FilesEvent) {
    let mut is_late = false;
    move |event| match event {
        FilesEvent::Refused(FileRefused { name, error }) => {
            errln!("weir: the controller rejects {name}: {error}; it is served without controller");
        }
        FilesEvent::Waiting(error) => {
            is_late = true;
            errln!("weir: cannot reach the controller yet: {error}; still trying");
        }
        FilesEvent::Failed(error) => {
            errln!("weir: cannot register with the controller: {error}; serving without it");
            is_done.store(true, Ordering::Relaxed);
        }
        FilesEvent::Done => {
            if is_late {
                errln!("weir: registered with the controller");
            }
            is_done.store(true, Ordering::Relaxed);
        }
    }
}

/// The lists of digests that belong to an object in addition to its segments.
fn manifest(object: &Published) -> Vec<List> {
    let versioned = object.versioned().as_view();
    let mut lists: BTreeMap<Name, u64> = BTreeMap::new();
    for name in object.named_packet_names() {
        let number = name.as_view().last().and_then(|last| last.as_segment());
        if let (true, Some(number)) = (versioned.is_prefix_of(name.as_view()), number) {
            let packets = lists.entry(name.as_view().parent().to_name()).or_default();
            *packets = (*packets).max(number + 1);
        }
    }
    lists.into_iter().map(|(name, packets)| List { name, packets }).collect()
}
