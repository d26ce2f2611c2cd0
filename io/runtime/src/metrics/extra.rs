//! Metrics of other components of the router's process.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

/// One metric of a component that runs next to the router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtraMetric {
    /// Name without the prefix `weir_` and, for a total, without the suffix `_total`.
    pub name: &'static str,
    /// Help text without a full stop.
    pub help: &'static str,
    /// Whether the value only grows.
    pub is_total: bool,
    pub value: u64,
}

type Source = Box<dyn Fn() -> Vec<ExtraMetric> + Send + Sync>;

/// All sources of such metrics. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct ExtraMetrics(Arc<Mutex<Vec<Source>>>);

impl ExtraMetrics {
    pub(crate) fn add(&self, source: Source) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(source);
    }

    pub(crate) fn encode(&self, encoder: &mut DescriptorEncoder) -> Result<(), fmt::Error> {
        let sources = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for ExtraMetric { name, help, is_total, value } in
            sources.iter().flat_map(|source| source())
        {
            let kind = if is_total { MetricType::Counter } else { MetricType::Gauge };
            let mut metric = encoder.encode_descriptor(name, help, None, kind)?;
            match is_total {
                true => metric.encode_counter::<NoLabelSet, _, u64>(&value, None)?,
                false => metric.encode_gauge(&value)?,
            }
        }
        Ok(())
    }
}

impl fmt::Debug for ExtraMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OuterMetrics")
    }
}
