//! The network devices of this host that can have multicast faces, and a notification when they
//! change.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::ifaddrs::getifaddrs;
use nix::net::if_::{InterfaceFlags, if_nametoindex};
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, SockaddrStorage, bind,
    recv, socket,
};

use crate::socket::socket_source;

/// A network device with one of its addresses.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NetworkInterface {
    /// The name of the device.
    pub device: String,
    /// The number of the device.
    pub index: u32,
    pub address: IpAddr,
}

impl NetworkInterface {
    /// The devices that are up, can multicast and are not loopback: each with its first IPv4
    /// address, and with its first link-local IPv6 address.
    ///
    /// # Errors
    /// The system does not list them.
    pub fn multicast_capable() -> io::Result<Vec<Self>> {
        let mut found = BTreeMap::new();
        for entry in getifaddrs()? {
            let flags = entry.flags;
            let is_capable = flags.contains(InterfaceFlags::IFF_UP | InterfaceFlags::IFF_MULTICAST)
                && !flags.contains(InterfaceFlags::IFF_LOOPBACK);
            let Some(address) = entry.address.as_ref().and_then(usable_address) else { continue };
            if !is_capable {
                continue;
            }
            // The name may be a label of the address, such as `eth0:1`.
            let device = entry.interface_name.split(':').next().unwrap_or_default().to_owned();
            // A device without a number was removed in the meantime.
            let Ok(index) = if_nametoindex(device.as_str()) else { continue };
            let key = (index, address.is_ipv6());
            found.entry(key).or_insert(Self { device, index, address });
        }
        Ok(found.into_values().collect())
    }
}

/// The address, if multicast datagrams may come from it.
fn usable_address(address: &SockaddrStorage) -> Option<IpAddr> {
    if let Some(v4) = address.as_sockaddr_in() {
        return Some(v4.ip().into());
    }
    let v6 = address.as_sockaddr_in6()?.ip();
    v6.is_unicast_link_local().then_some(v6.into())
}

/// Is readable after network devices or their addresses have changed.
#[derive(Debug)]
pub struct InterfaceWatch {
    socket: OwnedFd,
}

impl InterfaceWatch {
    /// Subscribes to the kernel's notifications (rtnetlink(7)).
    ///
    /// # Errors
    /// The system offers no such notifications.
    pub fn open() -> io::Result<Self> {
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        let protocol = SockProtocol::NetlinkRoute;
        let socket = socket(AddressFamily::Netlink, SockType::Raw, flags, protocol)?;
        let groups = libc::RTMGRP_LINK | libc::RTMGRP_IPV4_IFADDR | libc::RTMGRP_IPV6_IFADDR;
        bind(socket.as_raw_fd(), &NetlinkAddr::new(0, groups as u32))?;
        Ok(Self { socket })
    }

    /// Discards all pending notifications. Their contents are not needed, because the caller lists
    /// the devices again.
    pub fn discard(&self) {
        let mut buffer = [0; 8192];
        loop {
            match recv(self.socket.as_raw_fd(), &mut buffer, MsgFlags::empty()) {
                Ok(1..) => {}
                // Notifications were lost, and more may follow.
                Err(Errno::ENOBUFS | Errno::EINTR) => {}
                Ok(0) | Err(_) => return,
            }
        }
    }
}

socket_source!(InterfaceWatch);
