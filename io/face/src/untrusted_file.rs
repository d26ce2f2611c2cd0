//! Files that a stranger hands over beside octets, and who closes them.

use std::mem;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{OnceLock, mpsc};
use std::thread;
use std::time::Duration;

use socket2::SockRef;

/// Files that wait to be closed, beyond which no more are taken: somebody keeps one from closing.
const OPEN_CLOSES_MAX: usize = 64;

static OPEN_CLOSES: AtomicUsize = AtomicUsize::new(0);

/// A file from a stranger. Nothing is known of it, not even that closing it ends: one of a user's
/// own file system waits for whoever serves that, a TCP connection that lingers for its other end.
/// So a thread of its own closes all of them, and never one that forwards packets.
#[derive(Debug)]
pub(crate) struct UntrustedFile(Option<OwnedFd>);

impl UntrustedFile {
    pub(crate) fn new(file: OwnedFd) -> Self {
        Self(Some(file))
    }

    pub(crate) fn get(&self) -> &OwnedFd {
        self.0.as_ref().expect("there until it is dropped")
    }

    /// For one that has been found to be memory, which closes at once.
    pub(crate) fn into_memory(mut self) -> OwnedFd {
        self.0.take().expect("there until it is dropped")
    }

    /// Whether more may be taken. If not, the system closes what comes, in the thread that reads.
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
        // Without that thread it stays open: better than a packet thread that stands still.
        mem::forget(left);
    }
}

/// The thread that closes, for the whole process, started by the first file.
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
    // Whatever else it may be, it is no socket.
    let _ = SockRef::from(&file).set_linger(None::<Duration>);
    drop(file);
}
