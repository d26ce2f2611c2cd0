use std::fmt;
use std::io::{self, IoSlice, Read};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use socket2::{Domain, SockAddr, Socket, TcpKeepalive, Type};
use weir_base::{Packet, PacketMut, Pool};
use weir_link::Link;
use weir_wire::{FrameError, peek_frame};

use crate::descriptor;
use crate::gather::with_io_slices;
use crate::socket::{BacklogEstimate, grow_send_buffer, socket_source};
use crate::status::{RecvStatus, SendStatus};
use crate::untrusted_file::UntrustedFile;
use crate::uri::FaceUri;

/// The read buffer grows and shrinks between these sizes, depending on how much each read yields.
const READ_BYTES_MIN: usize = 16 * 1024;
pub(crate) const READ_BYTES_MAX: usize = 128 * 1024;
/// After this many consecutive reads that leave most of the buffer empty, it shrinks.
const SMALL_READS_MAX: u32 = 16;
/// A read of at most this many bytes is copied into a block of its own size.
const COPY_BYTES_MAX: usize = 2048;
/// Send buffer requested for Unix sockets. TCP adapts its buffers, unless they are set.
const UNIX_SEND_BUFFER_BYTES: usize = 1 << 20;

/// The bytes of one read, after those of an incomplete frame.
pub(crate) struct ReadBlock {
    block: PacketMut,
    filled: usize,
}

impl ReadBlock {
    pub(crate) fn octets(&mut self) -> &mut [u8] {
        &mut self.block[..self.filled]
    }

    #[inline]
    pub(crate) fn freeze(self, pool: &mut Pool) -> Packet {
        if self.filled <= COPY_BYTES_MAX {
            return pool.copy(&self.block[..self.filled]);
        }
        self.block.freeze(self.filled)
    }
}

/// One non-blocking Unix or TCP connection of a face.
pub struct StreamSocket {
    socket: Socket,
    local: FaceUri,
    remote: FaceUri,
    is_local: bool,
    partial_frame: Packet,
    read_bytes: usize,
    small_reads: u32,
    /// Bytes of the link's oldest frame that were already sent.
    front_sent: usize,
    backlog: BacklogEstimate,
    /// An error that the next read returns. Bytes that arrived before it come first.
    error: Option<io::Error>,
    /// Number of files that the peer may still send; `None`: the peer cannot send files.
    files_left: Option<u8>,
    file: Option<UntrustedFile>,
}

impl StreamSocket {
    /// Connects to a router's Unix socket. Waits only while the listener's backlog is full, for at
    /// most `timeout`.
    ///
    /// # Errors
    /// Those of `connect`: NotFound, ConnectionRefused (no process listens), PermissionDenied;
    /// TimedOut.
    pub(crate) fn connect_unix(path: &Path, timeout: Duration) -> io::Result<Self> {
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        let (address, until) = (SockAddr::unix(path)?, Instant::now() + timeout);
        loop {
            // The write timeout also limits a blocking connect of a Unix socket. 0 would mean no
            // limit.
            let left = until.saturating_duration_since(Instant::now());
            socket.set_write_timeout(Some(left.max(Duration::from_millis(1))))?;
            match socket.connect(&address) {
                Ok(()) => break,
                Err(error) => match error.kind() {
                    io::ErrorKind::Interrupted if !left.is_zero() => {}
                    io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock => {
                        return Err(io::Error::from_raw_os_error(libc::ETIMEDOUT));
                    }
                    _ => return Err(error),
                },
            }
        }
        socket.set_write_timeout(None)?;
        let local = FaceUri::Fd(socket.as_raw_fd() as u64);
        Self::from_unix(socket, local, FaceUri::Unix(path.to_owned()))
    }

