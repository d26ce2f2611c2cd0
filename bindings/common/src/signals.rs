//! Signals are for threads of the application.

use nix::sys::signal::{SigSet, SigmaskHow};

/// While it lives, threads that the calling one starts take no signals: handlers run in threads of
/// the application.
pub struct WithoutSignals(Option<SigSet>);

impl WithoutSignals {
    /// From now on.
    #[must_use = "it ends when it is dropped"]
    #[allow(clippy::new_without_default, reason = "there is no default of a moment")]
    pub fn new() -> Self {
        Self(SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK).ok())
    }
}

impl Drop for WithoutSignals {
    fn drop(&mut self) {
        if let Some(mask) = &self.0 {
            // It cannot fail with a mask that was in force.
            let _ = mask.thread_set_mask();
        }
    }
}
