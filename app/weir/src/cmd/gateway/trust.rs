//! The signers that a gateway trusts: those of `weir get`.

use std::path::PathBuf;

use anyhow::Context;
use weir_crypto::UserTrust;
use weir_security::trust::{NeededPacket, Refusal, Trust, TrustDecision};
use weir_wire::{DataView, Name};

use crate::transfer::KeyArgs;
use crate::transfer::trust::explain;

/// The user's trust for the names below one.
pub(super) struct GatewayTrust(UserTrust);

impl GatewayTrust {
    /// Reads the user's settings.
    pub(super) fn new(
        keys: &KeyArgs,
        anchors: &[PathBuf],
        allow_unsigned: bool,
    ) -> anyhow::Result<Self> {
        // Without a home directory there are no keys, and only digests can be verified.
        let chain = keys.key_chain().ok();
        let mut trust = UserTrust::new(Name::new(), chain, anchors)
            .context("trust anchors are certificate files, as written by `weir key export`")?;
        if allow_unsigned {
            trust.policy().allow_unsigned();
        }
        Ok(Self(trust))
    }

    /// The same settings for other names, whose first signer may be another one.
    pub(super) fn for_names_below(&self, root: &Name) -> Self {
        Self(self.0.for_names_below(root.clone()))
    }
}

impl Trust for GatewayTrust {
    fn decide(&mut self, data: &DataView<'_>) -> TrustDecision {
        self.0.decide(data)
    }

    fn offer_certificate(&mut self, certificate: &[u8]) {
        self.0.offer_certificate(certificate);
    }

    fn on_fetched(&mut self, wanted: NeededPacket, packet: Option<&[u8]>) {
        self.0.on_fetched(wanted, packet);
    }

    fn explain(&self, refusal: Refusal) -> String {
        explain(refusal)
    }
}