    /// Connects over TCP, within `timeout`.
    ///
    /// # Errors
    /// Those of `connect`; TimedOut.
    pub(crate) fn connect_tcp_timeout(address: SocketAddr, timeout: Duration) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
        socket.connect_timeout(&address.into(), timeout)?;
        Self::from_tcp(socket, address)
    }

    /// For an accepted Unix connection of the listener at `listener_path`.
    pub(crate) fn accepted_unix(socket: Socket, listener_path: PathBuf) -> io::Result<Self> {
        let remote = FaceUri::Fd(socket.as_raw_fd() as u64);
        let mut stream = Self::from_unix(socket, FaceUri::Unix(listener_path), remote)?;
        stream.files_left = Some(1);
        Ok(stream)
    }

    /// For one end of a socket pair within this process.
    pub(crate) fn of_pair(stream: UnixStream) -> io::Result<Self> {
        let socket = Socket::from(stream);
        let remote = FaceUri::Fd(socket.as_raw_fd() as u64);
        Self::from_unix(socket, FaceUri::Internal, remote)
    }

    fn from_unix(socket: Socket, local: FaceUri, remote: FaceUri) -> io::Result<Self> {
        grow_send_buffer(&socket, UNIX_SEND_BUFFER_BYTES);
        Self::new(socket, local, remote, true)
    }

    pub(crate) fn from_tcp(socket: Socket, peer: SocketAddr) -> io::Result<Self> {
        socket.set_tcp_nodelay(true)?;
        let local = local_tcp_uri(&socket);
        let is_local = peer.ip().to_canonical().is_loopback();
        Self::new(socket, local, FaceUri::Tcp(peer), is_local)
    }

    fn new(socket: Socket, local: FaceUri, remote: FaceUri, is_local: bool) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Self {
            socket,
            local,
            remote,
            is_local,
            partial_frame: Packet::empty(),
            read_bytes: READ_BYTES_MIN,
            small_reads: 0,
            front_sent: 0,
            backlog: BacklogEstimate::default(),
            error: None,
            files_left: None,
            file: None,
        })
    }

    /// The local address (NFD: LocalUri).
    pub fn local_uri(&self) -> &FaceUri {
        &self.local
    }

    /// The peer's address (NFD: Uri).
    pub fn remote_uri(&self) -> &FaceUri {
        &self.remote
    }

    /// Whether the peer is on this host, which gives the face local scope.
    pub fn is_local(&self) -> bool {
        self.is_local
    }

    /// Memory in bytes of an incomplete packet.
    pub(crate) fn held_bytes(&self) -> usize {
        self.partial_frame.block_bytes()
    }

    /// Reads up to one block and appends its frames (whole TLVs of type Interest, Data or LpPacket)
    /// to `frames`. Frames share the block that they were read into.
    ///
    /// # Errors
    /// The connection failed. Frames before the failure were delivered by an earlier call.
    pub fn recv(&mut self, pool: &mut Pool, frames: &mut Vec<Packet>) -> io::Result<RecvStatus> {
        let (block, status) = self.read_block(pool)?;
        let Some(block) = block else { return Ok(status) };
        let octets = block.freeze(pool);
        Ok(self.cut(&octets, pool, frames).unwrap_or(status))
    }

    /// Reads up to one block. `None` if no byte has arrived. The caller must
    /// [keep](Self::keep_rest) the incomplete frame at the end of the block.
    ///
    /// # Errors
    /// As [`Self::recv`].
    #[inline]
    pub(crate) fn read_block(
        &mut self,
        pool: &mut Pool,
    ) -> io::Result<(Option<ReadBlock>, RecvStatus)> {
        self.read_block_with(pool, Self::read)
    }

    /// Like [`Self::read_block`], with bytes from `read`, for a protocol over this connection.
    #[inline]
    pub(crate) fn read_block_with(
        &mut self,
        pool: &mut Pool,
        mut read: impl FnMut(&mut Self, &mut [u8]) -> io::Result<usize>,
    ) -> io::Result<(Option<ReadBlock>, RecvStatus)> {
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        let carried = self.partial_frame.len();
        // The block starts with the incomplete frame of the previous read.
        let mut block = pool.alloc(self.read_bytes);
        block[..carried].copy_from_slice(&self.partial_frame);
        let mut filled = carried;
        let status = loop {
            if filled == block.capacity() {
                break RecvStatus::More;
            }
            match read(self, &mut block[filled..]) {
                Ok(0) => break RecvStatus::Closed,
                Ok(count) => filled += count,
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => break RecvStatus::Drained,
                    io::ErrorKind::Interrupted => {}
                    _ if filled == carried => return Err(error),
                    _ => {
                        // Deliver the bytes that arrived before the error first.
                        self.error = Some(error);
                        break RecvStatus::More;
                    }
                },
            }
        };
        self.adapt_read_bytes(filled, block.capacity());
        Ok(((filled > carried).then_some(ReadBlock { block, filled }), status))
    }

    /// Keeps the incomplete frame at the end of a block, which starts at `at`.
    pub(crate) fn keep_rest(&mut self, octets: &Packet, at: usize, pool: &mut Pool) {
        self.partial_frame =
            if at < octets.len() { pool.copy(&octets[at..]) } else { Packet::empty() };
    }

    #[inline]
    pub(crate) fn read(&mut self, octets: &mut [u8]) -> io::Result<usize> {
        if self.files_left.is_none() || !UntrustedFile::can_accept() {
            return (&self.socket).read(octets);
        }
        let mut files = Vec::new();
        let read = descriptor::receive(self.socket.as_fd(), octets, &mut files)?;
        files.into_iter().try_for_each(|file| self.keep_file(file))?;
        Ok(read)
    }

    #[cold]
    fn keep_file(&mut self, file: UntrustedFile) -> io::Result<()> {
        let left = self.files_left.and_then(|left| left.checked_sub(1));
        let refusal =
            || io::Error::new(io::ErrorKind::InvalidData, "the peer sent more than one file");
        self.files_left = Some(left.ok_or_else(refusal)?);
        self.file = Some(file);
        Ok(())
    }

    /// Takes the file that the peer has sent.
    pub(crate) fn take_file(&mut self) -> Option<UntrustedFile> {
        self.file.take()
    }

    /// Sends bytes that are in no link, as far as the socket accepts them. Returns their number.
    pub(crate) fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        loop {
            match self.socket.send_with_flags(octets, libc::MSG_NOSIGNAL) {
                Ok(sent) => return Ok(sent),
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => return Ok(0),
                    io::ErrorKind::Interrupted => {}
                    _ => return Err(error),
                },
            }
        }
    }

    /// Sends bytes that are in no link with one system call. Returns their number.
    ///
    /// # Errors
    /// WouldBlock if the socket is full; Interrupted; those of the connection.
    pub(crate) fn write_vectored(&self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        self.socket.send_vectored_with_flags(pieces, libc::MSG_NOSIGNAL)
    }

    /// Reports bytes that were [written](Self::write) to `link`, as part of the backlog.
    pub(crate) fn note_written(&mut self, bytes: u64, link: &mut Link) {
        self.backlog.after_send(&self.socket, bytes, link);
    }

    /// Changes the addresses of both ends, for a protocol over this connection.
    pub(crate) fn set_ends(&mut self, local: FaceUri, remote: FaceUri, is_local: bool) {
        (self.local, self.remote, self.is_local) = (local, remote, is_local);
    }

    /// Closes the connection if the peer's host stops responding.
    pub(crate) fn keep_alive(&self, keepalive: &TcpKeepalive) -> io::Result<()> {
        self.socket.set_tcp_keepalive(keepalive)
    }

    /// Sends the rest of a partially sent frame. Returns whether it is complete.
    pub(crate) fn finish_frame(&mut self, link: &mut Link) -> io::Result<bool> {
        while self.front_sent > 0 {
            let frame = link.frames().next().expect("what was sent in part is queued");
            let in_prefix = self.front_sent.min(frame.prefix().len());
            let in_payload = self.front_sent - in_prefix;
            let pieces = [&frame.prefix()[in_prefix..], &frame.payload()[in_payload..]];
            let pieces = pieces.map(IoSlice::new);
            match self.socket.send_vectored_with_flags(&pieces, libc::MSG_NOSIGNAL) {
                Ok(sent) => self.advance(link, sent),
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => return Ok(false),
                    io::ErrorKind::Interrupted => {}
                    _ => return Err(error),
                },
            }
        }
        Ok(true)
    }

    /// Whether no frame is partially sent.
    pub(crate) fn is_between_frames(&self) -> bool {
        self.front_sent == 0
    }

    pub(crate) fn discard_partial_frame(&mut self) {
        self.partial_frame = Packet::empty();
    }

    /// Cuts frames out of `octets` and keeps the rest. `Some` if framing is lost.
    fn cut(
        &mut self,
        octets: &Packet,
        pool: &mut Pool,
        frames: &mut Vec<Packet>,
    ) -> Option<RecvStatus> {
        match cut_frames(octets, frames) {
            Ok(at) => self.keep_rest(octets, at, pool),
            Err(error) => {
                self.discard_partial_frame();
                return Some(RecvStatus::FramingLost(error));
            }
        }
        None
    }

    fn adapt_read_bytes(&mut self, filled: usize, capacity: usize) {
        if filled == capacity {
            self.read_bytes = (self.read_bytes * 2).min(READ_BYTES_MAX);
            self.small_reads = 0;
        } else if filled * 4 > capacity {
            self.small_reads = 0;
        } else {
            self.small_reads += 1;
            if self.small_reads >= SMALL_READS_MAX {
                self.read_bytes = (self.read_bytes / 2).max(READ_BYTES_MIN);
                self.small_reads = 0;
            }
        }
    }

    /// Sends the link's queue, as far as the socket accepts it. A frame leaves the queue when its
    /// last byte is accepted, so a socket must always be used with the same link.
    pub fn send(&mut self, link: &mut Link) -> io::Result<SendStatus> {
        link.gather_runs(usize::from(self.front_sent > 0));
        let mut sent_bytes = 0;
        let result = loop {
            if link.is_egress_empty() {
                break Ok(SendStatus::Drained);
            }
            let sent = with_io_slices(link, self.front_sent, |pieces| {
                self.socket.send_vectored_with_flags(pieces, libc::MSG_NOSIGNAL)
            });
            match sent {
                Ok(sent) => {
                    sent_bytes += sent as u64;
                    self.advance(link, sent);
                }
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => break Ok(SendStatus::WouldBlock),
                    io::ErrorKind::Interrupted => {}
                    _ => break Err(error),
                },
            }
        };
        self.backlog.after_send(&self.socket, sent_bytes, link);
        result
    }

    /// Reports the socket's present backlog to `link`. Sending reports it as well.
    pub(crate) fn tell_backlog(&mut self, link: &mut Link) {
        self.backlog.update(&self.socket, link);
    }

    fn advance(&mut self, link: &mut Link, sent: usize) {
        // Count from the start of the oldest frame, which an earlier call may have sent in part.
        let mut left = self.front_sent + sent;
        let mut whole = 0;
        for frame in link.frames() {
            if left < frame.len() {
                break;
            }
            left -= frame.len();
            whole += 1;
        }
        self.front_sent = left;
        link.frames_sent(whole);
    }
}

