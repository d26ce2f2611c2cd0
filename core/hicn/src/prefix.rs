use alloc::string::String;
use core::fmt;
use core::net::Ipv6Addr;

use weir_wire::{Name, NameView};

use crate::name::HicnName;

/// How names that are addresses are written.
const URI_SCHEME: &str = "hicn:";
/// Bits of an address.
const ADDRESS_BITS: u8 = 128;
/// Bits of the address per component of an NDN name. Prefixes of names end between components.
const GROUP_BITS: u8 = 16;
/// Components of a whole address, without the keyword.
const GROUPS_MAX: usize = (ADDRESS_BITS / GROUP_BITS) as usize;

/// Why a text is no hICN address or prefix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HicnUriError {
    #[error(
        "\"{URI_SCHEME}{0}\" has no IPv6 address or prefix; write one, such as \
         {URI_SCHEME}2001:db8::1 or {URI_SCHEME}2001:db8:7::/48"
    )]
    Address(String),
    /// Prefixes of names end between components.
    #[error(
        "a prefix of {bits} bits ends within a component of the name; write a multiple of \
         {GROUP_BITS} bits up to {ADDRESS_BITS}, such as {URI_SCHEME}2001:db8:7::/48"
    )]
    PrefixBits { bits: u8 },
    #[error(
        "a prefix of {bits} bits is longer than an address; write at most {ADDRESS_BITS} bits, \
         such as {URI_SCHEME}2001:db8:7::/48"
    )]
    PrefixTooLong { bits: u8 },
    #[error(
        "{address} has bits set beyond the {bits} bits of the prefix; write {URI_SCHEME}{}",
        HicnPrefix::masked(*address, *bits)
    )]
    BitsBeyondPrefix {
        /// As given.
        address: Ipv6Addr,
        bits: u8,
    },
}

/// The first bits of an hICN name's address: a route of hICN, or the names of a mapping. With 128
/// bits it is an address.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HicnPrefix {
    /// The bits beyond `bits` are 0.
    address: Ipv6Addr,
    /// At most 128.
    bits: u8,
}

impl HicnPrefix {
    /// The first bits of this address, at most 128.
    pub fn masked(address: Ipv6Addr, bits: u8) -> Self {
        let bits = bits.min(ADDRESS_BITS);
        let mask = u128::MAX.checked_shl(u32::from(ADDRESS_BITS - bits)).unwrap_or(0);
        Self { address: Ipv6Addr::from_bits(address.to_bits() & mask), bits }
    }

    /// Parses an address, such as `hicn:b001::1`, or a prefix, such as `hicn:b001::/16`. The prefix
    /// has an NDN name. `None`: the text has another form.
    pub fn parse_uri(text: &str) -> Option<Result<Self, HicnUriError>> {
        text.strip_prefix(URI_SCHEME).map(Self::parse)
    }

    fn parse(text: &str) -> Result<Self, HicnUriError> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, bits.parse().ok()),
            None => (text, Some(ADDRESS_BITS)),
        };
        let (Ok(address), Some(bits)) = (address.parse(), bits) else {
            return Err(HicnUriError::Address(text.into()));
        };
        if bits > ADDRESS_BITS {
            return Err(HicnUriError::PrefixTooLong { bits });
        }
        if !bits.is_multiple_of(GROUP_BITS) {
            return Err(HicnUriError::PrefixBits { bits });
        }
        let prefix = Self::masked(address, bits);
        if prefix.address != address {
            return Err(HicnUriError::BitsBeyondPrefix { address, bits });
        }
        Ok(prefix)
    }

    /// The address, with 0 beyond the prefix.
    pub fn address(self) -> Ipv6Addr {
        self.address
    }

    /// The length in bits, at most 128.
    pub fn bits(self) -> u8 {
        self.bits
    }

    /// The NDN name of the prefix. `None` if the prefix does not end between two components, which
    /// have 16 bits each.
    pub fn to_name(self) -> Option<Name> {
        self.bits.is_multiple_of(GROUP_BITS).then(|| self.name_of_groups())
    }

    /// The NDN name of the prefix, without the bits of a component that is not complete.
    pub fn name_of_groups(self) -> Name {
        let groups = usize::from(self.bits / GROUP_BITS);
        HicnName::prefix(&self.address.octets()[..groups * usize::from(GROUP_BITS / 8)])
    }

    /// The prefix that an NDN name stands for; `None` if the name is not the prefix of an address.
    pub fn from_name(name: NameView<'_>) -> Option<Self> {
        let groups = name.component_count().checked_sub(1).filter(|&count| count <= GROUPS_MAX)?;
        let mut octets = [0; 16];
        for (group, octets) in octets.as_chunks_mut().0.iter_mut().take(groups).enumerate() {
            let component = name.component(1 + group)?;
            *octets = <[u8; 2]>::try_from(component.value).ok()?;
        }
        let prefix = Self { address: octets.into(), bits: groups as u8 * GROUP_BITS };
        // The names are equal only if the keyword and the types of the components are right.
        (prefix.to_name()?.as_view() == name).then_some(prefix)
    }
}

