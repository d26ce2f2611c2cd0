//! Files received from untrusted applications, and the thread that closes them.

use std::mem;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{OnceLock, mpsc};
use std::thread;
use std::time::Duration;

use socket2::SockRef;

/// Maximum number of files that wait to be closed. At this number, no more are accepted: one of
/// them probably blocks the closing thread.
const OPEN_CLOSES_MAX: usize = 64;

static OPEN_CLOSES: AtomicUsize = AtomicUsize::new(0);

/// A file from an untrusted peer. Even closing it may block. A file of a user's own file system
/// waits for the server of that file system. A TCP connection with SO_LINGER waits for its other
/// end. So a separate thread closes all of them, never a worker thread.
#[derive(Debug)]
pub(crate) struct UntrustedFile(Option<OwnedFd>);

impl UntrustedFile {
    pub(crate) fn new(file: OwnedFd) -> Self {
        Self(Some(file))
    }

    pub(crate) fn get(&self) -> &OwnedFd {
        self.0.as_ref().expect("there until it is dropped")
    }

    /// For a file that was found to be memory, which closes at once.
    pub(crate) fn into_memory(mut self) -> OwnedFd {
        self.0.take().expect("there until it is dropped")
    }

    /// Whether more files may be accepted. If not, the system closes them in the thread that reads.
    pub(crate) fn can_accept() -> bool {
        OPEN_CLOSES.load(Ordering::Relaxed) < OPEN_CLOSES_MAX
    }
}

impl Drop for UntrustedFile {
    fn drop(&mut self) {
        let Some(file) = self.0.take() else { return };
        OPEN_CLOSES.fetch_add(1, Ordering::Relaxed);
        let left = match closer() {
            Some(closer) => closer.send(file).err().map(|unsent| unsent.0),
            None => Some(file),
        };
        // Without the closing thread, the file stays open. That is better than a blocked packet
        // thread.
        mem::forget(left);
    }
}

/// The closing thread of the whole process, started by the first file.
#[cold]
fn closer() -> Option<&'static mpsc::Sender<OwnedFd>> {
    static CLOSER: OnceLock<Option<mpsc::Sender<OwnedFd>>> = OnceLock::new();
    let start = || {
        let (sender, files) = mpsc::channel();
        let close = move || {
            for file in files {
                close(file);
                OPEN_CLOSES.fetch_sub(1, Ordering::Relaxed);
            }
        };
        thread::Builder::new().name("weir-close".into()).spawn(close).ok().map(|_| sender)
    };
    CLOSER.get_or_init(start).as_ref()
}

fn close(file: OwnedFd) {
    // Fails if the file is not a socket.
    let _ = SockRef::from(&file).set_linger(None::<Duration>);
    drop(file);
}
