use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::AddAssign;
use std::os::fd::AsRawFd;

use socket2::{Domain, Socket, Type};
use weir_base::{Packet, PacketMut, Pool};
use weir_link::{Link, LinkDrop};
use weir_wire::PACKET_SIZE_MAX;

use crate::mmsg::{
    self, BATCH_MAX, Destination, IoSlices, OutgoingMessage, ReceiveTarget, ReceivedMessage,
};
use crate::padding::Padding;
use crate::socket::{
    BacklogEstimate, grow_receive_buffer, grow_send_buffer, set_int_option, socket_source,
};
use crate::status::{RecvStatus, SendStatus};
use crate::udp_path::{LocalAddress, UdpPath, UdpPeers};

/// A single datagram fits into a block of this size. Longer runs of datagrams continue in a second
/// block.
const HEAD_BYTES: usize = 16 * 1024;
/// The longest run of datagrams that the kernel delivers at once.
const RUN_BYTES_MAX: usize = 65_535;
/// Maximum number of datagrams that the kernel cuts out of one message. Newer kernels allow more
/// (UDP_MAX_SEGMENTS).
const RUN_SEGMENTS_MAX: usize = 64;
/// Maximum size of a sent run: 65,535 bytes without the headers of IPv4 and UDP.
const RUN_SENT_BYTES_MAX: usize = 65_507;
/// Datagrams up to this size are copied into a block of their own size.
const COPY_BYTES_MAX: usize = 2048;

/// Default MTU of UDP faces. NFD's default is 8800. On a real network, this needs IP fragments, and
/// one lost fragment loses the packet. So 8800 is for loopback only; 1420 fits common tunnels.
pub fn udp_mtu_default(peer: IpAddr) -> usize {
    if peer.to_canonical().is_loopback() { PACKET_SIZE_MAX } else { 1420 }
}

/// Options of a [`UdpPort`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UdpOptions {
    /// Requested receive buffer. Linux counts its own overhead, so half of it holds payload.
    pub receive_buffer_bytes: usize,
    /// Requested send buffer.
    pub send_buffer_bytes: usize,
    /// Whether the kernel may cut and join runs of datagrams (GSO, GRO), if it can.
    pub offload: bool,
    /// Whether `recvmmsg` and `sendmmsg` are used, if they exist.
    pub batch: bool,
    /// Whether each datagram reports when the kernel received it, if possible.
    pub timestamps: bool,
    /// Whether datagrams report the local address that they were sent to, on a port bound to all
    /// addresses. Answers are sent from there ([`UdpPath::local`]). Not needed with a single peer.
    pub local_addresses: bool,
}

impl Default for UdpOptions {
    fn default() -> Self {
        Self {
            receive_buffer_bytes: 8 << 20,
            send_buffer_bytes: 4 << 20,
            offload: true,
            batch: true,
            timestamps: false,
            local_addresses: true,
        }
    }
}

#[derive(Clone, Debug)]
pub struct Datagram {
    /// The sender, and the local address that it sent to.
    pub path: UdpPath,
    /// The key passed to [`UdpPort::add_peer`]; `None` for an unknown peer.
    pub key: Option<u64>,
    /// The payload, a slice of the block that it was received into.
    pub frame: Packet,
    /// When the kernel received it, in ns since the Unix epoch, with [`UdpOptions::timestamps`].
    /// The datagrams of a run have the same time.
    pub received_unix_ns: Option<u64>,
}

/// Counters of errors at a [`UdpPort`].
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct UdpCounters {
    /// Datagrams that the kernel dropped because the receive buffer was full (SO_RXQ_OVFL).
    pub receive_overflows: u64,
    /// Datagrams dropped because they are longer than any packet.
    pub truncated: u64,
    /// Errors that the system reported while receiving. They close nothing.
    pub receive_errors: u64,
    /// Datagrams dropped because they could not be sent.
    pub send_errors: u64,
}

