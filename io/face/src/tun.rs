//! TUN devices: IPv6 packets, exchanged with the kernel of this host (decision 0049).
//!
//! Every system call carries one packet. The kernel handles a written packet within the call, as
//! if it had arrived over a network: it forwards the packet along its routes.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::Ipv6Addr;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

use weir_base::{Packet, Pool};
use weir_link::{HicnConfig, Link, LinkConfig, LinkDrop};

use crate::socket::socket_source;
use crate::status::{RecvStatus, SendStatus};
use crate::uri::{DEVICE_NAME_MAX, FaceUri};

const TUN_PATH: &str = "/dev/net/tun";
/// The block for the packets of one read.
const READ_BYTES: usize = 64 * 1024;
/// Free bytes that a packet needs in the block. No hICN packet is longer, because NDN packets are
/// not.
const PACKET_BYTES_MAX: usize = 9 * 1024;
/// Bytes of the longest IPv6 packet that do not fit into [`PACKET_BYTES_MAX`].
const OVERFLOW_BYTES: usize = 40 + 65_535 - PACKET_BYTES_MAX;
/// Maximum number of packets of one read, so that no device starves other faces.
const PACKETS_PER_READ: usize = 64;

/// A TUN device with hICN packets.
pub(crate) struct TunSocket {
    file: File,
    device: String,
    /// Largest packet of the device, in bytes, when it was opened.
    mtu: usize,
    /// The source of our Interests.
    locator: Option<Ipv6Addr>,
    local: FaceUri,
    remote: FaceUri,
    overflow: Box<[u8]>,
}

impl TunSocket {
    /// Opens the TUN device with this name. An administrator must have created it, for the user of
    /// this process, and enabled it. Needs no other right.
    ///
    /// # Errors
    /// The device does not exist, is no TUN device, is down, is in use, or may not be opened.
    pub(crate) fn open(device: &str, locator: Option<Ipv6Addr>) -> io::Result<Self> {
        let status = DeviceStatus::of(device)?;
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(TUN_PATH)
            .map_err(|error| with_text(&error, format!("cannot open {TUN_PATH}: {error}")))?;
        let mut request = device_request(device)?;
        request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short;
        // SAFETY: the request outlives the call, which reads and writes one `ifreq`.
        let result =
            unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF as _, &raw mut request) };
        if result < 0 {
            return Err(attach_error(device, &io::Error::last_os_error()));
        }
        // Only now, so that a foreign device is named as such.
        if !status.is_up {
            return Err(down_error(device));
        }
        Ok(Self {
            file,
            device: device.to_owned(),
            mtu: status.mtu,
            locator,
            local: FaceUri::Device(device.to_owned()),
            remote: FaceUri::HicnTun { device: device.to_owned(), locator },
            overflow: vec![0; OVERFLOW_BYTES].into(),
        })
    }

    /// Appends the packets of one read to `frames`, at most [`PACKETS_PER_READ`].
    ///
    /// # Errors
    /// The device was removed. Packets before were appended by an earlier call.
    pub(crate) fn recv(
        &mut self,
        pool: &mut Pool,
        frames: &mut Vec<Packet>,
    ) -> io::Result<RecvStatus> {
        let mut block = pool.alloc(READ_BYTES);
        let (mut ends, mut count, mut filled) = ([0; PACKETS_PER_READ], 0, 0);
        let mut oversized = None;
        let status = loop {
            if count == PACKETS_PER_READ || block.capacity() - filled < PACKET_BYTES_MAX {
                break RecvStatus::More;
            }
            let head = &mut block[filled..filled + PACKET_BYTES_MAX];
            let mut pieces = [IoSliceMut::new(head), IoSliceMut::new(&mut self.overflow)];
            match (&self.file).read_vectored(&mut pieces) {
                Ok(0) => break RecvStatus::Drained,
                Ok(len) if len > PACKET_BYTES_MAX => {
                    let mut whole = pool.alloc(len);
                    whole[..PACKET_BYTES_MAX].copy_from_slice(head);
                    whole[PACKET_BYTES_MAX..len]
                        .copy_from_slice(&self.overflow[..len - PACKET_BYTES_MAX]);
                    oversized = Some(whole.freeze(len));
                    break RecvStatus::More;
                }
                Ok(len) => {
                    filled += len;
                    ends[count] = filled;
                    count += 1;
                }
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => break RecvStatus::Drained,
                    io::ErrorKind::Interrupted => {}
                    _ if count == 0 => return Err(self.explain(error)),
                    // The next call returns the error.
                    _ => break RecvStatus::More,
                },
            }
        };
        let block = block.freeze(filled);
        let mut start = 0;
        for &end in &ends[..count] {
            frames.push(block.slice(start..end));
            start = end;
        }
        frames.extend(oversized);
        Ok(status)
    }

    /// Sends the link's queue. Packets that the kernel refuses are dropped, and counted in the link
    /// as [`LinkDrop::SocketRefused`].
    ///
    /// # Errors
    /// The device was removed, or is down.
    pub(crate) fn send(&mut self, link: &mut Link) -> io::Result<SendStatus> {
        link.gather_runs(0);
        while !link.is_egress_empty() {
            let (mut sent, mut end) = (0, None);
            for frame in link.frames() {
                let pieces = [IoSlice::new(frame.prefix()), IoSlice::new(frame.payload())];
                match (&self.file).write_vectored(&pieces) {
                    Ok(written) => {
                        debug_assert_eq!(written, frame.len(), "a packet is accepted as a whole");
                        sent += 1;
                    }
                    Err(error) => {
                        end = Some(error);
                        break;
                    }
                }
            }
            link.frames_sent(sent);
            let Some(error) = end else { continue };
            match error.raw_os_error() {
                Some(libc::EAGAIN) => return Ok(SendStatus::WouldBlock),
                Some(libc::EINTR) => {}
                Some(libc::EIO | libc::EBADFD) => return Err(self.explain(error)),
                _ => link.discard_front(LinkDrop::SocketRefused),
            }
        }
        Ok(SendStatus::Drained)
    }

    /// The kernel handles packets within the call, so none wait.
    #[allow(clippy::unused_self, reason = "same signature for sockets of all kinds")]
    pub(crate) fn tell_backlog(&mut self, link: &mut Link) {
        link.set_socket_backlog(0);
    }

    pub(crate) fn local_uri(&self) -> &FaceUri {
        &self.local
    }

    pub(crate) fn remote_uri(&self) -> &FaceUri {
        &self.remote
    }

    #[allow(clippy::unused_self, reason = "same signature for sockets of all kinds")]
    pub(crate) fn is_local(&self) -> bool {
        false
    }

    /// Packets are always complete.
    #[allow(clippy::unused_self, reason = "same signature for sockets of all kinds")]
    pub(crate) fn held_bytes(&self) -> usize {
        0
    }

    pub(crate) fn link_config(&self) -> LinkConfig {
        // Without a locator, the link drops Interests.
        let locator = self.locator.unwrap_or(Ipv6Addr::UNSPECIFIED);
        LinkConfig::hicn(self.mtu, HicnConfig { locator, ..HicnConfig::default() })
    }

    fn explain(&self, error: io::Error) -> io::Error {
        match error.raw_os_error() {
            Some(libc::EIO) => down_error(&self.device),
            Some(libc::EBADFD) => {
                with_text(&error, format!("the network device {} was removed", self.device))
            }
            _ => error,
        }
    }
}

