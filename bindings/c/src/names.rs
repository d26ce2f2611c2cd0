//! Conversion between names and `struct sockaddr_icn`.

use nix::errno::Errno;
use weir_hicn::HicnName;
use weir_wire::Name;

use crate::constants::{ADDRESS_BYTES, AF_ICN, FAMILY_BYTES, NAME_BYTES};

pub(crate) fn name_of(address: &[u8]) -> Result<Name, Errno> {
    let (family, text) = address.split_at_checked(FAMILY_BYTES).ok_or(Errno::EINVAL)?;
    if i32::from(u16::from_ne_bytes([family[0], family[1]])) != AF_ICN {
        return Err(Errno::EAFNOSUPPORT);
    }
    let end = text.iter().position(|&octet| octet == 0);
    let text = match end {
        Some(end) => &text[..end],
        // A shorter address may end with its text. A full-size address must contain the zero.
        None if text.len() < NAME_BYTES => text,
        None => return Err(Errno::EINVAL),
    };
    name_from(text)
}

pub(crate) fn name_from(text: &[u8]) -> Result<Name, Errno> {
    if text.is_empty() {
        return Err(Errno::EINVAL);
    }
    let text = std::str::from_utf8(text).map_err(|_| Errno::EINVAL)?;
    match HicnName::parse_uri(text) {
        Some(name) => name.map_err(|_| Errno::EINVAL),
        None => text.parse().map_err(|_| Errno::EINVAL),
    }
}

/// The address of a name, with the terminating zero, if it is not too long.
pub(crate) fn address_of(name: &Name) -> Option<Vec<u8>> {
    let mut address = (AF_ICN as u16).to_ne_bytes().to_vec();
    address.extend_from_slice(name.to_string().as_bytes());
    address.push(0);
    (address.len() <= ADDRESS_BYTES).then_some(address)
}

/// Like [`address_of`], padded with zeros to the size of the struct.
pub(crate) fn padded_address(name: &Name) -> Option<Vec<u8>> {
    let mut address = address_of(name)?;
    address.resize(ADDRESS_BYTES, 0);
    Some(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for uri in ["/", "/a", "/a/%00b/54=%01"] {
            let name: Name = uri.parse().unwrap();
            let address = address_of(&name).unwrap();
            assert_eq!(name_of(&address), Ok(name.clone()));
            assert_eq!(name_of(&address[..address.len() - 1]), Ok(name));
        }
        let long: Name = format!("/{}", "a".repeat(1022)).parse().unwrap();
        assert_eq!(name_of(&address_of(&long).unwrap()), Ok(long));
    }

    #[test]
    fn hicn_addresses_are_names() {
        let name: Name = "/32=hicn/8=%b0%01/8=%00%00".parse().unwrap();
        assert_eq!(name_from(b"hicn:b001::/32"), Ok(name));
        assert_eq!(name_from(b"hicn:b001::/33"), Err(Errno::EINVAL));
    }

    #[test]
    fn rejects_invalid_names() {
        let family = (AF_ICN as u16).to_ne_bytes();
        let address = |text: &[u8]| [&family[..], text].concat();
        for bad in [&[][..], &family[..1], &family[..], &address(b"\0"), &address(b"/\xff")] {
            assert_eq!(name_of(bad), Err(Errno::EINVAL), "{bad:?}");
        }
        assert_eq!(name_of(&address(&[b'/'; NAME_BYTES])), Err(Errno::EINVAL));
        assert_eq!(name_of(b"\x01\x00/a"), Err(Errno::EAFNOSUPPORT));
        let long: Name = format!("/{}", "a".repeat(1023)).parse().unwrap();
        assert_eq!(address_of(&long), None);
    }
}
