//! The locators of Interests and Data (decision 0048).
//!
//! The locator of a peer is the PIT token of its Interest. Nearly all addresses have a run of at
//! least five zero octets, and the forwarder stores tokens of up to 12 octets without a list. So a
//! token of 12 octets is an address without five zeros:
//!
//! ```text
//! 100::601:203:405:600       01 | 00 00 06 01 02 03 04 05 06 00 01
//!                            |    the octets behind the five zeros, and from the start again
//!                            how many octets are before the five zeros
//! ```
//!
//! A token of 16 octets is the address itself.

use core::net::Ipv6Addr;

use weir_wire::PitToken;

const ADDRESS_BYTES: usize = 16;
/// Octets of a token that the forwarder stores without a list.
const SHORT_BYTES: usize = 12;
/// Octets of an address that are in a short token.
const KEPT_BYTES: usize = SHORT_BYTES - 1;
/// Octets of our locator that are the same for all Interests of a face.
const PREFIX_BYTES: usize = 8;
/// The longest token of ours that a locator has room for, after its length.
const OWN_TOKEN_MAX: usize = ADDRESS_BYTES - PREFIX_BYTES - 1;

/// The token that stands for the locator of a peer.
pub(super) fn token_of(locator: Ipv6Addr) -> PitToken {
    let bits = u128::from(locator);
    // The address with the octets from `before` on at its start, and the others behind them.
    let rotated = |before: u8| bits.rotate_left(8 * u32::from(before));
    let is_short = |before: &u8| rotated(*before) >> (8 * KEPT_BYTES) == 0;
    let token = match (0..ADDRESS_BYTES as u8).find(is_short) {
        Some(before) => {
            let mut short = [before; SHORT_BYTES];
            let octets = rotated(before).to_be_bytes();
            short[1..].copy_from_slice(&octets[ADDRESS_BYTES - KEPT_BYTES..]);
            PitToken::new(&short)
        }
        None => PitToken::new(&locator.octets()),
    };
    token.expect("an address is no longer than a token")
}

/// The locator that a token stands for. `::` if it is not a token of [`token_of`]: an Interest that
/// came from another face has none.
pub(super) fn locator_of(token: &PitToken) -> Ipv6Addr {
    let octets = token.as_slice();
    if let [before @ 0..=0xF, kept @ ..] = octets
        && let Ok(kept) = <[u8; KEPT_BYTES]>::try_from(kept)
    {
        let mut rotated = [0; ADDRESS_BYTES];
        rotated[ADDRESS_BYTES - KEPT_BYTES..].copy_from_slice(&kept);
        return u128::from_be_bytes(rotated).rotate_right(8 * u32::from(*before)).into();
    }
    <[u8; ADDRESS_BYTES]>::try_from(octets).unwrap_or_default().into()
}

/// Our locator in an Interest with this token. A token that is too long is left out.
pub(super) fn own_locator(prefix: Ipv6Addr, token: &PitToken) -> Ipv6Addr {
    let mut address = prefix.octets();
    let token = token.as_slice();
    address[PREFIX_BYTES..].fill(0);
    if token.len() <= OWN_TOKEN_MAX {
        address[PREFIX_BYTES] = token.len() as u8;
        address[PREFIX_BYTES + 1..][..token.len()].copy_from_slice(token);
    }
    address.into()
}

/// The token of ours in the locator of a Data; empty if the locator is not ours.
pub(super) fn own_token(prefix: Ipv6Addr, locator: Ipv6Addr) -> PitToken {
    let octets = locator.octets();
    let is_ours = octets[..PREFIX_BYTES] == prefix.octets()[..PREFIX_BYTES];
    let len = usize::from(octets[PREFIX_BYTES]);
    if !is_ours || len > OWN_TOKEN_MAX {
        return PitToken::EMPTY;
    }
    PitToken::new(&octets[PREFIX_BYTES + 1..][..len]).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn usual_locators_are_short_tokens() {
        for (text, len) in [
            ("::", SHORT_BYTES),
            ("::1", SHORT_BYTES),
            ("100::601:203:405:600", SHORT_BYTES),
            ("2001:db8::1", SHORT_BYTES),
            ("2001:db8:1:2::", SHORT_BYTES),
            ("0:1:2001:db8:1:2::", SHORT_BYTES),
            ("2001:db8:1:2:3:4:5:6", ADDRESS_BYTES),
        ] {
            let address: Ipv6Addr = text.parse().unwrap();
            let token = token_of(address);
            assert_eq!(token.as_slice().len(), len, "{text}");
            assert_eq!(locator_of(&token), address);
        }
    }

    #[test]
    fn other_tokens_are_no_locators() {
        for token in [&[][..], &[9], &[2, 1], &[17; 12], &[17; 13], &[0; 32]] {
            let token = PitToken::new(token).unwrap();
            assert_eq!(locator_of(&token), Ipv6Addr::UNSPECIFIED);
        }
    }

    #[test]
    fn own_tokens_return_in_the_locator() {
        let prefix: Ipv6Addr = "100::".parse().unwrap();
        for token in [&[][..], &[1, 2, 3, 4, 5, 6], &[0; 7]] {
            let token = PitToken::new(token).unwrap();
            let locator = own_locator(prefix, &token);
            assert_eq!(own_token(prefix, locator), token);
            assert_eq!(own_token("200::".parse().unwrap(), locator), PitToken::EMPTY);
        }
        let long = PitToken::new(&[7; 12]).unwrap();
        assert_eq!(own_locator(prefix, &long), prefix);
        let forged: Ipv6Addr = "100::ff01:203:405:600".parse().unwrap();
        assert_eq!(own_token(prefix, forged), PitToken::EMPTY);
    }

    proptest! {
        #[test]
        fn each_address_survives(bits in any::<u128>(), mask in any::<u128>()) {
            for bits in [bits, bits & mask, bits & mask & mask.rotate_left(7), bits >> 70 << 20] {
                let address = Ipv6Addr::from(bits);
                prop_assert_eq!(locator_of(&token_of(address)), address);
            }
        }

        #[test]
        fn any_token_is_handled(token in proptest::collection::vec(any::<u8>(), 0..=32)) {
            locator_of(&PitToken::new(&token).unwrap());
        }
    }
}
