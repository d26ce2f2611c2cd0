use std::net::SocketAddr;

use weir_link::{DisciplineConfig, HicnConfig, LinkConfig};

use crate::udp::udp_mtu_default;
use crate::uri::FaceUri;

/// The packets in the datagrams of a UDP port.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum UdpFormat {
    /// NDN packets, with NDNLPv2.
    Ndn,
    /// hICN packets (decision 0049).
    Hicn,
}

impl UdpFormat {
    /// The URI of a UDP address with these packets.
    pub fn uri(self, address: SocketAddr) -> FaceUri {
        match self {
            Self::Ndn => FaceUri::Udp(address),
            Self::Hicn => FaceUri::HicnUdp(address),
        }
    }

    /// The scheme of addresses with these packets.
    pub const fn scheme(self) -> &'static str {
        match self {
            Self::Ndn => "udp",
            Self::Hicn => "hicn+udp",
        }
    }

    /// The default link configuration of a face with datagrams of at most `mtu` bytes.
    pub fn link_config(self, mtu: usize) -> LinkConfig {
        match self {
            Self::Ndn => {
                let mut link = LinkConfig::datagram(mtu);
                link.egress.discipline = DisciplineConfig::Paced;
                link
            }
            Self::Hicn => LinkConfig::hicn(mtu, HicnConfig::default()),
        }
    }

    /// The same, with the default MTU for this peer.
    pub(crate) fn link_config_toward(self, peer: SocketAddr) -> LinkConfig {
        self.link_config(udp_mtu_default(peer.ip()))
    }
}

impl FaceUri {
    /// The packets and the address, if it is a UDP address.
    pub fn as_udp(&self) -> Option<(UdpFormat, SocketAddr)> {
        match self {
            Self::Udp(address) => Some((UdpFormat::Ndn, *address)),
            Self::HicnUdp(address) => Some((UdpFormat::Hicn, *address)),
            _ => None,
        }
    }
}
