//! Whom a front trusts: as `weir get` does, for all its requests together.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::Context;
use weir_crypto::UserTrust;
use weir_security::trust::{NeededPacket, Refusal, Trust, TrustDecision};
use weir_wire::{DataView, Name};

use crate::transfer::KeyArgs;
use crate::transfer::trust::explain;

/// The trust of the user, shared by all requests.
#[derive(Clone)]
pub(super) struct GatewayTrust(Arc<Mutex<UserTrust>>);

impl GatewayTrust {
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
        Ok(Self(Arc::new(Mutex::new(trust))))
    }

    fn trust(&self) -> MutexGuard<'_, UserTrust> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records signers that were trusted on first use.
    pub(super) fn remember(&self) {
        if let Err(error) = self.trust().remember() {
            tracing::warn!(%error, "the signers that were trusted on first use are not recorded");
        }
    }
}

impl Trust for GatewayTrust {
    fn decide(&mut self, data: &DataView<'_>) -> TrustDecision {
        self.trust().decide(data)
    }

    fn offer_certificate(&mut self, certificate: &[u8]) {
        self.trust().offer_certificate(certificate);
    }

    fn on_fetched(&mut self, wanted: NeededPacket, packet: Option<&[u8]>) {
        self.trust().on_fetched(wanted, packet);
    }

    fn explain(&self, refusal: Refusal) -> String {
        explain(refusal)
    }
}
