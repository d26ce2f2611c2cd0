//! Reloads of the configuration: who requested one, and how a new configuration is applied.
//!
//! Another thread reads and checks the files, because a file system may hang. It waits for
//! requests, calls [`ToControl::Reload`](crate::message::ToControl) with a checked configuration,
//! and reports the outcome. One reload runs at a time. Requests meanwhile share the next one, so a
//! storm of requests costs two reloads.

use std::mem;

use crossbeam_channel::Sender;
use weir_face::UnixAccess;
use weir_manage::{ManagerInput, StoreSettings};
use weir_store::StoreConfig;
use weir_wire::Name;

use super::Control;
use super::manager_config::manager_config;
use super::operators::Operators;
use crate::config::{ManagementConfig, RuntimeConfig, TrustAnchor};
use crate::reload::ReloadReport;

/// The parts of the configuration that a reload compares with the new ones. Commands may have
/// changed the router since.
pub(super) struct DeclaredParts {
    store: StoreConfig,
    strategies: Vec<(Name, Name)>,
    management: ManagementConfig,
    counted_prefixes: Vec<Name>,
    /// The sockets keep their group until a restart.
    unix_access: UnixAccess,
}

impl DeclaredParts {
    pub(super) fn of(config: &RuntimeConfig) -> Self {
        Self {
            store: config.store.clone(),
            strategies: config.strategies.clone(),
            management: config.management.clone(),
            counted_prefixes: config.counted_prefixes.clone(),
            unix_access: config.unix_access,
        }
    }
}

/// Requests for reloads, by the transaction of the manager that waits for the outcome.
pub(super) struct Reloads {
    /// Wakes the thread that reads the configuration.
    thread: Sender<()>,
    running: Option<Vec<u64>>,
    next: Option<Vec<u64>>,
    declared: DeclaredParts,
}

impl Reloads {
    pub(super) fn new(thread: Sender<()>, declared: DeclaredParts) -> Self {
        Self { thread, running: None, next: None, declared }
    }

    /// When the first trust anchor expires, in seconds since 1970.
    pub(super) fn anchor_expires_unix_s(&self) -> Option<i64> {
        let ManagementConfig { trust_anchors, announcement_anchors, .. } =
            &self.declared.management;
        let anchors = trust_anchors.iter().chain(announcement_anchors);
        anchors.map(|anchor| anchor.certificate.validity().not_after_unix_s).min()
    }

    /// Requests a reload, for a transaction or for a signal. Returns whether one begins now.
    pub(super) fn request(&mut self, txn: Option<u64>) -> bool {
        if self.running.is_some() {
            self.next.get_or_insert_default().extend(txn);
            return false;
        }
        self.running = Some(txn.into_iter().collect());
        self.start()
    }

    fn start(&self) -> bool {
        // Without a receiver, nothing reads the configuration, and the client times out.
        self.thread.send(()).is_ok()
    }

    /// The running reload has ended. Returns the answers, and whether the next one begins.
    pub(super) fn end(&mut self, outcome: &Result<String, String>) -> (Vec<ManagerInput>, bool) {
        let answers = self.running.take().unwrap_or_default().into_iter();
        let answers = answers.map(|txn| ManagerInput::Reloaded { txn, result: outcome.clone() });
        self.running = self.next.take();
        (answers.collect(), self.running.is_some() && self.start())
    }
}

impl Control {
    /// Applies a checked configuration. What needs a restart is ignored.
    pub(super) fn apply_reload(&mut self, mut config: RuntimeConfig) -> ReloadReport {
        let mut report = ReloadReport::default();
        config.unix_access = self.reloads.declared.unix_access;
        let declared = mem::replace(&mut self.reloads.declared, DeclaredParts::of(&config));
        self.apply_store(&declared.store, &config.store, &mut report);
        self.apply_strategies(declared.strategies, &config.strategies, &mut report);
        self.apply_management(&declared.management, &config, &mut report);
        self.apply_prefixes(&declared.counted_prefixes, &config.counted_prefixes, &mut report);
        let faces = self.faces.declare(config.static_faces);
        report.faces_added = faces.faces_added;
        report.faces_removed = faces.faces_removed;
        report.faces_changed = faces.faces_changed;
        report.routes_added = faces.routes_added;
        report.routes_removed = faces.routes_removed;
        report
    }

    fn apply_store(&mut self, old: &StoreConfig, new: &StoreConfig, report: &mut ReloadReport) {
        if old.policy != new.policy {
            self.store.set_policy(new.policy);
            report.others.push("another eviction policy of the store".into());
        }
        let settings = |config: &StoreConfig| StoreSettings {
            capacity_bytes: config.capacity_bytes,
            admit: config.admit,
            serve: config.serve,
        };
        // Otherwise settings of `weir cs config` stay.
        if settings(old) != settings(new) {
            self.management.push(ManagerInput::ConfigureStore(settings(new)));
        }
    }

