//! The section `[management]`: who may send commands to the router.

use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::Deserialize;
use weir_runtime::{ManagementConfig, TrustAnchor};

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(expecting = "a table", deny_unknown_fields, default)]
pub(crate) struct ManagementSection {
    pub(crate) trust_anchors: Vec<PathBuf>,
    pub(crate) announcement_anchors: Vec<PathBuf>,
    pub(crate) local_registration: bool,
    pub(crate) loopback_commands: bool,
    pub(crate) localhop: bool,
    pub(crate) holdings_for_neighbours: bool,
    pub(crate) readvertise_nlsr: bool,
}

impl Default for ManagementSection {
    fn default() -> Self {
        let defaults = ManagementConfig::default();
        Self {
            trust_anchors: Vec::new(),
            announcement_anchors: Vec::new(),
            local_registration: defaults.local_registration,
            loopback_commands: defaults.loopback_commands,
            localhop: defaults.localhop,
            holdings_for_neighbours: defaults.holdings_for_neighbours,
            readvertise_nlsr: defaults.readvertise_nlsr,
        }
    }
}

impl ManagementSection {
    /// Converts the section to the configuration of the runtime. Reads the files of trust anchors.
    pub(super) fn to_runtime(&self) -> anyhow::Result<ManagementConfig> {
        Ok(ManagementConfig {
            trust_anchors: read_anchors("trust_anchors", &self.trust_anchors)?,
            announcement_anchors: read_anchors("announcement_anchors", &self.announcement_anchors)?,
            local_registration: self.local_registration,
            loopback_commands: self.loopback_commands,
            localhop: self.localhop,
            holdings_for_neighbours: self.holdings_for_neighbours,
            readvertise_nlsr: self.readvertise_nlsr,
        })
    }
}

/// Reads the certificate files of `key`.
fn read_anchors(key: &str, paths: &[PathBuf]) -> anyhow::Result<Vec<TrustAnchor>> {
    let anchors = paths.iter().map(|path| {
        read_anchor(path).with_context(|| {
            format!(
                "cannot use {} in [management] `{key}`; create it with `weir key export`, or \
                 remove it from the list",
                path.display()
            )
        })
    });
    anchors.collect()
}

fn read_anchor(path: &Path) -> anyhow::Result<TrustAnchor> {
    let certificate = weir_crypto::read_certificate(path)?;
    let verifier = weir_crypto::verifier_from_certificate(&certificate)?;
    Ok(TrustAnchor { certificate, verifier: verifier.into() })
}