impl HicnName {
    /// Parses the name of an address, such as `hicn:b001::1`, or of a prefix, such as
    /// `hicn:b001::/16` ([`HicnPrefix::parse_uri`]). The name of an address is that of its packets
    /// without the suffix. `None`: the text has another form.
    pub fn parse_uri(text: &str) -> Option<Result<Name, HicnUriError>> {
        HicnPrefix::parse_uri(text).map(|parsed| parsed.map(HicnPrefix::name_of_groups))
    }
}

impl fmt::Display for HicnPrefix {
    /// As in a URI, without the scheme.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;
    use alloc::string::ToString;

    use proptest::prelude::*;

    use super::*;

    fn prefix(text: &str) -> HicnPrefix {
        HicnPrefix::parse_uri(&format!("hicn:{text}")).unwrap().unwrap()
    }

    #[test]
    fn prefixes_are_names_and_back() {
        for (text, components) in
            [("::/0", 1), ("b001::/16", 2), ("2001:db8:7::/48", 4), ("2001:db8:1:2:3:4:5:6", 9)]
        {
            let prefix = prefix(text);
            let name = prefix.to_name().unwrap();
            assert_eq!(name.component_count(), components);
            assert_eq!(HicnPrefix::from_name(name.as_view()), Some(prefix));
        }
    }

    #[test]
    fn other_lengths_and_names_are_no_prefixes() {
        let address: Ipv6Addr = "b001::".parse().unwrap();
        for bits in [1, 15, 17, 127] {
            assert_eq!(HicnPrefix::masked(address, bits).to_name(), None);
        }
        let suffix = HicnName { address, suffix: 7 }.to_name();
        for name in ["/", "/hicn", "/32=hicn/a", "/32=hicn/abc", "/32=hicn/9=ab", "/32=other/8=ab"]
        {
            let name: Name = name.parse().unwrap();
            assert_eq!(HicnPrefix::from_name(name.as_view()), None, "{name}");
        }
        assert_eq!(HicnPrefix::from_name(suffix.as_view()), None);
    }

    #[test]
    fn parses_addresses_and_prefixes() {
        let address = Ipv6Addr::new(0xb001, 0, 0, 0, 0, 0, 0, 0x12);
        let name = prefix("b001::12").to_name().unwrap();
        assert_eq!(HicnName::address_of(name.as_view()), Some(address));
        assert_eq!(name, HicnName { address, suffix: 7 }.to_name().as_view().parent().to_name());
        let name = prefix("2001:db8:7::/48").to_name().unwrap();
        assert_eq!(name, HicnName::prefix(&[0x20, 1, 0x0D, 0xB8, 0, 7]));
        assert_eq!(HicnName::address_of(name.as_view()), None);
        for other in ["/a", "b001::1", "ndn:/a", ""] {
            assert_eq!(HicnPrefix::parse_uri(other), None);
        }
    }

    #[test]
    fn errors_say_what_to_write() {
        let error =
            |text: &str| HicnPrefix::parse_uri(&format!("hicn:{text}")).unwrap().unwrap_err();
        for text in ["", "/", "b001", "b001::1/", "b001::1/-1", "b001::1/256", "10.0.0.1"] {
            assert_eq!(error(text), HicnUriError::Address(text.to_string()));
        }
        assert_eq!(
            error("b001").to_string(),
            "\"hicn:b001\" has no IPv6 address or prefix; write one, such as hicn:2001:db8::1 or \
             hicn:2001:db8:7::/48"
        );
        for bits in [1, 17, 127] {
            assert_eq!(error(&format!("::/{bits}")), HicnUriError::PrefixBits { bits });
        }
        assert_eq!(
            error("b001::/20").to_string(),
            "a prefix of 20 bits ends within a component of the name; write a multiple of 16 bits \
             up to 128, such as hicn:2001:db8:7::/48"
        );
        assert_eq!(
            error("::/144").to_string(),
            "a prefix of 144 bits is longer than an address; write at most 128 bits, such as \
             hicn:2001:db8:7::/48"
        );
        assert_eq!(
            error("b001::12/112").to_string(),
            "b001::12 has bits set beyond the 112 bits of the prefix; write hicn:b001::/112"
        );
    }

    proptest! {
        #[test]
        fn prefixes_have_no_bits_beyond(address: u128, bits: u8) {
            let prefix = HicnPrefix::masked(address.into(), bits);
            prop_assert_eq!(u32::from(prefix.bits()), u32::from(bits.min(128)));
            let rest = prefix.address().to_bits().checked_shl(prefix.bits().into()).unwrap_or(0);
            prop_assert_eq!(rest, 0);
            let parsed = HicnPrefix::parse_uri(&format!("hicn:{prefix}")).unwrap();
            prop_assert_eq!(parsed.ok(), prefix.to_name().map(|_| prefix));
        }
    }
}
