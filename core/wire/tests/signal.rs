//! Signals from hop to hop: LpPackets without fragment, and what receivers that do not know the
//! field make of them.

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

/// Who does not know the type sees what we see of the next type of its kind: an IDLE packet.
#[test]
fn unknown_signal_is_skipped() {
    for (low, is_known) in [(0xB8, true), (0xBC, false), (0xB4, false)] {
        let octets = [0x64, 5, 0xFD, 0x03, low, 1, 30];
        let view = decode(&octets);
        assert_eq!(view.header, LpHeader::default());
        assert_eq!((view.signal.is_some(), view.fragment), (is_known, None));
    }
    // Of numbers that do not end in 00, and beyond 959, it would be refused.
    for number in [[0x03, 0xB9], [0x03, 0xC0]] {
        let octets = [0x64, 5, 0xFD, number[0], number[1], 1, 30];
        assert!(LpView::decode(&octets).is_err());
    }
}

#[test]
fn malformed_signal_is_ignored() {
    // No number, empty, twice, out of order; beside acknowledgements.
    for octets in [&[0x64, 7, 0xFD, 0x03, 0xB8, 3, 1, 2, 3][..], &[0x64, 4, 0xFD, 0x03, 0xB8, 0]] {
        assert_eq!(decode(octets).signal, None);
    }
    let twice = [0x64, 10, 0xFD, 0x03, 0xB8, 1, 9, 0xFD, 0x03, 0xB8, 1, 8];
    assert_eq!(decode(&twice).signal, Some(unavailable(9)));
    let before_mark = [0x64, 10, 0xFD, 0x03, 0xB8, 1, 9, 0xFD, 0x03, 0x40, 1, 1];
    assert_eq!(decode(&before_mark).signal, Some(unavailable(9)));
    assert_eq!(decode(&before_mark).header.congestion_mark, 1);
}

/// The field concerns the neighbour, not a packet: it comes alone.
#[test]
fn signal_with_fragment_is_ignored() {
    let interest = [5, 5, 7, 3, 8, 1, b'a'];
    let mut octets = vec![0x64, 14, 0xFD, 0x03, 0xB8, 1, 30, 0x50, 7];
    octets.extend(interest);
    let view = decode(&octets);
    assert_eq!((view.signal, view.fragment), (None, Some(&interest[..])));
}