/// Receives files that are still in the connection, so that another thread closes them. Otherwise
/// the system would close them in this thread, and closing may block.
impl Drop for StreamSocket {
    fn drop(&mut self) {
        if self.files_left.is_none() || self.socket.shutdown(Shutdown::Both).is_err() {
            return;
        }
        // After the shutdown, nothing more can arrive.
        let mut octets = [0; 16 * 1024];
        let mut files = Vec::new();
        while descriptor::receive(self.socket.as_fd(), &mut octets, &mut files)
            .is_ok_and(|read| read > 0)
        {}
    }
}

/// Appends the complete frames at the start of `octets` to `frames`, and returns their length.
pub(crate) fn cut_frames(octets: &Packet, frames: &mut Vec<Packet>) -> Result<usize, FrameError> {
    let mut at = 0;
    while let Some(len) = peek_frame(&octets[at..])? {
        if at + len > octets.len() {
            break;
        }
        frames.push(octets.slice(at..at + len));
        at += len;
    }
    Ok(at)
}

fn local_tcp_uri(socket: &Socket) -> FaceUri {
    let address = socket.local_addr().ok().and_then(|address| address.as_socket());
    FaceUri::Tcp(address.unwrap_or_else(|| ([0, 0, 0, 0], 0).into()))
}

impl fmt::Debug for StreamSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamSocket")
            .field("local", &self.local)
            .field("remote", &self.remote)
            .finish_non_exhaustive()
    }
}

socket_source!(StreamSocket);
