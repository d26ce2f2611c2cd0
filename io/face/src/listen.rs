use std::fs::{self, File, Permissions};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::fcntl::{Flock, FlockArg};
use socket2::{Domain, SockAddr, Socket, Type};

use crate::access::UnixAccess;
use crate::locate::unix_path_candidates;
use crate::shared::SharedMemory;
use crate::socket::socket_source;
use crate::stream::StreamSocket;
use crate::uri::FaceUri;

const BACKLOG: libc::c_int = 1024;

/// Why a listener could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// A router responds at this path.
    #[error(
        "another router listens on {}; stop it, or choose another path (--unix PATH)",
        path.display()
    )]
    AddressInUse { path: PathBuf },
    /// The path exists and is not a socket. It is left alone.
    #[error("{} exists and is not a socket; move it away or choose another path", path.display())]
    NotASocket { path: PathBuf },
    /// The directory of the default path in the temporary directory belongs to another user.
    #[error("{} belongs to another user; choose another path", path.display())]
    ForeignDirectory { path: PathBuf },
    /// The socket file cannot be given to the configured group.
    #[error("cannot give {} to group {group}: {source}", path.display())]
    Group { path: PathBuf, group: u32, source: io::Error },
    /// The system refused.
    #[error("cannot listen on {address}: {source}")]
    Io {
        /// Path, or IP address and port.
        address: String,
        source: io::Error,
    },
}

impl BindError {
    /// Whether the file system is read-only.
    pub fn is_read_only(&self) -> bool {
        match self {
            Self::Io { source, .. } => source.kind() == io::ErrorKind::ReadOnlyFilesystem,
            _ => false,
        }
    }

    /// Whether another path may work: permissions or the directory are missing here.
    fn is_path_unusable(&self) -> bool {
        match self {
            Self::Io { source, .. } => matches!(
                source.kind(),
                io::ErrorKind::PermissionDenied
                    | io::ErrorKind::NotFound
                    | io::ErrorKind::ReadOnlyFilesystem
                    | io::ErrorKind::NotADirectory
            ),
            Self::ForeignDirectory { .. } => true,
            Self::AddressInUse { .. } | Self::NotASocket { .. } | Self::Group { .. } => false,
        }
    }
}

/// A listening Unix socket. Removes its path when dropped, unless the service manager owns it.
#[derive(Debug)]
pub struct UnixListener {
    socket: Socket,
    path: PathBuf,
    /// Device and inode of the socket file, so that only this listener's own file is removed.
    /// `None` if it belongs to the service manager.
    identity: Option<(u64, u64)>,
    shared_memory: Option<Arc<SharedMemory>>,
}

impl UnixListener {
    /// Listens on `path`. Creates a missing directory, private to this user unless its parent is
    /// the system's run directory. Replaces a socket on which no process listens, such as that of a
    /// killed router.
    pub fn bind(path: &Path, access: UnixAccess) -> Result<Self, BindError> {
        let fail = |source| BindError::Io { address: path.display().to_string(), source };
        let path = std::path::absolute(path).map_err(fail)?;
        let directory = path.parent().unwrap_or(Path::new("/"));
        make_directory(directory).map_err(fail)?;
        // No other router may act between the check for a stale socket and its replacement.
        let _lock = lock_directory(directory).map_err(fail)?;
        remove_stale_socket(&path)?;
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None).map_err(fail)?;
        socket.set_nonblocking(true).map_err(fail)?;
        let address = SockAddr::unix(&path).map_err(fail)?;
        socket.bind(&address).map_err(fail)?;
        let metadata = fs::symlink_metadata(&path).map_err(fail)?;
        let identity = Some((metadata.dev(), metadata.ino()));
        let listener = Self { socket, identity, path: path.clone(), shared_memory: None };
        // No peer can connect before `listen`, so permissions up to here do not matter.
        if let Some(group) = access.group {
            std::os::unix::fs::chown(&path, None, Some(group))
                .map_err(|source| BindError::Group { path: path.clone(), group, source })?;
        }
        fs::set_permissions(&path, Permissions::from_mode(access.mode)).map_err(fail)?;
        listener.socket.listen(BACKLOG).map_err(fail)?;
        Ok(listener)
    }

    /// Listens on a socket of the service manager, which has set its permissions.
    pub(crate) fn inherited(socket: Socket, path: PathBuf) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        socket.listen(BACKLOG)?;
        Ok(Self { socket, path, identity: None, shared_memory: None })
    }

    /// Listens on the first of `unix_path_candidates` where this process can create a socket.
    pub fn bind_default(access: UnixAccess) -> Result<Self, BindError> {
        let candidates = unix_path_candidates();
        let (last, first) = candidates.split_last().expect("the temporary directory is always one");
        for path in first {
            match Self::bind(path, access) {
                Err(error) if error.is_path_unusable() => {}
                result => return result,
            }
        }
        // Any user may create a directory of this name in the temporary directory.
        let directory = last.parent().unwrap_or(last);
        let owner = nix::unistd::getuid().as_raw();
        if fs::symlink_metadata(directory)
            .is_ok_and(|found| found.uid() != owner || !found.is_dir())
        {
            return Err(BindError::ForeignDirectory { path: directory.to_owned() });
        }
        Self::bind(last, access)
    }

    /// Lets applications share memory with the router, within the limit of `memory`.
    pub fn share_memory(&mut self, memory: Arc<SharedMemory>) {
        self.shared_memory = Some(memory);
    }

    pub(crate) fn shared_memory(&self) -> Option<Arc<SharedMemory>> {
        self.shared_memory.clone()
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The local face address, `unix://…`.
    pub fn local_uri(&self) -> FaceUri {
        FaceUri::Unix(self.path.clone())
    }

    /// Accepts the next connection; `None` if there is none.
    ///
    /// # Errors
    /// Those of `accept`. If the process has no file descriptor left, the connection stays in the
    /// backlog: try again later.
    pub fn accept(&self) -> io::Result<Option<StreamSocket>> {
        let accepted = accept(&self.socket)?;
        accepted
            .map(|(socket, _)| StreamSocket::accepted_unix(socket, self.path.clone()))
            .transpose()
    }
}