impl FaceUri {
    /// The MTU of the network device of a face, in bytes, if it is a TUN device that exists.
    pub fn device_mtu(&self) -> Option<usize> {
        let Self::HicnTun { device, .. } = self else { return None };
        DeviceStatus::of(device).ok().map(|status| status.mtu)
    }
}

impl fmt::Debug for TunSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TunSocket").field("remote", &self.remote).finish_non_exhaustive()
    }
}

socket_source!(TunSocket, file);

/// The state of a network device.
struct DeviceStatus {
    is_up: bool,
    mtu: usize,
}

impl DeviceStatus {
    fn of(device: &str) -> io::Result<Self> {
        // Any socket can query network devices. IPv6 may be disabled.
        let (domain, kind) = (socket2::Domain::UNIX, socket2::Type::DGRAM);
        let socket = socket2::Socket::new(domain, kind, None)?;
        let mut request = device_request(device)?;
        let mut query = |number: libc::Ioctl| {
            // SAFETY: the request outlives the call, which reads and writes one `ifreq`.
            let result = unsafe { libc::ioctl(socket.as_raw_fd(), number, &raw mut request) };
            match result {
                0 => Ok(request.ifr_ifru),
                _ => Err(device_error(device, &io::Error::last_os_error())),
            }
        };
        // SAFETY: SIOCGIFFLAGS fills in the flags.
        let flags = unsafe { query(libc::SIOCGIFFLAGS as libc::Ioctl)?.ifru_flags };
        // SAFETY: SIOCGIFMTU fills in the MTU.
        let mtu = unsafe { query(libc::SIOCGIFMTU as libc::Ioctl)?.ifru_mtu };
        let is_up = libc::c_int::from(flags) & libc::IFF_UP != 0;
        Ok(Self { is_up, mtu: usize::try_from(mtu).unwrap_or(0) })
    }
}

/// A request about a device.
fn device_request(device: &str) -> io::Result<libc::ifreq> {
    // A longer name would be cut, and could be that of another device.
    if device.len() > DEVICE_NAME_MAX {
        let text =
            format!("{device}: names of network devices have at most {DEVICE_NAME_MAX} bytes");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    // SAFETY: a plain C structure for which zeros are valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name[..DEVICE_NAME_MAX].iter_mut().zip(device.bytes()) {
        *to = from as libc::c_char;
    }
    Ok(request)
}

fn with_text(error: &io::Error, text: String) -> io::Error {
    io::Error::new(error.kind(), text)
}

fn device_error(device: &str, error: &io::Error) -> io::Error {
    let text = match error.raw_os_error() {
        Some(libc::ENODEV | libc::ENXIO) => format!(
            "there is no network device {device}; an administrator can create it with `ip tuntap \
             add dev {device} mode tun user USER`"
        ),
        _ => format!("cannot query the network device {device}: {error}"),
    };
    with_text(error, text)
}

fn attach_error(device: &str, error: &io::Error) -> io::Error {
    let text = match error.raw_os_error() {
        Some(libc::EINVAL) => {
            format!("{device} is not a TUN device with one queue (`ip tuntap add ... mode tun`)")
        }
        Some(libc::EBUSY) => format!(
            "the TUN device {device} is in use, by another program or another face of this router"
        ),
        Some(libc::EPERM) => format!(
            "this user may not use the TUN device {device}; an administrator must create it with \
             `user USER` or `group GROUP`"
        ),
        _ => format!("cannot use the TUN device {device}: {error}"),
    };
    with_text(error, text)
}

fn down_error(device: &str) -> io::Error {
    let text = format!(
        "the network device {device} is down; an administrator must run `ip link set {device} up`"
    );
    io::Error::new(io::ErrorKind::NetworkDown, text)
}
