//! Padding of link headers, so that several frames have the same length. A sender can then pass
//! them to Linux in one system call (GSO), and the kernel cuts them into datagrams of equal length.

use alloc::vec::Vec;

use crate::tlv;

/// The smallest padding in octets: type and length of the Padding field.
pub const PADDING_MIN: usize = 4;
/// The largest padding.
pub const PADDING_MAX: usize = PADDING_MIN + 252;
/// The smallest payload of a frame that can be padded. In shorter frames, padding could make a
/// length field longer.
const PADDED_PAYLOAD_MIN: usize = 253;

/// Octets of a type below 253 and a length from 253 to 65,535.
const LONG_HEAD: usize = 4;

/// Appends the link header `prefix` of a frame with `payload_len` octets to `out`, with a Padding
/// field that makes it `by` octets longer. Receivers that do not know the field ignore it.
///
/// # Panics
/// - If `prefix` is not what [`LpHeader::encode_prefix`](crate::LpHeader::encode_prefix) writes for
///   such a payload.
/// - If the payload is shorter than 253 octets, or the whole frame would exceed 65,535 octets.
/// - If `by` is not from [`PADDING_MIN`] to [`PADDING_MAX`].
pub fn pad_prefix(prefix: &[u8], payload_len: usize, by: usize, out: &mut Vec<u8>) {
    assert!(
        payload_len >= PADDED_PAYLOAD_MIN,
        "a payload of {payload_len} octets is too short to be padded"
    );
    assert!((PADDING_MIN..=PADDING_MAX).contains(&by), "padding of {by} octets is out of range");
    let long_head = |typ: u32| [typ as u8, 253];
    let fragment_at = prefix.len().saturating_sub(LONG_HEAD);
    assert!(
        prefix.starts_with(&long_head(tlv::LP_PACKET))
            && prefix[fragment_at..].starts_with(&long_head(tlv::LP_FRAGMENT)),
        "`prefix` must be a link header with long lengths"
    );
    let (fields, zeros) = (&prefix[LONG_HEAD..prefix.len() - LONG_HEAD], by - PADDING_MIN);
    push_head(tlv::LP_PACKET, fields.len() + by + LONG_HEAD + payload_len, out);
    out.extend_from_slice(fields);
    let [_, _, high, low] = tlv::LP_PADDING.to_be_bytes();
    out.extend_from_slice(&[253, high, low, zeros as u8]);
    out.resize(out.len() + zeros, 0);
    push_head(tlv::LP_FRAGMENT, payload_len, out);
}

fn push_head(typ: u32, len: usize, out: &mut Vec<u8>) {
    let [high, low] = u16::try_from(len).expect("a frame of at most 65,535 octets").to_be_bytes();
    out.extend_from_slice(&[typ as u8, 253, high, low]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lp::{LP_PREFIX_MAX, LpFraming, LpHeader, LpView, NackReason, PitToken};
    use crate::{Data, Interest};
    use alloc::vec;

    #[test]
    fn padded_frames_say_the_same() {
        let interest = Interest::new("/a/b".parse().unwrap()).nonce(1);
        let interest = interest.application_parameters(&[7; 300][..]).encode();
        let data = Data::new("/a/b".parse().unwrap()).content(&[7; 300][..]).encode_with_digest();
        let pit_token = PitToken::new(b"token").unwrap();
        let marked =
            LpHeader { pit_token, congestion_mark: 1, no_cache: true, ..LpHeader::default() };
        let nack = LpHeader { nack: Some(NackReason::NoRoute), ..LpHeader::default() };
        let numbered = LpFraming { sequence: Some(7), tx_sequence: Some(8), ..LpFraming::BARE };
        for (header, packet) in [(marked, data), (nack, interest)] {
            for (framing, acks) in [(LpFraming::BARE, &[][..]), (numbered, &[1, 2])] {
                let mut prefix = [0; LP_PREFIX_MAX];
                let len = packet.len();
                let prefix_len = header.encode_prefix_with_acks(&framing, acks, len, &mut prefix);
                for by in PADDING_MIN..=PADDING_MAX {
                    let mut frame = vec![];
                    pad_prefix(&prefix[..prefix_len], len, by, &mut frame);
                    frame.extend_from_slice(&packet);
                    assert_eq!(frame.len(), prefix_len + len + by);
                    let view = LpView::decode(&frame).unwrap();
                    assert_eq!((&view.header, view.fragment), (&header, Some(&*packet)));
                    assert!(view.acks().eq(acks.iter().copied()));
                    assert!(view.signal.is_none() && view.run_offer.is_none());
                    // Other implementations reject fields whose numbers do not ascend up to
                    // Fragment.
                    let types: Vec<u32> = view.fields().map(|field| field.typ).collect();
                    assert!(types.ends_with(&[tlv::LP_PADDING, tlv::LP_FRAGMENT]), "{types:?}");
                    assert!(types[..types.len() - 1].is_sorted(), "{types:?}");
                }
            }
        }
    }

    #[test]
    fn the_octets_are_these() {
        let prefix = [0x64, 253, 1, 10, 0x62, 2, 8, 9, 0x50, 253, 1, 2];
        let mut padded = vec![];
        pad_prefix(&prefix, 258, 6, &mut padded);
        let expected = [0x64, 253, 1, 16, 0x62, 2, 8, 9, 253, 0x03, 0xB4, 2, 0, 0, 0x50, 253, 1, 2];
        assert_eq!(padded, expected);
    }
}
