//! How readers and streams have their download ask them for news.

use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender, unbounded};
use weir_client::Waker;

/// Tells that a download's reader or stream has something to say.
pub struct Notifier {
    notifiers: Notifiers,
    serial: u64,
}

impl Notifier {
    /// Has the download ask for it.
    pub(crate) fn notify(&self) {
        // If the receiver is gone, so is whoever would be woken.
        let _ = self.notifiers.notified.send(self.serial);
        let _ = self.notifiers.waker.wake();
    }
}

/// Gives each download its notifier.
#[derive(Clone)]
pub(crate) struct Notifiers {
    notified: Sender<u64>,
    waker: Arc<Waker>,
}

impl Notifiers {
    /// Those that notify come out at the other end, as serial numbers.
    pub(crate) fn new(waker: Arc<Waker>) -> (Self, Receiver<u64>) {
        let (notified, heard) = unbounded();
        (Self { notified, waker }, heard)
    }

    /// The notifier of the download of that serial number.
    pub(crate) fn notifier(&self, serial: u64) -> Notifier {
        Notifier { notifiers: self.clone(), serial }
    }
}
