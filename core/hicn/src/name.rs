use alloc::vec::Vec;
use core::net::Ipv6Addr;

use weir_wire::{Component, Name, NameView, tlv};

/// The keyword at the start of hICN names in NDN packets.
const KEYWORD: &[u8] = b"hicn";
const ADDRESS_BYTES: usize = 16;
/// Bytes of the address per component. Prefixes end between components.
const GROUP_BYTES: usize = 2;

/// The name of an hICN packet (draft-muscariello-intarea-hicn): an IPv6 address and a suffix.
/// `docs/sockets.md` has its encoding as an NDN name.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct HicnName {
    pub address: Ipv6Addr,
    /// Distinguishes the packets of one address.
    pub suffix: u32,
}

impl HicnName {
    /// The NDN name of all packets whose address starts with these octets.
    pub fn prefix(octets: &[u8]) -> Name {
        let mut name = Name::new();
        name.append_keyword(KEYWORD);
        for group in octets.chunks(GROUP_BYTES) {
            name.append_generic(group);
        }
        name
    }

    /// The name as carried by NDN.
    pub fn to_name(self) -> Name {
        let mut name = Self::prefix(&self.address.octets());
        name.append_segment(self.suffix.into());
        name
    }

    /// The hICN name carried by an NDN name, if any.
    pub fn from_name(name: NameView<'_>) -> Option<Self> {
        const GROUPS: usize = ADDRESS_BYTES / GROUP_BYTES;
        let mut components = name.components();
        if name.component_count() != GROUPS + 2 || !components.next()?.is_keyword(KEYWORD) {
            return None;
        }
        let mut address = [0; ADDRESS_BYTES];
        for (group, component) in address.chunks_mut(GROUP_BYTES).zip(&mut components) {
            let octets = <[u8; GROUP_BYTES]>::try_from(component.value).ok()?;
            if !component.is_generic() {
                return None;
            }
            group.copy_from_slice(&octets);
        }
        let last = components.next()?;
        let suffix = u32::try_from(last.as_segment()?).ok()?;
        // The packet has no room for the length of the number, so only the shortest form is valid.
        (Component::segment(suffix.into()).as_view() == last)
            .then_some(Self { address: address.into(), suffix })
    }

    /// Appends the Name element.
    pub(crate) fn write(self, out: &mut Vec<u8>) {
        let suffix = tlv::encode_nni(self.suffix.into());
        let value_len = 2 + KEYWORD.len() + (2 + GROUP_BYTES) * (ADDRESS_BYTES / GROUP_BYTES);
        let value_len = value_len + 2 + suffix.len();
        out.extend([tlv::NAME as u8, value_len as u8]);
        out.extend([tlv::KEYWORD_NAME_COMPONENT as u8, KEYWORD.len() as u8]);
        out.extend_from_slice(KEYWORD);
        for group in self.address.octets().chunks(GROUP_BYTES) {
            out.extend([tlv::GENERIC_NAME_COMPONENT as u8, GROUP_BYTES as u8]);
            out.extend_from_slice(group);
        }
        self.write_suffix(out);
    }

    /// Appends the last component of the name.
    pub(crate) fn write_suffix(self, out: &mut Vec<u8>) {
        let suffix = tlv::encode_nni(self.suffix.into());
        out.extend([tlv::SEGMENT_NAME_COMPONENT as u8, suffix.len() as u8]);
        out.extend_from_slice(&suffix);
    }
}
