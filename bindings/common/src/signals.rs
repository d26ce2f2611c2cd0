//! Keeps signals away from the library's threads.

use nix::sys::signal::{SigSet, SigmaskHow};

/// While this value lives, threads started by this thread receive no signals. Signal handlers then
/// run in the application's threads.
pub struct WithoutSignals(Option<SigSet>);

impl WithoutSignals {
    /// Blocks signals from now on.
    #[must_use = "signals are unblocked when it is dropped"]
    #[allow(clippy::new_without_default, reason = "creating it has an effect")]
    pub fn new() -> Self {
        Self(SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK).ok())
    }
}

impl Drop for WithoutSignals {
    fn drop(&mut self) {
        if let Some(mask) = &self.0 {
            // Restoring a mask that was in force cannot fail.
            let _ = mask.thread_set_mask();
        }
    }
}
