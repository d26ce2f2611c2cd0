//! Lets a second `weir put` add objects to a repository that another process already serves.
//!
//! 1. The second process opens the repository as a guest, signs the objects and writes them.
//! 2. It sends the file names over a Unix socket in the repository folder to the serving process.
//! 3. The serving process reads the files, serves them, registers their names with the router and
//!    replies.
//!
//! The socket accepts only the same user and root.

use std::fs::{self, File, Permissions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use anyhow::{Context, bail};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use serde::{Deserialize, Serialize};
use weir_socket::{HandOver, Published, Repository, Update, Updates};
use weir_wire::Name;

use super::publisher::explain;
use super::registration::ControllerRegistration;
use crate::table::{errln, printable};

/// The socket in the folder of the repository.
const SOCKET: &str = "socket";
/// How long to wait for the other process.
const PEER_TIMEOUT: Duration = Duration::from_secs(10);
/// Largest message in bytes, enough for the names of a million files.
const MESSAGE_BYTES_MAX: u64 = 64 << 20;
/// How long to wait for the serving thread to apply an update.
const SERVER_WAIT: Duration = Duration::from_secs(5);

#[derive(Serialize, Deserialize)]
struct HandoverRequest {
    files: Vec<String>,
    withdrawn: Vec<String>,
}

#[derive(Serialize, Deserialize)]
struct HandoverReply {
    /// The error, if some objects are not served.
    error: Option<String>,
}

/// Names to register with the router, and the channel for the result.
pub(super) type PrefixRegistration = (Vec<Name>, Sender<Result<(), String>>);

/// Calls `run` with a path to the socket. A socket path has at most 107 bytes, so a long folder
/// path is replaced by `/proc/self/fd/N`.
fn with_socket<T>(folder: &Path, run: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
    // `open` must live until `run` returns: the short path names its descriptor.
    let open = File::open(folder)?;
    run(&PathBuf::from(format!("/proc/self/fd/{}/{SOCKET}", open.as_raw_fd())))
}

/// Whether a process serves the repository and accepts objects.
pub(super) fn is_served(folder: &Path) -> bool {
    with_socket(folder, |path| UnixStream::connect(path)).is_ok()
}

/// Asks the serving process to serve the objects that this process wrote into the repository.
pub(super) fn hand_over(folder: &Path, handed: &HandOver) -> anyhow::Result<()> {
    let shown = printable(folder.display());
    let ask = || -> io::Result<HandoverReply> {
        let mut stream = with_socket(folder, |path| UnixStream::connect(path))?;
        // The serving process may wait for this request, for its serving thread and for the router.
        stream.set_read_timeout(Some(2 * PEER_TIMEOUT + SERVER_WAIT))?;
        let withdrawn = handed.withdrawn.iter().map(ToString::to_string).collect();
        write_line(&mut stream, &HandoverRequest { files: handed.files.clone(), withdrawn })?;
        read_line(&stream)
    };
    let answer = ask().with_context(|| {
        format!(
            "the process that serves {shown} does not answer; the objects are stored, so restart \
             that process to serve them"
        )
    })?;
    match answer.error {
        None => Ok(()),
        Some(error) => bail!(
            "the process that serves {shown} reports: {error}; the objects are stored, so restart \
             that process to serve them"
        ),
    }
}

fn write_line(stream: &mut UnixStream, message: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    stream.write_all(&line)
}

fn read_line<T: for<'a> Deserialize<'a>>(stream: &UnixStream) -> io::Result<T> {
    let mut line = Vec::new();
    BufReader::new(stream.take(MESSAGE_BYTES_MAX)).read_until(b'\n', &mut line)?;
    Ok(serde_json::from_slice(&line)?)
}

/// The serving side: accepts objects that other processes wrote into the repository.
pub(super) struct HandoverListener {
    listener: UnixListener,
    folder: PathBuf,
    updates: Updates,
    registrations: Sender<PrefixRegistration>,
}

impl HandoverListener {
    /// Starts to listen, if the repository can have a socket. Also returns the channel of names to
    /// register.
    pub(super) fn open(
        repository: &Repository,
        updates: Updates,
    ) -> Option<(Self, Receiver<PrefixRegistration>)> {
        let folder = repository.path().to_owned();
        let listener = with_socket(&folder, |path| {
            // Remove the socket of a killed process. This process holds the lock of the repository.
            let _ = fs::remove_file(path);
            let listener = UnixListener::bind(path)?;
            fs::set_permissions(path, Permissions::from_mode(0o600))?;
            listener.set_nonblocking(true)?;
            Ok(listener)
        });
        // Fails for a bucket, which has no folder, and on a read-only file system.
        let listener = listener.ok()?;
        let (registrations, receiver) = channel();
        Some((Self { listener, folder, updates, registrations }, receiver))
    }

    /// Waits up to `wait` for another process, and accepts its objects.
    pub(super) fn poll_once(
        &self,
        wait: Duration,
        repository: &mut Repository,
        registration: Option<&mut ControllerRegistration>,
    ) {
        let timeout = PollTimeout::try_from(wait).unwrap_or(PollTimeout::ZERO);
        let mut polled = [PollFd::new(self.listener.as_fd(), PollFlags::POLLIN)];
        if poll(&mut polled, timeout) != Ok(1) {
            return;
        }
        let Ok((stream, _)) = self.listener.accept() else { return };
        if let Err(error) = self.answer(stream, repository, registration) {
            errln!("weir: cannot accept objects from another process: {error}");
        }
    }

    fn answer(
        &self,
        mut stream: UnixStream,
        repository: &mut Repository,
        registration: Option<&mut ControllerRegistration>,
    ) -> io::Result<()> {
        let peer = getsockopt(&stream, PeerCredentials)?.uid();
        // Only root and the user of this process may add objects.
        if peer != 0 && peer != nix::unistd::geteuid().as_raw() {
            return Err(io::Error::other(format!("user {peer} has no permission")));
        }
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(PEER_TIMEOUT))?;
        stream.set_write_timeout(Some(PEER_TIMEOUT))?;
        let request: HandoverRequest = match read_line(&stream) {
            Ok(request) => request,
            // The process only checked whether the repository is served.
            Err(_) => return Ok(()),
        };
        let taken = self.add_objects(request, repository, registration);
        let error = taken.err().map(|error| format!("{error:#}"));
        write_line(&mut stream, &HandoverReply { error })
    }

    fn add_objects(
        &self,
        request: HandoverRequest,
        repository: &mut Repository,
        registration: Option<&mut ControllerRegistration>,
    ) -> anyhow::Result<()> {
        let names = request.withdrawn.iter().map(|name| name.parse());
        let withdrawn = names.collect::<Result<Vec<Name>, _>>().context("a name")?;
        let handed = HandOver { files: request.files, withdrawn };
        let taken = repository.read_hand_over(&handed).map_err(explain)?;
        let removed = handed.withdrawn.iter().cloned().map(Update::Remove);
        let added = taken.published.iter().cloned().map(Update::Add);
        let packets = taken.packets.iter().cloned().map(|(_, packet)| Update::Packet(packet));
        self.updates.apply(removed.chain(added).chain(packets).collect(), SERVER_WAIT);
        // The objects are served already, so report an error of this step only at the end.
        let taken_in = repository.adopt(&taken.published, &handed.withdrawn);
        if let Some(registration) = registration {
            handed.withdrawn.iter().for_each(|name| registration.withdraw(name));
            registration.add(taken.published.iter());
        }
        log_published(&taken.published);
        // The serving thread owns the connection to the router, so it registers the names.
        let (done, is_done) = channel();
        let keys = taken.packets.into_iter().map(|(root, _)| root);
        let names = taken.roots.into_iter().chain(keys).collect();
        let is_sent = self.registrations.send((names, done)).is_ok();
        let registered = if is_sent { is_done.recv_timeout(PEER_TIMEOUT).ok() } else { None };
        match registered {
            Some(Ok(())) => Ok(taken_in.map_err(explain)?),
            Some(Err(error)) => bail!("{error}"),
            None => bail!("the router is unreachable; the objects are served when it is back"),
        }
    }
}

fn log_published(published: &[Published]) {
    published.iter().for_each(|object| errln!("published {}", object.versioned()));
}

impl Drop for HandoverListener {
    fn drop(&mut self) {
        let _ = with_socket(&self.folder, |path| fs::remove_file(path));
    }
}
