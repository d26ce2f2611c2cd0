//! The cs module: settings of the content store.

use alloc::vec::Vec;

use weir_store::{Holding, HoldingsStatus, Tier};
use weir_wire::{InterestView, Name};

use crate::io::{Action, StoreSettings};
use crate::numbers::store_flags;
use crate::parameters::{ControlParameters, ControlResponse};
use crate::status::CsInfo;
use crate::transactions::Task;
use crate::{ERASE_LIMIT, STORE_PACKET_BYTES};

/// Number of components of cs/holdings before the object's name: scope, `nfd`, module and dataset.
const OBJECT_AT: usize = 4;

/// The present settings of the content store.
#[derive(Debug)]
pub(crate) struct StoreModule {
    settings: StoreSettings,
    /// Maximum capacity that a command can set, in bytes.
    bytes_max: u64,
}

impl StoreModule {
    pub(crate) fn new(settings: StoreSettings, bytes_max: u64) -> Self {
        Self { settings, bytes_max }
    }

    /// cs/config: the body of the answer, and the action for the driver if something has changed.
    pub(crate) fn configure(
        &mut self,
        parameters: &ControlParameters,
    ) -> (ControlParameters, Option<Action>) {
        let before = self.settings;
        if let Some(packets) = parameters.capacity {
            let bytes = packets.saturating_mul(STORE_PACKET_BYTES);
            self.settings.capacity_bytes = bytes.min(self.bytes_max);
        }
        if let Some(admit) = parameters.flag(store_flags::ADMIT) {
            self.settings.admit = admit;
        }
        if let Some(serve) = parameters.flag(store_flags::SERVE) {
            self.settings.serve = serve;
        }
        let body = ControlParameters {
            capacity: Some(self.capacity()),
            flags: Some(self.flags()),
            ..ControlParameters::default()
        };
        let has_changed = self.settings != before;
        (body, has_changed.then_some(Action::ConfigureStore(self.settings)))
    }

    /// Sets all settings. Returns the action for the driver, if something has changed.
    pub(crate) fn set(&mut self, settings: StoreSettings) -> Option<Action> {
        let capacity_bytes = settings.capacity_bytes.min(self.bytes_max);
        let settings = StoreSettings { capacity_bytes, ..settings };
        let has_changed = settings != self.settings;
        self.settings = settings;
        has_changed.then_some(Action::ConfigureStore(settings))
    }

    /// Fills in the fields of cs/info that the driver does not know.
    pub(crate) fn fill_in(&self, info: &mut CsInfo) {
        info.capacity = self.capacity();
        info.flags = self.flags();
        info.capacity_bytes.get_or_insert(self.settings.capacity_bytes);
    }

    /// Capacity in packets, rounded up.
    fn capacity(&self) -> u64 {
        self.settings.capacity_bytes.div_ceil(STORE_PACKET_BYTES)
    }

    fn flags(&self) -> u64 {
        let flag = |is_set, bit| if is_set { bit } else { 0 };
        flag(self.settings.admit, store_flags::ADMIT)
            | flag(self.settings.serve, store_flags::SERVE)
    }
}

/// cs/erase: the task for the driver.
pub(crate) fn erase(parameters: &ControlParameters) -> Task {
    let prefix = parameters.name.clone().unwrap_or_default();
    let count = parameters.count.unwrap_or(u64::MAX);
    Task::EraseStore { prefix, limit: count.min(ERASE_LIMIT), is_limited: count > ERASE_LIMIT }
}

/// The answer to cs/erase when the driver has finished.
pub(crate) fn erased(
    prefix: Name,
    is_limited: bool,
    erased: u64,
    has_more: bool,
) -> ControlResponse {
    ControlResponse::ok(ControlParameters {
        name: Some(prefix),
        count: Some(erased),
        // Reports the limit if it ended the command early.
        capacity: (is_limited && has_more && erased >= ERASE_LIMIT).then_some(ERASE_LIMIT),
        ..ControlParameters::default()
    })
}

/// The object that an Interest for cs/holdings queries.
pub(crate) fn holdings_object(interest: &InterestView<'_>) -> Option<Name> {
    let last = interest.name.last()?;
    let is_complete = interest.name.component_count() == OBJECT_AT + 1;
    HoldingsStatus::object_of(last.value).filter(|_| is_complete)
}

/// cs/holdings: the stored segments of an object.
pub(crate) fn holdings_status(
    object: Name,
    holdings: Vec<Holding>,
    is_partial: bool,
) -> HoldingsStatus {
    let mut status = HoldingsStatus { object, is_partial, ..HoldingsStatus::default() };
    for holding in holdings {
        match holding.tier {
            Tier::Memory => status.memory = holding.ranges,
            Tier::Disk => status.disk = holding.ranges,
        }
    }
    status.truncate();
    status
}
