//! The control messages of hicn-light, by which programs register routes.
//!
//! A message is one UDP datagram on the port of the hICN packets. Its first octet is never that of
//! an IPv6 packet. All messages start with the same header:
//!
//! ```text
//! 0      1        2       4          8
//! | kind | command | count | sequence | payload
//! ```
//!
//! Numbers are in the byte order of hicn-light's host, which is little-endian here; addresses are
//! in network order. The source is `ctrl/libhicnctrl/includes/hicn/ctrl/hicn-light.h` of the public
//! hICN software. `tests/control.rs` has messages that its programs sent.

use alloc::string::ToString as _;
use alloc::vec::Vec;
use core::net::Ipv6Addr;

use crate::prefix::HicnPrefix;

/// Octets of the header.
pub const HEADER_SIZE: usize = 8;
/// Octets of a connection's name or number, which ends before the first zero.
const CONNECTION_SIZE: usize = 16;
const ADDRESS_SIZE: usize = 16;
/// Octets of a route in the answer to [`Command::ROUTE_LIST`].
const ROUTE_SIZE: usize = 112;
/// hicn-light's programs may append this much to a list request: an empty structure of C.
const LIST_PADDING: usize = 8;
/// The connection that a message came over.
const OWN_CONNECTION: &[u8] = b"SELF";
/// Address family of IPv6 on Linux.
const FAMILY_IPV6: u8 = 10;
/// The cost that hICN's library sends. hicn-light does not use it.
const COST: u16 = 1;

/// Why octets are not a control message, or not a valid one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ControlError {
    #[error("the first octet is not that of a control message")]
    Kind,
    /// The payload does not have the length of the command's structures.
    #[error("a payload of {0} octets does not fit the command")]
    Length(usize),
    /// IPv4 names are not supported.
    #[error("address family {0} is not IPv6")]
    Family(u8),
    #[error("a prefix of {0} bits is longer than an address")]
    PrefixLength(u8),
    #[error("the text of a connection has no end")]
    Connection,
}

/// What a message is, by its first octet.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum MessageKind {
    Request,
    /// The answer to a list request.
    Response,
    Ack,
    Nack,
    Notification,
}

impl MessageKind {
    const FIRST: u8 = 0xC0;

    fn of(octet: u8) -> Option<Self> {
        Some(match octet.checked_sub(Self::FIRST)? {
            0 => Self::Request,
            1 => Self::Response,
            2 => Self::Ack,
            3 => Self::Nack,
            4 => Self::Notification,
            _ => return None,
        })
    }

    fn octet(self) -> u8 {
        Self::FIRST + self as u8
    }
}

/// The number of a command.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Command(pub u8);

impl Command {
    pub const CONNECTION_REMOVE: Self = Self(5);
    pub const ROUTE_ADD: Self = Self(8);
    pub const ROUTE_REMOVE: Self = Self(9);
    pub const ROUTE_LIST: Self = Self(10);
    pub const STRATEGY_SET: Self = Self(15);
    pub const MAPME_ADD: Self = Self(23);
}

/// The connection that a request is about.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Connection<'a> {
    /// The one that the request came over.
    Own,
    /// One with this number or name.
    Other(&'a [u8]),
}

impl<'a> Connection<'a> {
    fn decode(field: &'a [u8]) -> Result<Self, ControlError> {
        let end = field.iter().position(|&octet| octet == 0).ok_or(ControlError::Connection)?;
        Ok(match &field[..end] {
            OWN_CONNECTION => Self::Own,
            other => Self::Other(other),
        })
    }

    /// Whether it is the sender's connection, which has this number.
    pub fn is_own(self, number: u64) -> bool {
        let number_of = |text| core::str::from_utf8(text).ok()?.parse::<u64>().ok();
        match self {
            Self::Own => true,
            Self::Other(text) => number_of(text) == Some(number),
        }
    }
}

