//! Which of several sockets at one UDP port a peer's datagrams come to: a program of the kernel's
//! classic BPF takes the sender's address and port, and [`steered_to`] says the same here.

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

/// Spreads sums of addresses and ports: 2^32 divided by the golden ratio.
const FACTOR: u32 = 0x9E37_79B9;
/// The upper half of a product is spread best.
const SHIFT: u32 = 16;
/// The sender's address in the header of IPv4 (RFC 791) and of IPv6 (RFC 8200).
const SOURCE_V4_AT: u32 = 12;
const SOURCE_V6_AT: u32 = 8;
const HEADER_V6_BYTES: u32 = 40;
/// More than a receive buffer holds: each takes some 700 octets of it at least.
const QUEUED_MAX: usize = 1 << 15;
/// From linux/filter.h: return A.
const BPF_A: u32 = 0x10;
/// From asm-generic/socket.h.
const SO_ATTACH_REUSEPORT_CBPF: libc::c_int = 51;

/// The socket, of `count` at one port, that datagrams of `peer` come to. Not where a sender's IPv6
/// headers have extensions: its port is looked for behind a header without.
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
    /// Several sockets at one port, for as many threads: the datagrams of a peer come to the one
    /// that [`steered_to`] says. It is one socket alone where the system does not give more or
    /// cannot steer, and the error says why. No other program gets the port, unless it asks for a
    /// part of it (SO_REUSEPORT) as the same user.
    pub fn bind_all(
        address: SocketAddr,
        count: usize,
        options: &UdpOptions,
    ) -> io::Result<(Vec<Self>, io::Result<()>)> {
        // The first asks for the port for itself: two routers must not share one unawares.
        let first = Self::bind(address, options)?;
        match first.share(count, options) {
            Ok(others) => Ok(([first].into_iter().chain(others).collect(), Ok(()))),
            Err(error) => {
                // It cannot be shared, and is not by accident.
                let _ = first.socket().set_reuse_port(false);
                Ok((vec![first], Err(error)))
            }
        }
    }

    /// The sockets beside this one at its port.
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
        // What came before is in any of them, and would give its sender a face of a thread that it
        // does not come to any more.
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

/// Has the system steer what comes to the port of `socket`, and of the `count` sockets there.
fn steer(socket: &Socket, is_ipv6: bool, count: usize) -> io::Result<()> {
    let mut program = match is_ipv6 {
        true => source_v6(),
        false => source_v4(),
    };
    // Of A and X one is the address, the other the port.
    program.extend([
        op(BPF_ALU | BPF_ADD | BPF_X, 0),
        op(BPF_ALU | BPF_MUL | BPF_K, FACTOR),
        op(BPF_ALU | BPF_RSH | BPF_K, SHIFT),
        op(BPF_ALU | BPF_MOD | BPF_K, count as u32),
        op(BPF_RET | BPF_A, 0),
    ]);
    let program = sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: the pointer and length describe `program`, which and whose filter live through the
    // call; the kernel copies both.
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

/// The address into A, the port into X. A header has options now and then.
fn source_v4() -> Vec<sock_filter> {
    vec![
        op(BPF_LDX | BPF_MSH | BPF_B, in_header(0)),
        op(BPF_LD | BPF_IND | BPF_H, in_header(0)),
        op(BPF_MISC | BPF_TAX, 0),
        op(BPF_LD | BPF_ABS | BPF_W, in_header(SOURCE_V4_AT)),
    ]
}

/// The port into A, the words of the address folded into X.
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

/// Octet `at` of the IP header. Other offsets count from the payload of UDP.
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
