//! Steering of UDP datagrams: which of several sockets at one port receives a peer's datagrams. A
//! classic BPF program in the kernel hashes the sender's address and port; [`steered_to`] computes
//! the same.

use std::io;
use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;

use libc::{
    BPF_ABS, BPF_ADD, BPF_ALU, BPF_B, BPF_H, BPF_IND, BPF_K, BPF_LD, BPF_LDX, BPF_MISC, BPF_MOD,
    BPF_MSH, BPF_MUL, BPF_RET, BPF_RSH, BPF_TAX, BPF_W, BPF_X, BPF_XOR, SKF_NET_OFF, sock_filter,
    sock_fprog,
};
use socket2::Socket;

use crate::udp::{UdpOptions, UdpPort};

/// Spreads sums of address and port: 2^32 divided by the golden ratio.
const FACTOR: u32 = 0x9E37_79B9;
/// The upper half of a product is spread best.
const SHIFT: u32 = 16;
/// Offset of the source address in the IPv4 header (RFC 791) and the IPv6 header (RFC 8200).
const SOURCE_V4_AT: u32 = 12;
const SOURCE_V6_AT: u32 = 8;
const HEADER_V6_BYTES: u32 = 40;
/// Upper limit for datagrams in a receive buffer. The kernel counts at least 700 bytes for each.
const QUEUED_MAX: usize = 1 << 15;
/// From linux/filter.h: return A.
const BPF_A: u32 = 0x10;
/// From asm-generic/socket.h.
const SO_ATTACH_REUSEPORT_CBPF: libc::c_int = 51;

/// Index of the socket that receives datagrams of `peer`, among `count` sockets at one port. The
/// index is wrong for senders whose IPv6 headers have extensions: the program expects the UDP
/// header right after the IPv6 header.
pub fn steered_to(peer: SocketAddr, count: usize) -> usize {
    let address = match peer.ip().to_canonical() {
        IpAddr::V4(address) => address.to_bits(),
        IpAddr::V6(address) => {
            let bits = address.to_bits();
            [96, 64, 32, 0].iter().fold(0, |folded, shift| folded ^ (bits >> shift) as u32)
        }
    };
    let number = address.wrapping_add(peer.port().into()).wrapping_mul(FACTOR) >> SHIFT;
    number as usize % count
}

impl UdpPort {
    /// Binds several sockets to one port, one for each thread. A peer's datagrams arrive at the
    /// socket that [`steered_to`] selects. If the system allows no more sockets or cannot steer,
    /// returns a single socket and the reason. No other program can use the port, unless it
    /// requests sharing (SO_REUSEPORT) as the same user.
    pub fn bind_all(
        address: SocketAddr,
        count: usize,
        options: &UdpOptions,
    ) -> io::Result<(Vec<Self>, io::Result<()>)> {
        // The first bind is exclusive: two routers must not share a port by accident.
        let first = Self::bind(address, options)?;
        Ok(Self::share_all(first, count, options))
    }

    /// Binds the other sockets at the port of `first`, or returns it alone and the reason.
    pub(crate) fn share_all(
        first: Self,
        count: usize,
        options: &UdpOptions,
    ) -> (Vec<Self>, io::Result<()>) {
        match first.share(count, options) {
            Ok(others) => ([first].into_iter().chain(others).collect(), Ok(())),
            Err(error) => {
                // Sharing failed, so make the port exclusive again.
                let _ = first.socket().set_reuse_port(false);
                (vec![first], Err(error))
            }
        }
    }

    /// Binds the other sockets at this port.
    fn share(&self, count: usize, options: &UdpOptions) -> io::Result<Vec<Self>> {
        if count == 1 {
            return Ok(Vec::new());
        }
        self.socket().set_reuse_port(true)?;
        let bind = |_| {
            let socket = Self::unbound(self.local_addr())?;
            socket.set_reuse_port(true)?;
            Self::bind_socket(socket, self.local_addr(), options)
        };
        let others = (1..count).map(bind).collect::<io::Result<Vec<Self>>>()?;
        steer(self.socket(), self.local_addr().is_ipv6(), count)?;
        // Until `steer`, the system distributed datagrams arbitrarily. Their senders would get
        // faces at threads that do not receive their later datagrams.
        others.iter().chain([self]).for_each(Self::discard_queued);
        Ok(others)
    }