impl Drop for UnixListener {
    fn drop(&mut self) {
        let is_ours = fs::symlink_metadata(&self.path)
            .is_ok_and(|found| Some((found.dev(), found.ino())) == self.identity);
        if is_ours {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn make_directory(directory: &Path) -> io::Result<()> {
    if directory.is_dir() {
        return Ok(());
    }
    let parent = directory.parent();
    let is_shared = [Some(Path::new("/run")), Some(Path::new("/var/run"))].contains(&parent);
    let mode = if is_shared { 0o755 } else { 0o700 };
    let missing: Vec<&Path> = directory.ancestors().take_while(|path| !path.exists()).collect();
    fs::DirBuilder::new().recursive(true).mode(mode).create(directory)?;
    // Set the mode again: the umask may have changed it.
    missing.into_iter().try_for_each(|path| fs::set_permissions(path, Permissions::from_mode(mode)))
}

fn lock_directory(directory: &Path) -> io::Result<Flock<File>> {
    Flock::lock(File::open(directory)?, FlockArg::LockExclusive).map_err(|(_, errno)| errno.into())
}

fn remove_stale_socket(path: &Path) -> Result<(), BindError> {
    let fail = |source| BindError::Io { address: path.display().to_string(), source };
    let found = match fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(fail(error)),
    };
    if !found.file_type().is_socket() {
        return Err(BindError::NotASocket { path: path.to_owned() });
    }
    // Only a refused connection proves that no process listens.
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            fs::remove_file(path).map_err(fail)
        }
        // A process may listen on a socket that this user may not connect to, so keep it.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(fail(error)),
        _ => Err(BindError::AddressInUse { path: path.to_owned() }),
    }
}

#[derive(Debug)]
pub struct TcpListener {
    socket: Socket,
    local: SocketAddr,
}

impl TcpListener {
    /// Listens on `address`; port 0 selects any free port. An IPv6 listener accepts no IPv4 peers.
    pub fn bind(address: SocketAddr) -> Result<Self, BindError> {
        Self::try_bind(address)
            .map_err(|source| BindError::Io { address: format!("tcp {address}"), source })
    }

    /// Listens on a socket of the service manager.
    pub(crate) fn inherited(socket: Socket, local: SocketAddr) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        socket.listen(BACKLOG)?;
        Ok(Self { socket, local })
    }

    fn try_bind(address: SocketAddr) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
        socket.set_nonblocking(true)?;
        socket.set_reuse_address(true)?;
        if address.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        let local = socket.local_addr()?.as_socket().unwrap_or(address);
        Ok(Self { socket, local })
    }

    /// The bound address.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// The local face address, `tcp4://…` or `tcp6://…`.
    pub fn local_uri(&self) -> FaceUri {
        FaceUri::Tcp(self.local)
    }

    /// Accepts the next connection; `None` if there is none.
    ///
    /// # Errors
    /// Those of `accept`. If the process has no file descriptor left, the connection stays in the
    /// backlog: try again later.
    pub fn accept(&self) -> io::Result<Option<StreamSocket>> {
        let Some((socket, peer)) = accept(&self.socket)? else {
            return Ok(None);
        };
        let peer = peer.as_socket().ok_or(io::ErrorKind::InvalidData)?;
        StreamSocket::from_tcp(socket, peer).map(Some)
    }
}

/// Accepts a connection. Skips connections that were closed before they were accepted.
fn accept(listener: &Socket) -> io::Result<Option<(Socket, SockAddr)>> {
    loop {
        match listener.accept() {
            Ok(accepted) => return Ok(Some(accepted)),
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock => return Ok(None),
                io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted => {}
                _ => return Err(error),
            },
        }
    }
}

socket_source!(UnixListener);
socket_source!(TcpListener);
