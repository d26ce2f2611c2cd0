//! The sockets of the process.

use std::collections::HashMap;
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use nix::errno::Errno;
use weir_binding::router_of;
use weir_socket::{Session, SocketError, WeakSession};
use weir_wire::Name;

use crate::socket::Socket;

/// The sockets of the process that first used the library.
pub(crate) struct Library {
    process: u32,
    sockets: Mutex<HashMap<RawFd, Arc<Socket>>>,
    /// Sessions by router address, shared by sockets. A session ends with its last socket.
    sessions: Mutex<HashMap<String, WeakSession>>,
}

static LIBRARY: OnceLock<Library> = OnceLock::new();

/// Returns the library.
///
/// # Errors
/// EPERM in a process that was forked from one that has used it: fork does not copy the threads.
pub(crate) fn library() -> Result<&'static Library, Errno> {
    let process = std::process::id();
    let library = LIBRARY.get_or_init(|| Library {
        process,
        sockets: Mutex::default(),
        sessions: Mutex::default(),
    });
    match library.process == process {
        true => Ok(library),
        false => Err(Errno::EPERM),
    }
}

impl Library {
    fn sockets(&self) -> MutexGuard<'_, HashMap<RawFd, Arc<Socket>>> {
        self.sockets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sessions(&self) -> MutexGuard<'_, HashMap<String, WeakSession>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a new socket and returns its descriptor.
    pub(crate) fn add(&self, socket: Socket) -> Result<RawFd, Errno> {
        let number = socket.number().ok_or(Errno::EBADF)?;
        let before = self.sockets().insert(number, Arc::new(socket));
        // The application closed the old socket's descriptor itself, so its number was reused.
        if let Some(before) = before {
            before.close(false);
        }
        Ok(number)
    }

    /// The socket of a descriptor.
    ///
    /// # Errors
    /// EBADF: there is none.
    pub(crate) fn socket(&self, number: RawFd) -> Result<Arc<Socket>, Errno> {
        let socket = self.sockets().get(&number).cloned().ok_or(Errno::EBADF)?;
        if socket.is_fd_ours() {
            return Ok(socket);
        }
        // The application has closed the descriptor, and perhaps opened another file.
        self.remove(number, &socket);
        Err(Errno::EBADF)
    }

    fn remove(&self, number: RawFd, socket: &Arc<Socket>) {
        let mut sockets = self.sockets();
        if sockets.get(&number).is_none_or(|found| !Arc::ptr_eq(found, socket)) {
            return;
        }
        let removed = sockets.remove(&number);
        // Closing may wait for threads, so release the lock first.
        drop(sockets);
        if let Some(removed) = removed {
            removed.close(true);
        }
    }

    /// Closes a socket.
    ///
    /// # Errors
    /// EBADF: there is none.
    pub(crate) fn close(&self, number: RawFd) -> Result<(), Errno> {
        let socket = self.socket(number)?;
        self.remove(number, &socket);
        Ok(())
    }

    /// Binds a socket.
    ///
    /// # Errors
    /// Those of `icn_bind`.
    pub(crate) fn bind(&'static self, number: RawFd, prefix: Name) -> Result<(), Errno> {
        self.socket(number)?.bind(prefix, |router| self.session(router.as_deref()))
    }

    /// Returns the session with a router. Connects without holding a lock, because that may take a
    /// long time.
    fn session(&self, router: Option<&str>) -> Result<Session, SocketError> {
        let uri = router_of(router)?;
        let key = uri.to_string();
        let known = |sessions: &HashMap<_, WeakSession>| sessions.get(&key)?.upgrade();
        if let Some(session) = known(&self.sessions()) {
            return Ok(session);
        }
        let made = Session::connect(&uri)?;
        let mut sessions = self.sessions();
        // Another thread may have connected first. Dropping `made` may wait for its threads, so
        // release the lock.
        if let Some(session) = known(&sessions) {
            drop(sessions);
            return Ok(session);
        }
        sessions.retain(|_, session| !session.has_ended());
        sessions.insert(key, made.downgrade());
        Ok(made)
    }
}
