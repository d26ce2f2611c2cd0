//! The access log: one line a response, when its last byte has been handed over.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use http::StatusCode;
use weir_socket::SocketError;

use super::metrics::Metrics;

/// One response. The line is written when it is dropped.
pub(super) struct Access {
    pub(super) client: IpAddr,
    pub(super) method: String,
    pub(super) target: String,
    pub(super) status: StatusCode,
    pub(super) source: &'static str,
    pub(super) begun: Instant,
    pub(super) metrics: Arc<Metrics>,
    bytes: AtomicU64,
    error: std::sync::OnceLock<String>,
}

impl Access {
    pub(super) fn new(
        client: IpAddr,
        method: String,
        target: String,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self {
            client,
            method,
            target,
            status: StatusCode::OK,
            source: "-",
            begun: Instant::now(),
            metrics,
            bytes: AtomicU64::new(0),
            error: std::sync::OnceLock::new(),
        }
    }

    pub(super) fn add_bytes(&self, count: usize) {
        self.bytes.fetch_add(count as u64, Ordering::Relaxed);
    }

    /// The rest of the body cannot be sent.
    pub(super) fn fail(&self, error: &SocketError) {
        let _ = self.error.set(error.to_string());
    }
}

impl Drop for Access {
    fn drop(&mut self) {
        let bytes = self.bytes.load(Ordering::Relaxed);
        let error = self.error.get().map(String::as_str);
        self.metrics.on_response(self.status, bytes, error.is_some());
        let elapsed_ms = self.begun.elapsed().as_secs_f64() * 1e3;
        tracing::info!(
            target: "weir_gateway::access",
            client = %self.client,
            method = self.method,
            target = self.target,
            status = self.status.as_u16(),
            bytes,
            elapsed_ms,
            source = self.source,
            error,
        );
    }
}