impl AddAssign for UdpCounters {
    fn add_assign(&mut self, other: Self) {
        self.receive_overflows += other.receive_overflows;
        self.truncated += other.truncated;
        self.receive_errors += other.receive_errors;
        self.send_errors += other.send_errors;
    }
}

/// The result of [`UdpPort::send_frames`].
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct FramesSent {
    /// Number of leading frames that were sent or refused. Less than all if the socket is full.
    pub done: usize,
    /// How many of them the system refused to send. Also counted in [`UdpCounters::send_errors`].
    pub refused: usize,
    pub refused_bytes: usize,
}

#[derive(Debug, Default)]
struct ReceiveSlot {
    head: Option<PacketMut>,
    rest: Option<PacketMut>,
}

/// One UDP socket with any number of peers. It is not connected, so errors of one peer do not
/// affect others.
pub struct UdpPort {
    socket: Socket,
    local: SocketAddr,
    peers: UdpPeers,
    slots: Vec<ReceiveSlot>,
    received: Vec<ReceivedMessage>,
    is_batched: bool,
    /// Whether runs are received as one message (GRO).
    is_joined: bool,
    /// Frames up to this size are sent in runs (GSO); 0 disables runs.
    run_frame_max: usize,
    padding: Padding,
    backlog: BacklogEstimate,
    overflows_seen: u32,
    missing_features: Vec<&'static str>,
    counters: UdpCounters,
}

impl UdpPort {
    /// Binds to `address`; port 0 selects any free port. An IPv6 port accepts no IPv4 peers.
    pub fn bind(address: SocketAddr, options: &UdpOptions) -> io::Result<Self> {
        Self::bind_socket(Self::unbound(address)?, address, options)
    }

