use alloc::vec::Vec;
use core::net::Ipv6Addr;

use weir_wire::{Name, NameView, tlv};

/// The keyword at the start of hICN names in NDN packets.
const KEYWORD: &[u8] = b"hicn";
const ADDRESS_BYTES: usize = 16;
/// Bytes of the address per component. Prefixes end between components.
const GROUP_BYTES: usize = 2;
const KEYWORD_COMPONENT: [u8; 6] = *b"\x20\x04hicn";
/// Type and length of the component of a group.
const GROUP_HEADER: [u8; 2] = [tlv::GENERIC_NAME_COMPONENT as u8, GROUP_BYTES as u8];
const GROUP_SIZE: usize = GROUP_HEADER.len() + GROUP_BYTES;
const GROUPS_SIZE: usize = GROUP_SIZE * ADDRESS_BYTES / GROUP_BYTES;

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

    /// The address that a name consists of, without a suffix, if it does.
    pub fn address_of(name: NameView<'_>) -> Option<Ipv6Addr> {
        let (keyword, rest) = name.value().split_first_chunk()?;
        let groups: &[u8; GROUPS_SIZE] = rest.try_into().ok()?;
        read_address(keyword, groups)
    }

    /// The name as carried by NDN.
    pub fn to_name(self) -> Name {
        let mut name = Self::prefix(&self.address.octets());
        name.append_segment(self.suffix.into());
        name
    }

    /// The hICN name carried by an NDN name, if any.
    pub fn from_name(name: NameView<'_>) -> Option<Self> {
        Self::from_value(name.value())
    }

    /// The hICN name carried by the value of a Name element, if any.
    pub(crate) fn from_value(value: &[u8]) -> Option<Self> {
        let (keyword, rest) = value.split_first_chunk()?;
        let (groups, last) = rest.split_first_chunk::<GROUPS_SIZE>()?;
        let address = read_address(keyword, groups)?;
        let suffix = u32::try_from(tlv::segment(last)?).ok()?;
        // The packet has no room for the length of the number, so only the shortest form is valid.
        let is_shortest = last.len() == 2 + tlv::nni_size(suffix.into());
        is_shortest.then_some(Self { address, suffix })
    }

    /// The component of the suffix in the value of a Name element that has this form.
    pub(crate) fn last_component(value: &[u8]) -> &[u8] {
        value.get(KEYWORD_COMPONENT.len() + GROUPS_SIZE..).unwrap_or_default()
    }

    /// Whether a name begins as hICN names do.
    pub fn has_keyword(name: NameView<'_>) -> bool {
        name.value().starts_with(&KEYWORD_COMPONENT)
    }

    /// Appends the Name element.
    pub(crate) fn write(self, out: &mut Vec<u8>) {
        let mut groups = [[0; GROUP_SIZE]; ADDRESS_BYTES / GROUP_BYTES];
        for (group, octets) in groups.iter_mut().zip(self.address.octets().as_chunks().0) {
            let ([typ, len], [first, second]) = (GROUP_HEADER, *octets);
            *group = [typ, len, first, second];
        }
        let suffix_size = 2 + tlv::nni_size(self.suffix.into());
        let value_len = KEYWORD_COMPONENT.len() + GROUPS_SIZE + suffix_size;
        out.extend_from_slice(&[tlv::NAME as u8, value_len as u8]);
        out.extend_from_slice(&KEYWORD_COMPONENT);
        out.extend_from_slice(groups.as_flattened());
        self.write_suffix(out);
    }

    /// Appends the last component of the name.
    pub(crate) fn write_suffix(self, out: &mut Vec<u8>) {
        let suffix = tlv::encode_nni(self.suffix.into());
        out.extend([tlv::SEGMENT_NAME_COMPONENT as u8, suffix.len() as u8]);
        out.extend_from_slice(&suffix);
    }
}

/// The address in the components of a name.
fn read_address(
    keyword: &[u8; KEYWORD_COMPONENT.len()],
    groups: &[u8; GROUPS_SIZE],
) -> Option<Ipv6Addr> {
    if *keyword != KEYWORD_COMPONENT {
        return None;
    }
    let mut address = [0; ADDRESS_BYTES];
    for (octets, group) in address.chunks_exact_mut(GROUP_BYTES).zip(groups.as_chunks().0) {
        let [typ, len, first, second] = *group;
        if [typ, len] != GROUP_HEADER {
            return None;
        }
        octets.copy_from_slice(&[first, second]);
    }
    Some(address.into())
}
