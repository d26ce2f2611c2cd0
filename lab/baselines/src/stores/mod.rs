//! Stores of papers.

mod blocking;
mod names;
mod skip_list;

use std::sync::Arc;

use weir_forward::{Driver, Extension, Router};
use weir_plan::{DiskExperiments, StoreExperiments, StoreIo};

use self::blocking::StoreQueue;

/// The store extension of an experiment.
#[derive(Debug)]
struct PaperStore {
    store: StoreExperiments,
    /// Limit on Interests before a blocking store; `None` if it does not block.
    blocking: Option<usize>,
}

impl Extension for PaperStore {
    fn extend(&self, router: &mut Router) -> Option<Box<dyn Driver>> {
        if let Some(index) = names::name_index(&self.store) {
            router.set_name_index(index);
        }
        let interests_max = self.blocking?;
        router.set_driver_queue(0);
        Some(Box::new(StoreQueue::new(interests_max)))
    }
}

/// Makes the store extension of an experiment. `None` if the normal store suffices.
#[must_use]
pub fn extension(
    store: &StoreExperiments,
    disks: Option<&DiskExperiments>,
) -> Option<Arc<dyn Extension>> {
    let blocking = disks
        .filter(|disks| disks.io == StoreIo::Blocking)
        .map(|disks| disks.interests_waiting_max as usize);
    if *store == StoreExperiments::default() && blocking.is_none() {
        return None;
    }
    Some(Arc::new(PaperStore { store: store.clone(), blocking }))
}