    /// Reports what the manager has changed in the store. It may have lowered the capacity to the
    /// limit of memory, and settings may be in force already by a command.
    pub(super) fn report_store(&self, before: StoreSettings, report: &mut ReloadReport) {
        let after = self.store.settings();
        report.others.extend(store_changes(before, after));
        if after.capacity_bytes != before.capacity_bytes {
            let wanted = self.reloads.declared.store.capacity_bytes;
            if after.capacity_bytes < wanted {
                report
                    .others
                    .push(format!("not {} MiB, because of the memory limit", wanted >> 20));
            }
            report.others.extend(self.contents.excess());
        }
    }

    /// A strategy that a command has chosen stays, unless the configuration changes its prefix.
    fn apply_strategies(
        &mut self,
        mut old: Vec<(Name, Name)>,
        new: &[(Name, Name)],
        report: &mut ReloadReport,
    ) {
        for choice in new {
            if let Some(at) = old.iter().position(|known| known == choice) {
                old.remove(at);
                continue;
            }
            old.retain(|(prefix, _)| *prefix != choice.0);
            report.strategies_changed += 1;
            let (prefix, strategy) = choice.clone();
            self.management.push(ManagerInput::SetStrategy { prefix, strategy });
        }
        report.strategies_changed += old.len();
        for (prefix, strategy) in old {
            self.management.push(ManagerInput::UnsetStrategy { prefix, strategy });
        }
    }

    fn apply_prefixes(&self, old: &[Name], new: &[Name], report: &mut ReloadReport) {
        if old == new {
            return;
        }
        self.contents.count_prefixes(new);
        let plural = if new.len() == 1 { "" } else { "es" };
        report.others.push(format!("metrics of {} prefix{plural}", new.len()));
    }

    fn apply_management(
        &mut self,
        old: &ManagementConfig,
        config: &RuntimeConfig,
        report: &mut ReloadReport,
    ) {
        let new = &config.management;
        let names = |anchors: &[TrustAnchor]| -> Vec<String> {
            anchors.iter().map(|anchor| anchor.certificate.name().to_string()).collect()
        };
        let anchors =
            |of: &ManagementConfig| (names(&of.trust_anchors), names(&of.announcement_anchors));
        if anchors(old) != anchors(new) {
            let count = new.trust_anchors.len() + new.announcement_anchors.len();
            report.others.push(format!("{count} trust anchors"));
        }
        let rights = |of: &ManagementConfig| (of.local_registration, of.loopback_commands);
        if rights(old) != rights(new) {
            report.others.push("who may send commands".into());
        }
        // A certificate may have the same name and another key, so this is never left out.
        self.faces.set_operators(Operators::new(config));
        self.management.set_authorization(manager_config(config, u64::MAX));
    }
}

/// Changes of the store's settings, in words.
fn store_changes(before: StoreSettings, after: StoreSettings) -> Vec<String> {
    let mut changes = Vec::new();
    if after.capacity_bytes != before.capacity_bytes {
        changes.push(format!("store of {} MiB", after.capacity_bytes >> 20));
    }
    let switch = |is_on| if is_on { "on" } else { "off" };
    if after.admit != before.admit {
        changes.push(format!("store admits Data: {}", switch(after.admit)));
    }
    if after.serve != before.serve {
        changes.push(format!("store serves Data: {}", switch(after.serve)));
    }
    changes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn declared() -> DeclaredParts {
        DeclaredParts {
            store: StoreConfig::default(),
            strategies: Vec::new(),
            management: ManagementConfig::default(),
            counted_prefixes: Vec::new(),
            unix_access: UnixAccess::default(),
        }
    }

    #[test]
    fn report_has_changed_store_settings_only() {
        let before = StoreSettings { capacity_bytes: 4 << 20, admit: true, serve: true };
        assert_eq!(store_changes(before, before), [""; 0]);
        let admits = StoreSettings { admit: false, ..before };
        assert_eq!(store_changes(before, admits), ["store admits Data: off"]);
        let larger = StoreSettings { capacity_bytes: 8 << 20, ..before };
        assert_eq!(store_changes(before, larger), ["store of 8 MiB"]);
    }

    #[test]
    fn storm_of_requests_costs_two_reloads() {
        let (sender, requests) = crossbeam_channel::unbounded();
        let mut reloads = Reloads::new(sender, declared());
        assert!(reloads.request(Some(1)));
        for txn in 2..1000 {
            assert!(!reloads.request(Some(txn)));
            assert!(!reloads.request(None));
        }
        assert_eq!(requests.len(), 1);
        let (answers, begins) = reloads.end(&Ok("first".into()));
        assert_eq!((answers.len(), begins, requests.len()), (1, true, 2));
        let (answers, begins) = reloads.end(&Err("second".into()));
        assert_eq!((answers.len(), begins, requests.len()), (998, false, 2));
        assert!(reloads.request(None), "the next one begins at once");
    }
}