    /// Uses a socket that is already bound to `address`.
    pub(crate) fn inherited(
        socket: Socket,
        address: SocketAddr,
        options: &UdpOptions,
    ) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Self::configured(socket, address, options)
    }

    pub(crate) fn unbound(address: SocketAddr) -> io::Result<Socket> {
        Socket::new(Domain::for_address(address), Type::DGRAM, None)
    }

    pub(crate) fn bind_socket(
        socket: Socket,
        address: SocketAddr,
        options: &UdpOptions,
    ) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        if address.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        let port = Self::configured(socket, address, options)?;
        port.socket.bind(&address.into())?;
        let local = port.socket.local_addr()?.as_socket().unwrap_or(address);
        Ok(Self { local, ..port })
    }

    /// Sets the options of a socket for `local`.
    fn configured(socket: Socket, local: SocketAddr, options: &UdpOptions) -> io::Result<Self> {
        grow_receive_buffer(&socket, options.receive_buffer_bytes);
        grow_send_buffer(&socket, options.send_buffer_bytes);
        // If this fails, only the count of such drops is missing.
        let _ = set_int_option(&socket, libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 1);
        if options.timestamps {
            // If this fails, `Datagram::received_unix_ns` stays `None`.
            let _ = set_int_option(&socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1);
        }
        let mut lacking = Vec::new();
        let mut try_out = |what, is_wanted: bool, is_there: &dyn Fn() -> bool| {
            let has = is_wanted && is_there();
            lacking.extend((is_wanted && !has).then_some(what));
            has
        };
        let set = |option, value| set_int_option(&socket, libc::SOL_UDP, option, value).is_ok();
        // Setting UDP_SEGMENT to 0 changes nothing: it only tests support.
        let is_joined = try_out("UDP_GRO", options.offload, &|| set(libc::UDP_GRO, 1));
        let cuts_runs = try_out("UDP_SEGMENT", options.offload, &|| set(libc::UDP_SEGMENT, 0));
        // Test support before any message is sent. Some system call filters return EPERM, and a
        // firewall returns the same error for a single message.
        let batches = || mmsg::is_supported(socket.as_raw_fd());
        let is_batched = try_out("sendmmsg and recvmmsg", options.batch, &batches);
        // A port bound to one address always sends from it.
        let wants_local = options.local_addresses && local.ip().is_unspecified();
        let (level, option, name) = match local {
            SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_PKTINFO, "IP_PKTINFO"),
            SocketAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, "IPV6_RECVPKTINFO"),
        };
        let tell_local = || set_int_option(&socket, level, option, 1).is_ok();
        let knows_local = try_out(name, wants_local, &tell_local);
        Ok(Self {
            socket,
            local,
            peers: UdpPeers::new(knows_local),
            slots: Vec::new(),
            received: Vec::with_capacity(BATCH_MAX),
            is_batched,
            is_joined,
            run_frame_max: if cuts_runs { usize::from(u16::MAX) } else { 0 },
            padding: Padding::default(),
            backlog: BacklogEstimate::default(),
            overflows_seen: 0,
            missing_features: lacking,
            counters: UdpCounters::default(),
        })
    }

    pub(crate) fn socket(&self) -> &Socket {
        &self.socket
    }

    /// The bound address.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Options of [`UdpOptions`] that the system does not support, by the names that operators
    /// know. Each packet then costs more processor time.
    pub fn missing_features(&self) -> &[&'static str] {
        &self.missing_features
    }

    /// The granted receive buffer in bytes.
    pub fn receive_buffer_bytes(&self) -> io::Result<usize> {
        // Linux doubles the requested size for its own overhead.
        self.socket.recv_buffer_size().map(|bytes| bytes / 2)
    }

    /// Registers a peer: datagrams over `path` carry `key` from now on.
    pub fn add_peer(&mut self, path: UdpPath, key: u64) {
        self.peers.add(path, key);
    }

    /// Unregisters the peer of `path`.
    pub fn remove_peer(&mut self, path: UdpPath) {
        self.peers.remove(path);
    }

    /// The key of the peer at `path`.
    pub fn peer_key(&self, path: UdpPath) -> Option<u64> {
        self.peers.key(path)
    }

    /// Error counters.
    pub fn counters(&self) -> UdpCounters {
        self.counters
    }

    /// Receives one batch and appends it to `datagrams`. Never returns [`RecvStatus::Closed`].
    ///
    /// # Errors
    /// Only if the socket itself is broken. Errors caused by peers are counted.
    pub fn recv(
        &mut self,
        pool: &mut Pool,
        datagrams: &mut Vec<Datagram>,
    ) -> io::Result<RecvStatus> {
        self.fill_slots(pool);
        self.received.clear();
        let mut targets = self.slots.iter_mut().map(|slot| ReceiveTarget {
            head: slot.head.as_deref_mut().expect("filled above"),
            rest: slot.rest.as_deref_mut().unwrap_or_default(),
        });
        let mut batch: [ReceiveTarget<'_>; BATCH_MAX] =
            std::array::from_fn(|_| targets.next().expect("as many slots as targets"));
        let fd = self.socket.as_raw_fd();
        match mmsg::receive(fd, &mut batch, self.is_batched, &mut self.received) {
            Ok(()) => {}
            Err(error) => return self.on_receive_error(error),
        }
        let arrivals = std::mem::take(&mut self.received);
        for (index, arrival) in arrivals.iter().enumerate() {
            self.deliver(index, arrival, pool, datagrams);
        }
        let is_full = arrivals.len() == BATCH_MAX;
        self.received = arrivals;
        Ok(if is_full { RecvStatus::More } else { RecvStatus::Drained })
    }

    fn on_receive_error(&mut self, error: io::Error) -> io::Result<RecvStatus> {
        match error.raw_os_error() {
            Some(libc::EAGAIN) => Ok(RecvStatus::Drained),
            Some(libc::EINTR) => Ok(RecvStatus::More),
            Some(libc::EBADF | libc::ENOTSOCK | libc::EFAULT | libc::EINVAL) => Err(error),
            _ => {
                self.counters.receive_errors += 1;
                Ok(RecvStatus::More)
            }
        }
    }

    fn fill_slots(&mut self, pool: &mut Pool) {
        self.slots.resize_with(BATCH_MAX, ReceiveSlot::default);
        // Slots keep the blocks that received nothing, or only short datagrams.
        for slot in &mut self.slots {
            let head = slot.head.get_or_insert_with(|| pool.alloc(HEAD_BYTES));
            if self.is_joined && slot.rest.is_none() {
                slot.rest = Some(pool.alloc(RUN_BYTES_MAX - head.capacity()));
            }
        }
    }

    fn deliver(
        &mut self,
        index: usize,
        arrival: &ReceivedMessage,
        pool: &mut Pool,
        datagrams: &mut Vec<Datagram>,
    ) {
        // The kernel's counter has 32 bits and wraps.
        if let Some(overflows) = arrival.overflows {
            let more = overflows.wrapping_sub(self.overflows_seen);
            self.counters.receive_overflows += u64::from(more);
            self.overflows_seen = overflows;
        }
        if arrival.is_truncated {
            self.counters.truncated += 1;
            return;
        }
        let Some(remote) = arrival.peer.filter(|_| arrival.len > 0) else {
            return;
        };
        let path = UdpPath { remote, local: arrival.local };
        let key = self.peers.key_of_datagram(path);
        let taken_in_unix_ns = arrival.received_unix_ns;
        let mut push = |frame| {
            datagrams.push(Datagram { path, key, frame, received_unix_ns: taken_in_unix_ns })
        };
        let slot = &mut self.slots[index];
        let head_capacity = slot.head.as_ref().map_or(0, PacketMut::capacity);
        let head_len = arrival.len.min(head_capacity);
        let rest_len = arrival.len - head_len;
        // Short messages are copied, so that the large block can receive again.
        let head = match slot.head.take().expect("received into") {
            head if arrival.len <= COPY_BYTES_MAX => {
                let copy = pool.copy(&head[..head_len]);
                slot.head = Some(head);
                copy
            }
            head => head.freeze(head_len),
        };
        let rest = match rest_len {
            0 => Packet::empty(),
            _ => slot.rest.take().expect("received into").freeze(rest_len),
        };
        // Cut a run into its datagrams. One of them may lie across both blocks.
        for start in (0..arrival.len).step_by(arrival.segment) {
            let end = (start + arrival.segment).min(arrival.len);
            if end <= head_len {
                push(head.slice(start..end));
            } else if start >= head_len {
                push(rest.slice(start - head_len..end - head_len));
            } else {
                let mut joined = pool.alloc(end - start);
                let (first, second) = joined[..end - start].split_at_mut(head_len - start);
                first.copy_from_slice(&head[start..]);
                second.copy_from_slice(&rest[..end - head_len]);
                push(joined.freeze(end - start));
            }
        }
    }

    /// Sends the link's queue over `path`. If the system supports runs, frames of similar length
    /// are padded to the same length; the link does not count the padding. Datagrams that the
    /// system refuses (too long, unreachable, no buffers) are dropped, and counted in the link as
    /// [`LinkDrop::SocketRefused`].
    pub fn send(&mut self, path: UdpPath, link: &mut Link) -> io::Result<SendStatus> {
        link.gather_runs(0);
        let destination = self.destination(path);
        let sent_before = link.counters().out_bytes;
        let result = loop {
            if link.is_egress_empty() {
                break Ok(SendStatus::Drained);
            }
            // A run needs frames of equal length, so pad them first.
            self.padding.plan(link.frames(), self.run_frame_max.min(link.config().codec.mtu));
            let mut plan = SendPlan::new();
            let frames = link.frames().enumerate().map(|(index, frame)| {
                (self.padding.prefix_of(index, frame.prefix()), &frame.payload()[..])
            });
            plan.fill(frames, self.run_frame_max);
            let sent = mmsg::send(
                self.socket.as_raw_fd(),
                &destination,
                &plan.pieces,
                plan.messages(),
                self.is_batched,
            );
            match sent {
                Ok(count) => {
                    let frames = plan.frame_counts[..count].iter().sum();
                    link.frames_sent(frames);
                }
                Err(error) => {
                    let (departure, frame_count) = (plan.messages[0], plan.frame_counts[0]);
                    match self.on_send_error(error, departure, destination.source) {
                        Ok(AfterError::Retry) => {}
                        Ok(AfterError::Wait) => break Ok(SendStatus::WouldBlock),
                        Ok(AfterError::Drop) => {
                            self.counters.send_errors += frame_count as u64;
                            for _ in 0..frame_count {
                                link.discard_front(LinkDrop::SocketRefused);
                            }
                        }
                        Err(error) => break Err(error),
                    }
                }
            }
        };
        let sent_bytes = link.counters().out_bytes - sent_before;
        self.backlog.after_send(&self.socket, sent_bytes, link);
        result
    }

    /// Reports the socket's present backlog to `link`. Sending reports it as well.
    pub fn tell_backlog(&mut self, link: &mut Link) {
        self.backlog.update(&self.socket, link);
    }

    fn destination(&self, path: UdpPath) -> Destination {
        Destination { address: path.remote.into(), source: self.peers.source_of(path) }
    }

    /// Sends `frames` over `path`, one datagram each, without a [`Link`].
    pub fn send_frames(&mut self, path: UdpPath, frames: &[Packet]) -> io::Result<FramesSent> {
        let destination = self.destination(path);
        let mut result = FramesSent::default();
        while result.done < frames.len() {
            let mut plan = SendPlan::new();
            let rest = frames[result.done..].iter().map(|frame| (&[][..], &frame[..]));
            plan.fill(rest, self.run_frame_max);
            let fd = self.socket.as_raw_fd();
            let (pieces, departures) = (&plan.pieces, plan.messages());
            let sent = mmsg::send(fd, &destination, pieces, departures, self.is_batched);
            match sent {
                Ok(count) => result.done += plan.frame_counts[..count].iter().sum::<usize>(),
                Err(error) => {
                    match self.on_send_error(error, plan.messages[0], destination.source)? {
                        AfterError::Retry => {}
                        AfterError::Wait => break,
                        AfterError::Drop => {
                            let count = plan.frame_counts[0];
                            let refused = &frames[result.done..result.done + count];
                            result.refused += count;
                            result.refused_bytes += refused.iter().map(|f| f.len()).sum::<usize>();
                            result.done += count;
                            self.counters.send_errors += count as u64;
                        }
                    }
                }
            }
        }
        Ok(result)
    }

    /// Decides what to do after an error about the first of several messages.
    fn on_send_error(
        &mut self,
        error: io::Error,
        departure: OutgoingMessage,
        source: Option<LocalAddress>,
    ) -> io::Result<AfterError> {
        match error.raw_os_error() {
            Some(libc::EAGAIN) => Ok(AfterError::Wait),
            Some(libc::EINTR) => Ok(AfterError::Retry),
            // This host no longer has the source address. The error is not about runs, so runs to
            // other peers stay enabled.
            Some(libc::EINVAL) if source.is_some_and(|source| !source.is_assigned()) => {
                Ok(AfterError::Drop)
            }
            // The route's MTU is smaller than the segment size. Such frames must be sent one by
            // one, as IP fragments.
            Some(libc::EINVAL | libc::EMSGSIZE) if departure.segment != 0 => {
                self.run_frame_max = usize::from(departure.segment) - 1;
                Ok(AfterError::Retry)
            }
            // The network device does not support runs.
            Some(libc::EIO | libc::EOPNOTSUPP) if departure.segment != 0 => {
                self.run_frame_max = 0;
                Ok(AfterError::Retry)
            }
            Some(libc::EBADF | libc::ENOTSOCK | libc::EFAULT) => Err(error),
            _ => Ok(AfterError::Drop),
        }
    }
}

