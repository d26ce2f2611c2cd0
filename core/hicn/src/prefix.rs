use core::net::Ipv6Addr;

use weir_wire::{Name, NameView};

use crate::name::HicnName;

/// Bits of an address.
const ADDRESS_BITS: u8 = 128;
/// Bits of the address per component of an NDN name.
const GROUP_BITS: u8 = 16;
/// Components of a whole address, without the keyword.
const GROUPS_MAX: usize = (ADDRESS_BITS / GROUP_BITS) as usize;

/// The first bits of an hICN name's address, as routes of hICN have them.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HicnPrefix {
    pub address: Ipv6Addr,
    /// In bits, at most 128. The other bits of the address have no meaning.
    pub len: u8,
}

impl HicnPrefix {
    /// The NDN name of the prefix. `None` if the prefix does not end between two components, which
    /// have 16 bits each.
    pub fn to_name(self) -> Option<Name> {
        if self.len > ADDRESS_BITS || !self.len.is_multiple_of(GROUP_BITS) {
            return None;
        }
        Some(HicnName::prefix(&self.address.octets()[..usize::from(self.len / 8)]))
    }

    /// The prefix that an NDN name stands for; `None` if the name is not the prefix of an address.
    pub fn from_name(name: NameView<'_>) -> Option<Self> {
        let groups = name.component_count().checked_sub(1).filter(|&count| count <= GROUPS_MAX)?;
        let mut octets = [0; 16];
        for (group, octets) in octets.as_chunks_mut().0.iter_mut().take(groups).enumerate() {
            let component = name.component(1 + group)?;
            *octets = <[u8; 2]>::try_from(component.value).ok()?;
        }
        let prefix = Self { address: octets.into(), len: groups as u8 * GROUP_BITS };
        // The names are equal only if the keyword and the types of the components are right.
        (prefix.to_name()?.as_view() == name).then_some(prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_names_and_back() {
        for (text, len, components) in [
            ("::", 0, 1),
            ("b001::", 16, 2),
            ("2001:db8:7::", 48, 4),
            ("2001:db8:1:2:3:4:5:6", 128, 9),
        ] {
            let prefix = HicnPrefix { address: text.parse().unwrap(), len };
            let name = prefix.to_name().unwrap();
            assert_eq!(name.component_count(), components);
            assert_eq!(HicnPrefix::from_name(name.as_view()), Some(prefix));
        }
    }

    #[test]
    fn other_lengths_and_names_are_no_prefixes() {
        let address: Ipv6Addr = "b001::".parse().unwrap();
        for len in [1, 15, 17, 129, 255] {
            assert_eq!(HicnPrefix { address, len }.to_name(), None);
        }
        let suffix = HicnName { address, suffix: 7 }.to_name();
        for name in ["/", "/hicn", "/32=hicn/a", "/32=hicn/abc", "/32=hicn/9=ab", "/32=other/8=ab"]
        {
            let name: Name = name.parse().unwrap();
            assert_eq!(HicnPrefix::from_name(name.as_view()), None, "{name}");
        }
        assert_eq!(HicnPrefix::from_name(suffix.as_view()), None);
    }
}
