//! Keys that only the laboratory's experiments need. Only a build with the feature `lab` takes
//! them, in `[lab]`; the default configuration does not print them.

/// Names of those keys.
const KEYS: &[&str] = &[
    "lab",
    "pace",
    "stalled_while",
    "index",
    "compare",
    "io",
    "interests_waiting_max",
    "labels",
    "announce_period",
    "contention",
    "filter",
    "false_positives_ppm",
];

#[cfg(feature = "lab")]
const HINT: &str = "\nThat is a key of the laboratory's experiments: write it in [lab.store] or \
                    [lab.disks]";
#[cfg(not(feature = "lab"))]
const HINT: &str = "\nThat is a key of the laboratory's experiments, which no router needs: remove \
                    it. Only a build with the feature `lab` has it";

/// What to add to the error of a file that cannot be read, if it names a key of experiments.
pub(super) fn hint(error: &str) -> &'static str {
    let unknown = error.strip_prefix("unknown field `").and_then(|rest| rest.split_once('`'));
    if unknown.is_some_and(|(key, _)| KEYS.contains(&key)) { HINT } else { "" }
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
        /// `config` with the choices of the experiment.
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