/// The reaction to a send error.
enum AfterError {
    Retry,
    /// Wait until the socket is writable.
    Wait,
    /// The first message cannot be sent.
    Drop,
}

/// The messages of one send call.
struct SendPlan<'a> {
    pieces: IoSlices<'a>,
    messages: [OutgoingMessage; BATCH_MAX],
    frame_counts: [usize; BATCH_MAX],
    count: usize,
    /// Bytes of the last message, and whether more frames may join it.
    run_bytes: usize,
    is_run_open: bool,
}

impl<'a> SendPlan<'a> {
    fn new() -> Self {
        Self {
            pieces: IoSlices::new(),
            messages: [OutgoingMessage::default(); BATCH_MAX],
            frame_counts: [0; BATCH_MAX],
            count: 0,
            run_bytes: 0,
            is_run_open: false,
        }
    }

    fn messages(&self) -> &[OutgoingMessage] {
        &self.messages[..self.count]
    }

    /// Adds frames until a limit is reached. Each frame has two parts; one may be empty.
    fn fill(&mut self, frames: impl Iterator<Item = (&'a [u8], &'a [u8])>, run_frame_max: usize) {
        for frame in frames {
            let len = frame.0.len() + frame.1.len();
            let joins = self.is_run_open && self.may_join(len);
            if self.pieces.free() < 2 || (!joins && self.count == BATCH_MAX) {
                break;
            }
            if joins {
                let latest = self.count - 1;
                let segment = self.frame_size(latest);
                self.messages[latest].segment = segment as u16;
                // A shorter frame ends the run.
                self.is_run_open = len == segment;
            } else {
                self.count += 1;
                self.run_bytes = 0;
                self.is_run_open = len <= run_frame_max;
            }
            self.run_bytes += len;
            self.add(frame);
        }
    }