    fn discard_queued(&self) {
        for _ in 0..QUEUED_MAX {
            if self.socket().recv(&mut [MaybeUninit::uninit()]).is_err() {
                return;
            }
        }
    }
}

/// Makes the kernel steer datagrams among the `count` sockets at the port of `socket`.
fn steer(socket: &Socket, is_ipv6: bool, count: usize) -> io::Result<()> {
    let mut program = match is_ipv6 {
        true => source_v6(),
        false => source_v4(),
    };
    // A and X hold the address and the port, in either order: the program adds them.
    program.extend([
        op(BPF_ALU | BPF_ADD | BPF_X, 0),
        op(BPF_ALU | BPF_MUL | BPF_K, FACTOR),
        op(BPF_ALU | BPF_RSH | BPF_K, SHIFT),
        op(BPF_ALU | BPF_MOD | BPF_K, count as u32),
        op(BPF_RET | BPF_A, 0),
    ]);
    let program = sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: pointer and length describe `program`. It and its filter outlive the call; the kernel
    // copies both.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_ATTACH_REUSEPORT_CBPF,
            (&raw const program).cast(),
            size_of::<sock_fprog>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Loads the address into A and the port into X. The header may have options.
fn source_v4() -> Vec<sock_filter> {
    vec![
        op(BPF_LDX | BPF_MSH | BPF_B, in_header(0)),
        op(BPF_LD | BPF_IND | BPF_H, in_header(0)),
        op(BPF_MISC | BPF_TAX, 0),
        op(BPF_LD | BPF_ABS | BPF_W, in_header(SOURCE_V4_AT)),
    ]
}

/// Loads the port into A, and the XOR of the address's words into X.
fn source_v6() -> Vec<sock_filter> {
    let mut program = vec![op(BPF_LD | BPF_ABS | BPF_W, in_header(SOURCE_V6_AT))];
    for word in 1..4 {
        program.extend([
            op(BPF_MISC | BPF_TAX, 0),
            op(BPF_LD | BPF_ABS | BPF_W, in_header(SOURCE_V6_AT + 4 * word)),
            op(BPF_ALU | BPF_XOR | BPF_X, 0),
        ]);
    }
    program.extend([
        op(BPF_MISC | BPF_TAX, 0),
        op(BPF_LD | BPF_ABS | BPF_H, in_header(HEADER_V6_BYTES)),
    ]);
    program
}

/// Byte `at` of the IP header. Other offsets count from the UDP payload.
fn in_header(at: u32) -> u32 {
    SKF_NET_OFF.cast_unsigned() + at
}

/// One instruction without jumps.
fn op(code: u32, k: u32) -> sock_filter {
    sock_filter { code: code as u16, jt: 0, jf: 0, k }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, UdpSocket};
    use weir_base::Pool;

    #[test]
    fn drops_datagrams_from_before_sharing() {
        let options = UdpOptions::default();
        let any = (Ipv4Addr::LOCALHOST, 0).into();
        let first = UdpPort::bind(any, &options).unwrap();
        let peers: Vec<UdpSocket> = (0..50).map(|_| UdpSocket::bind(any).unwrap()).collect();
        for peer in &peers {
            peer.send_to(b"early", first.local_addr()).unwrap();
        }
        let mut ports = first.share(3, &options).unwrap();
        ports.insert(0, first);
        for peer in &peers {
            peer.send_to(b"late", ports[0].local_addr()).unwrap();
        }
        let mut pool = Pool::new(1 << 20);
        let mut came = 0;
        for (index, port) in ports.iter_mut().enumerate() {
            let mut datagrams = Vec::new();
            while port.recv(&mut pool, &mut datagrams).unwrap() == crate::RecvStatus::More {}
            came += datagrams.len();
            for datagram in datagrams {
                assert_eq!(&datagram.frame[..], b"late");
                assert_eq!(steered_to(datagram.path.remote, 3), index);
            }
        }
        assert_eq!(came, 50);
    }
}
