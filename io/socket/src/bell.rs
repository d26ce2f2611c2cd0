//! What readers and streams ring when their download should ask them for news.

use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender, unbounded};

use crate::waker::Waker;

/// Tells that a download's reader or stream has something to say.
pub struct Bell {
    bells: Bells,
    serial: u64,
}

impl Bell {
    /// Has the download ask for it.
    pub fn ring(&self) {
        // If the receiver is gone, so is whoever would be woken.
        let _ = self.bells.rung.send(self.serial);
        let _ = self.bells.waker.wake();
    }
}

/// Gives each download a bell.
#[derive(Clone)]
pub(crate) struct Bells {
    rung: Sender<u64>,
    waker: Arc<Waker>,
}

impl Bells {
    /// What rings comes out at the other end, as serial numbers.
    pub(crate) fn new(waker: Arc<Waker>) -> (Self, Receiver<u64>) {
        let (rung, heard) = unbounded();
        (Self { rung, waker }, heard)
    }

    /// The bell of the download of that serial number.
    pub(crate) fn bell(&self, serial: u64) -> Bell {
        Bell { bells: self.clone(), serial }
    }
}
