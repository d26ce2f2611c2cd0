use super::*;
use std::format;
use std::vec;

#[test]
fn empty_packets_hold_no_block() {
    for packet in
        [Packet::empty(), Packet::default(), Packet::from(Vec::new()), Packet::from(&[][..])]
    {
        assert!(packet.is_empty() && packet.0.block().is_none());
        assert!(packet.clone().slice(0..0).is_empty());
    }
    let packet = Packet::from(vec![1, 2, 3]);
    assert!(packet.slice(2..2).0.block().is_none());
}

#[test]
fn static_octets_are_shared_as_others_are() {
    static OCTETS: [u8; 4] = [1, 2, 3, 4];
    let packet = Packet::from_static(&OCTETS);
    assert_eq!(packet.clone().slice(1..3).slice(1..2), Packet::from(vec![3]));
    packet.prefetch();
}

#[test]
fn slices_outlive_the_packet() {
    let packet = Packet::from((0..200).collect::<Vec<u8>>());
    let inner = packet.slice(10..190).slice(5..100);
    drop(packet);
    assert_eq!(&inner[..], &(15..110).collect::<Vec<u8>>()[..]);
    inner.prefetch();
}

#[test]
fn shares_count_as_clones_do() {
    assert!(Packet::empty().share().is_empty());
    let mut packet = Packet::from(vec![7; 8]);
    let mut first = packet.share();
    let second = first.share();
    drop(packet);
    let block = first.0.block().unwrap();
    // SAFETY: `first` holds the block.
    assert!(unsafe { !Header::is_sole_holder(block) });
    drop(second);
    // SAFETY: as above.
    assert!(unsafe { Header::is_sole_holder(block) });
    assert_eq!(first[..], [7; 8]);
}

#[test]
#[should_panic(expected = "slice beyond the packet")]
fn slices_end_with_the_packet() {
    drop(Packet::from(vec![1, 2]).slice(1..3));
}

#[test]
#[should_panic(expected = "freeze beyond the capacity")]
fn freeze_ends_with_the_block() {
    drop(PacketMut::unpooled(5).freeze(6));
}

#[test]
fn debug_shows_the_first_octets() {
    assert_eq!(format!("{:?}", Packet::from(vec![0xab, 1])), "Packet(2 bytes: ab01)");
    assert!(format!("{:?}", Packet::from(vec![0; 33])).ends_with("..)"));
}

#[test]
fn packets_cross_threads() {
    let packet = Packet::from(vec![5; 64]);
    let threads: Vec<_> = (0..4)
        .map(|at| {
            let slice = packet.slice(at..at + 8);
            std::thread::spawn(move || {
                slice.clone().iter().map(|&octet| u32::from(octet)).sum::<u32>()
            })
        })
        .collect();
    drop(packet);
    for thread in threads {
        assert_eq!(thread.join().unwrap(), 40);
    }
}