/// The requests that applications send.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    /// Send Interests with names below the prefix over the connection.
    AddRoute { connection: Connection<'a>, prefix: HicnPrefix },
    /// Reverses [`Request::AddRoute`].
    RemoveRoute { connection: Connection<'a>, prefix: HicnPrefix },
    /// Close a connection, and remove its routes.
    RemoveConnection { connection: Connection<'a> },
    /// Send all routes.
    ListRoutes,
    /// Use another forwarding strategy for names below the prefix.
    SetStrategy { prefix: HicnPrefix, strategy: u8 },
    /// Announce the prefixes of this connection to other routers (MAP-Me).
    UpdateMobility,
    /// A command for operators, or an unknown one. Its payload is not decoded.
    Other(Command),
}

/// A control message, borrowed.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct ControlView<'a> {
    pub kind: MessageKind,
    pub command: Command,
    /// Number of structures in the payload. hicn-light does not check it in requests.
    pub count: u16,
    /// Chosen by the sender of a request, and repeated in the answer.
    pub sequence: u32,
    pub payload: &'a [u8],
}

impl<'a> ControlView<'a> {
    /// Whether a datagram is a control message, by its first octet.
    pub fn is_control(wire: &[u8]) -> bool {
        wire.first().is_some_and(|&first| MessageKind::of(first).is_some())
    }

    /// Decodes the header. [`ControlView::request`] and [`ControlView::routes`] decode the payload.
    ///
    /// # Errors
    /// [`ControlError::Kind`] and [`ControlError::Length`].
    pub fn decode(wire: &'a [u8]) -> Result<Self, ControlError> {
        let kind = wire.first().copied().and_then(MessageKind::of).ok_or(ControlError::Kind)?;
        let (header, payload) =
            wire.split_first_chunk::<HEADER_SIZE>().ok_or(ControlError::Length(0))?;
        let [_, command, count @ .., s0, s1, s2, s3] = *header;
        Ok(Self {
            kind,
            command: Command(command),
            count: u16::from_le_bytes(count),
            sequence: u32::from_le_bytes([s0, s1, s2, s3]),
            payload,
        })
    }

    /// Decodes the payload of a request.
    ///
    /// # Errors
    /// [`ControlError`], if the payload is not that of the command.
    pub fn request(&self) -> Result<Request<'a>, ControlError> {
        if self.kind != MessageKind::Request {
            return Err(ControlError::Kind);
        }
        match self.command {
            Command::ROUTE_ADD => {
                let [name, address, rest] = self.fields([CONNECTION_SIZE, ADDRESS_SIZE, 4])?;
                let connection = Connection::decode(name)?;
                // The cost is first.
                let prefix = prefix(address, rest[2], rest[3])?;
                Ok(Request::AddRoute { connection, prefix })
            }
            Command::ROUTE_REMOVE => {
                // There is no cost, and padding at the end.
                let [name, address, rest] = self.fields([CONNECTION_SIZE, ADDRESS_SIZE, 4])?;
                let connection = Connection::decode(name)?;
                let prefix = prefix(address, rest[0], rest[1])?;
                Ok(Request::RemoveRoute { connection, prefix })
            }
            Command::CONNECTION_REMOVE => {
                let [name] = self.fields([CONNECTION_SIZE])?;
                Ok(Request::RemoveConnection { connection: Connection::decode(name)? })
            }
            Command::ROUTE_LIST if self.payload.len() > LIST_PADDING => {
                Err(ControlError::Length(self.payload.len()))
            }
            Command::ROUTE_LIST => Ok(Request::ListRoutes),
            Command::STRATEGY_SET => {
                // The last field has ten more prefixes, which one strategy uses.
                let [address, rest, _] = self.fields([ADDRESS_SIZE, 4, 180])?;
                let prefix = prefix(address, rest[0], rest[1])?;
                Ok(Request::SetStrategy { prefix, strategy: rest[2] })
            }
            Command::MAPME_ADD => {
                let [fields] = self.fields([24])?;
                // Anything else is a command of operators.
                Ok(if fields.iter().all(|&octet| octet == 0) {
                    Request::UpdateMobility
                } else {
                    Request::Other(self.command)
                })
            }
            other => Ok(Request::Other(other)),
        }
    }

    /// The payload, split into fields of these sizes.
    fn fields<const N: usize>(&self, sizes: [usize; N]) -> Result<[&'a [u8]; N], ControlError> {
        if self.payload.len() != sizes.iter().sum::<usize>() {
            return Err(ControlError::Length(self.payload.len()));
        }
        let mut rest = self.payload;
        Ok(sizes.map(|size| {
            let (field, behind) = rest.split_at(size);
            rest = behind;
            field
        }))
    }

    /// The routes in the answer to a list request, each with the number of its connection.
    ///
    /// # Errors
    /// [`ControlError::Kind`] and [`ControlError::Length`].
    pub fn routes(
        &self,
    ) -> Result<impl Iterator<Item = Result<ListedRoute, ControlError>> + 'a, ControlError> {
        if (self.kind, self.command) != (MessageKind::Response, Command::ROUTE_LIST) {
            return Err(ControlError::Kind);
        }
        if self.payload.len() != usize::from(self.count) * ROUTE_SIZE {
            return Err(ControlError::Length(self.payload.len()));
        }
        Ok(self.payload.as_chunks::<ROUTE_SIZE>().0.iter().map(ListedRoute::decode))
    }
}

/// A route in the answer to a list request.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct ListedRoute {
    /// The number of the connection.
    pub connection: u32,
    pub prefix: HicnPrefix,
    pub cost: u16,
}

