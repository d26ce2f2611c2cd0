//! Lets readers and streams notify their download.

use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender, unbounded};
use weir_client::Waker;

/// Notifies a download that its reader or stream has news.
pub struct Notifier {
    notifiers: Notifiers,
    serial: u64,
}

impl Notifier {
    /// Notifies the download.
    pub(crate) fn notify(&self) {
        // If the receiver is gone, there is no one to wake.
        let _ = self.notifiers.notified.send(self.serial);
        let _ = self.notifiers.waker.wake();
    }
}

/// Creates the notifier of each download.
#[derive(Clone)]
pub(crate) struct Notifiers {
    notified: Sender<u64>,
    waker: Arc<Waker>,
}

impl Notifiers {
    /// The receiver gets the serial numbers of downloads with news.
    pub(crate) fn new(waker: Arc<Waker>) -> (Self, Receiver<u64>) {
        let (notified, heard) = unbounded();
        (Self { notified, waker }, heard)
    }

    /// The notifier of the download with that serial number.
    pub(crate) fn notifier(&self, serial: u64) -> Notifier {
        Notifier { notifiers: self.clone(), serial }
    }
}
