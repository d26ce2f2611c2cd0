use weir_base::Instant;

use super::config::CodecConfig;
use crate::counters::LinkCounters;

/// What one call of the codec needs: the time, the configuration and the counters of a link.
pub(crate) struct CodecContext<'a> {
    pub(crate) now: Instant,
    pub(crate) config: &'a CodecConfig,
    pub(crate) counters: &'a mut LinkCounters,
}
