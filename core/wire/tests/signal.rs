//! Signals between neighbours: LpPackets without fragment, and how receivers handle unknown ones.

use weir_wire::lp::{HopSignal, LpHeader, LpView};

const fn unavailable(for_ms: u64) -> HopSignal {
    HopSignal::Unavailable { for_ms }
}

fn decode(octets: &[u8]) -> LpView<'_> {
    LpView::decode(octets).unwrap()
}

#[test]
fn octets_are_these() {
    // LpPacket, type 952 in three octets, a number of one octet.
    assert_eq!(unavailable(30).encode(), [0x64, 5, 0xFD, 0x03, 0xB8, 1, 30]);
    assert_eq!(unavailable(0).encode(), [0x64, 5, 0xFD, 0x03, 0xB8, 1, 0]);
    assert_eq!(unavailable(300).encode(), [0x64, 6, 0xFD, 0x03, 0xB8, 2, 1, 44]);
    for ms in [0, 1, 255, 256, 65_536, u64::MAX] {
        let octets = unavailable(ms).encode();
        let view = decode(&octets);
        assert_eq!((view.signal, view.fragment), (Some(unavailable(ms)), None));
        assert_eq!(view.header, LpHeader::default());
    }
}

/// A receiver that does not know the type sees an IDLE packet, as this one does for the next type
/// of the same kind.
#[test]
fn unknown_signal_is_skipped() {
    for (low, is_known) in [(0xB8, true), (0xBC, false), (0xB4, false)] {
        let octets = [0x64, 5, 0xFD, 0x03, low, 1, 30];
        let view = decode(&octets);
        assert_eq!(view.header, LpHeader::default());
        assert_eq!((view.signal.is_some(), view.fragment), (is_known, None));
    }
    // Numbers that are not divisible by 4, or above 959, are rejected.
    for number in [[0x03, 0xB9], [0x03, 0xC0]] {
        let octets = [0x64, 5, 0xFD, number[0], number[1], 1, 30];
        assert!(LpView::decode(&octets).is_err());
    }
}

#[test]
fn malformed_signal_is_ignored() {
    // No number, an empty value, a repeated or misplaced field, and one next to acknowledgements.
    for octets in [&[0x64, 7, 0xFD, 0x03, 0xB8, 3, 1, 2, 3][..], &[0x64, 4, 0xFD, 0x03, 0xB8, 0]] {
        assert_eq!(decode(octets).signal, None);
    }
    let twice = [0x64, 10, 0xFD, 0x03, 0xB8, 1, 9, 0xFD, 0x03, 0xB8, 1, 8];
    assert_eq!(decode(&twice).signal, Some(unavailable(9)));
    let before_mark = [0x64, 10, 0xFD, 0x03, 0xB8, 1, 9, 0xFD, 0x03, 0x40, 1, 1];
    assert_eq!(decode(&before_mark).signal, Some(unavailable(9)));
    assert_eq!(decode(&before_mark).header.congestion_mark, 1);
}

/// The field concerns the neighbour and not a packet, so it is sent alone.
#[test]
fn signal_with_fragment_is_ignored() {
    let interest = [5, 5, 7, 3, 8, 1, b'a'];
    let mut octets = vec![0x64, 14, 0xFD, 0x03, 0xB8, 1, 30, 0x50, 7];
    octets.extend(interest);
    let view = decode(&octets);
    assert_eq!((view.signal, view.fragment), (None, Some(&interest[..])));
}