impl ListedRoute {
    fn decode(item: &[u8; ROUTE_SIZE]) -> Result<Self, ControlError> {
        let [n0, n1, n2, n3, c0, c1, family, len] =
            [32, 33, 34, 35, 36, 37, 38, 39].map(|at| item[at]);
        Ok(Self {
            connection: u32::from_le_bytes([n0, n1, n2, n3]),
            prefix: prefix(&item[16..32], family, len)?,
            cost: u16::from_le_bytes([c0, c1]),
        })
    }
}

fn prefix(address: &[u8], family: u8, len: u8) -> Result<HicnPrefix, ControlError> {
    if family != FAMILY_IPV6 {
        return Err(ControlError::Family(family));
    }
    if len > 128 {
        return Err(ControlError::PrefixLength(len));
    }
    let octets: [u8; ADDRESS_SIZE] = address.try_into().expect("the fields have this size");
    // hICN's programs may send an address of the prefix.
    Ok(HicnPrefix::masked(Ipv6Addr::from(octets), len))
}

/// Builds messages: a request of an application, or an answer to one.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct ControlMessage {
    pub kind: MessageKind,
    pub command: Command,
    pub sequence: u32,
}

impl ControlMessage {
    /// A request with this number.
    pub fn request(command: Command, sequence: u32) -> Self {
        Self { kind: MessageKind::Request, command, sequence }
    }

    /// The answer to a request.
    pub fn answer(request: &ControlView<'_>, is_ok: bool) -> Self {
        let kind = if is_ok { MessageKind::Ack } else { MessageKind::Nack };
        Self { kind, command: request.command, sequence: request.sequence }
    }

    /// The message without a payload.
    pub fn encode(self) -> Vec<u8> {
        self.with_payload(0, &[])
    }

    /// [`Request::AddRoute`] or [`Request::RemoveRoute`] of the own connection, by its command.
    pub fn encode_route(self, prefix: HicnPrefix) -> Vec<u8> {
        self.encode_route_over(OWN_CONNECTION, prefix)
    }

    /// The same for the connection with this number.
    pub fn encode_route_of(self, connection: u32, prefix: HicnPrefix) -> Vec<u8> {
        self.encode_route_over(connection.to_string().as_bytes(), prefix)
    }

    /// `connection`: less than 16 octets.
    fn encode_route_over(self, connection: &[u8], prefix: HicnPrefix) -> Vec<u8> {
        let mut payload = [0; CONNECTION_SIZE + ADDRESS_SIZE + 4];
        payload[..connection.len()].copy_from_slice(connection);
        payload[CONNECTION_SIZE..][..ADDRESS_SIZE].copy_from_slice(&prefix.address().octets());
        let rest = &mut payload[CONNECTION_SIZE + ADDRESS_SIZE..];
        let [c0, c1] = COST.to_le_bytes();
        rest.copy_from_slice(&match self.command {
            Command::ROUTE_ADD => [c0, c1, FAMILY_IPV6, prefix.bits()],
            _ => [FAMILY_IPV6, prefix.bits(), 0, 0],
        });
        self.with_payload(1, &payload)
    }

    /// [`Request::RemoveConnection`] of the own connection.
    pub fn encode_connection(self) -> Vec<u8> {
        let mut payload = [0; CONNECTION_SIZE];
        payload[..OWN_CONNECTION.len()].copy_from_slice(OWN_CONNECTION);
        self.with_payload(1, &payload)
    }

    /// The answer to [`Request::ListRoutes`]. Routes beyond the largest count are left out.
    pub fn encode_routes(self, routes: &[ListedRoute]) -> Vec<u8> {
        let count = u16::try_from(routes.len()).unwrap_or(u16::MAX);
        let mut payload = Vec::with_capacity(usize::from(count) * ROUTE_SIZE);
        for route in &routes[..count.into()] {
            let mut item = [0; ROUTE_SIZE];
            item[16..32].copy_from_slice(&route.prefix.address().octets());
            item[32..36].copy_from_slice(&route.connection.to_le_bytes());
            item[36..38].copy_from_slice(&route.cost.to_le_bytes());
            [item[38], item[39]] = [FAMILY_IPV6, route.prefix.bits()];
            payload.extend_from_slice(&item);
        }
        Self { kind: MessageKind::Response, ..self }.with_payload(count, &payload)
    }

    fn with_payload(self, count: u16, payload: &[u8]) -> Vec<u8> {
        let mut wire = Vec::with_capacity(HEADER_SIZE + payload.len());
        wire.extend_from_slice(&[self.kind.octet(), self.command.0]);
        wire.extend_from_slice(&count.to_le_bytes());
        wire.extend_from_slice(&self.sequence.to_le_bytes());
        wire.extend_from_slice(payload);
        wire
    }
}