    /// Whether a frame of `len` bytes may join the last message. All frames of a run have the same
    /// size, except that the last may be shorter.
    fn may_join(&self, len: usize) -> bool {
        let latest = self.count - 1;
        len <= self.frame_size(latest)
            && self.frame_counts[latest] < RUN_SEGMENTS_MAX
            && self.run_bytes + len <= RUN_SENT_BYTES_MAX
    }

    /// Size of the frames of an open run.
    fn frame_size(&self, departure: usize) -> usize {
        self.run_bytes / self.frame_counts[departure]
    }

    fn add(&mut self, (prefix, payload): (&'a [u8], &'a [u8])) {
        let latest = self.count - 1;
        for octets in [prefix, payload] {
            if !octets.is_empty() {
                self.pieces.push(octets);
                self.messages[latest].slice_count += 1;
            }
        }
        self.frame_counts[latest] += 1;
    }
}

impl fmt::Debug for UdpPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UdpPort")
            .field("local", &self.local)
            .field("peers", &self.peers.len())
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}

socket_source!(UdpPort);

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn stale_source_keeps_runs_of_other_peers() {
        let all = (Ipv4Addr::UNSPECIFIED, 0).into();
        let mut port = UdpPort::bind(all, &UdpOptions::default()).unwrap();
        let runs_before = port.run_frame_max;
        let frames: Vec<Packet> = (0..10).map(|_| Packet::from(&[7; 500][..])).collect();
        let local = LocalAddress { ip: Ipv4Addr::new(192, 0, 2, 77).into(), interface: 0 };
        let remote = (Ipv4Addr::LOCALHOST, 6363).into();
        let sent = port.send_frames(UdpPath { remote, local: Some(local) }, &frames).unwrap();
        assert_eq!((sent.done, sent.refused), (10, 10));
        assert_eq!(port.run_frame_max, runs_before);
    }
}
