//! Link headers that are made longer, so that several frames have one length: what a system cuts
//! out of one message (GSO of Linux) are datagrams of one length.

use alloc::vec::Vec;

use crate::tlv;

/// The least octets by which a link header can be made longer: type and length of Padding.
pub const PADDING_MIN: usize = 4;
/// The most.
pub const PADDING_MAX: usize = PADDING_MIN + 252;
/// The least payload of a frame that can be made longer: what has fewer octets has lengths that
/// take more room when they grow.
pub const PADDED_PAYLOAD_MIN: usize = 253;

/// Octets of a type below 253 and a length from 253 to 65,535.
const LONG_HEAD: usize = 4;

/// Appends the link header `prefix` of a frame with `payload_len` octets to `out`, made longer by
/// `by` octets with a field Padding, which whoever does not know it passes over.
///
/// # Panics
/// When the payload is shorter than [`PADDED_PAYLOAD_MIN`], when all of it would be longer than
/// 65,535 octets, and when `by` is not from [`PADDING_MIN`] to [`PADDING_MAX`].
pub fn pad_prefix(prefix: &[u8], payload_len: usize, by: usize, out: &mut Vec<u8>) {
    assert!(payload_len >= PADDED_PAYLOAD_MIN, "lengths of {payload_len} octets may grow");
    assert!((PADDING_MIN..=PADDING_MAX).contains(&by), "{by} octets of padding");
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
    use crate::Data;
    use crate::lp::{LpFraming, LpHeader, LpView, PitToken};
    use alloc::vec;

    #[test]
    fn padded_frames_say_the_same() {
        let packet = Data::new("/a/b".parse().unwrap()).content(&[7; 300][..]).encode_with_digest();
        let pit_token = PitToken::new(b"token").unwrap();
        let header =
            LpHeader { pit_token, congestion_mark: 1, no_cache: true, ..LpHeader::default() };
        let mut prefix = [0; crate::lp::LP_PREFIX_MAX];
        let len = header.encode_prefix(&LpFraming::BARE, packet.len(), &mut prefix);
        for by in PADDING_MIN..=PADDING_MAX {
            let mut frame = vec![];
            pad_prefix(&prefix[..len], packet.len(), by, &mut frame);
            frame.extend_from_slice(&packet);
            assert_eq!(frame.len(), len + packet.len() + by);
            let view = LpView::decode(&frame).unwrap();
            assert_eq!((view.header, view.fragment), (header.clone(), Some(&*packet)));
            assert!(view.signal.is_none() && view.run_offer.is_none());
        }
    }
}
