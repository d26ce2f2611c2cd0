//! Keys for experiments of the laboratory. Only a build with the feature `lab` accepts them, in
//! `[lab]`. The printed default configuration omits them.

/// The keys for experiments, each with its section.
const LAB_KEYS: [(&str, &str); 12] = [
    ("lab", ""),
    ("pace", "[[disk]]"),
    ("stalled_while", "[[disk]]"),
    ("index", "[lab.store]"),
    ("compare", "[lab.store]"),
    ("io", "[lab.disks]"),
    ("interests_waiting_max", "[lab.disks]"),
    ("labels", "[lab.disks]"),
    ("announce_period", "[lab.disks]"),
    ("contention", "[lab.disks]"),
    ("filter", "[lab.disks]"),
    ("filter_false_positives_ppm", "[lab.disks]"),
];

/// A hint for the error about an unknown key, if the key belongs to the laboratory.
pub(super) fn hint(error: &str) -> String {
    let unknown = error.strip_prefix("unknown field `").and_then(|rest| rest.split_once('`'));
    let known = unknown.and_then(|(found, _)| LAB_KEYS.iter().find(|(key, _)| *key == found));
    match known {
        None => String::new(),
        Some((_, section)) if cfg!(feature = "lab") => {
            format!("\nThis is a key for experiments of the laboratory: write it in {section}")
        }
        Some(_) => {
            "\nThis is a key for experiments of the laboratory, which only a build with the \
             feature `lab` accepts: remove it"
                .into()
        }
    }
}

#[cfg(feature = "lab")]
pub(crate) use section::LabSection;

#[cfg(feature = "lab")]
mod section {
    use serde::Deserialize;
    use weir_baselines::stores;
    use weir_plan::{DiskExperiments, StoreExperiments};
    use weir_runtime::{DisksConfig, RuntimeConfig};

    /// `[lab]`.
    #[derive(Clone, Debug, Default, PartialEq, Deserialize)]
    #[serde(expecting = "a table", deny_unknown_fields, default)]
    pub(crate) struct LabSection {
        store: StoreExperiments,
        disks: DiskExperiments,
    }

    impl LabSection {
        /// Applies the options of the experiment to `config`.
        pub(crate) fn apply(&self, config: RuntimeConfig) -> RuntimeConfig {
            let disks = config.disks.map(|disks| DisksConfig {
                busy: self.disks.busy(disks.busy),
                tier: self.disks.tier(disks.tier),
                ..disks
            });
            let has_disks = disks.is_some().then_some(&self.disks);
            let extension = stores::extension(&self.store, has_disks);
            RuntimeConfig { disks, extension, ..config }
        }
    }
}
