//! A trust that explains refusals in the words of one program.

use alloc::string::String;
use alloc::vec::Vec;

use weir_wire::DataView;

use super::{NeededPacket, Refusal, Trust, TrustDecision};

/// Decides as `inner` does, and explains refusals with the options of the program that asks.
#[derive(Clone)]
pub struct ExplainedTrust<T> {
    pub inner: T,
    explain: fn(Refusal) -> String,
}

impl<T: Trust> ExplainedTrust<T> {
    pub fn new(inner: T, explain: fn(Refusal) -> String) -> Self {
        Self { inner, explain }
    }
}

impl<T: Trust> Trust for ExplainedTrust<T> {
    fn decide(&mut self, data: &DataView<'_>) -> TrustDecision {
        self.inner.decide(data)
    }

    fn offer_certificate(&mut self, certificate: &[u8]) {
        self.inner.offer_certificate(certificate);
    }

    fn on_fetched(&mut self, wanted: NeededPacket, packet: Option<&[u8]>) {
        self.inner.on_fetched(wanted, packet);
    }

    fn accepted_keys(&self) -> Vec<[u8; 32]> {
        self.inner.accepted_keys()
    }

    fn explain(&self, refusal: Refusal) -> String {
        (self.explain)(refusal)
    }
}
