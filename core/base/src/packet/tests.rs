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
    let mut packet = Packet::from_static(&OCTETS);
    assert_eq!(packet.clone().slice(1..3).slice(1..2), Packet::from(vec![3]));
    assert!(packet.unique_mut().is_none());
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
fn only_the_sole_holder_writes() {
    let mut packet = Packet::from(vec![7; 8]);
    let other = packet.slice(1..2);
    assert!(packet.unique_mut().is_none());
    drop(other);
    packet.unique_mut().unwrap()[3] = 9;
    assert_eq!(&packet[..], [7, 7, 7, 9, 7, 7, 7, 7]);
}

#[test]
fn shares_count_as_clones_do() {
    assert!(Packet::empty().share().is_empty());
    let mut packet = Packet::from(vec![7; 8]);
    let mut first = packet.share();
    let second = first.share();
    drop(packet);
    assert!(first.unique_mut().is_none());
    drop(second);
    assert_eq!(first.unique_mut().unwrap(), [7; 8]);
}

#[test]
fn a_block_is_split_into_packets_and_a_writable_rest() {
    let mut rest = PacketMut::unpooled(10);
    rest.copy_from_slice(b"0123456789");
    let first = rest.split_to(3);
    assert!(rest.split_to(0).is_empty());
    let second = rest.split_to(4);
    rest[0] = b'x';
    assert_eq!((&first[..], &second[..], &rest[..]), (&b"012"[..], &b"3456"[..], &b"x89"[..]));
    drop(first);
    let third = rest.freeze(2);
    drop(second);
    assert_eq!(&third[..], b"x8");
}

#[test]
fn a_block_may_be_split_to_its_end() {
    let mut rest = PacketMut::unpooled(4);
    let all = rest.split_to(4);
    assert_eq!((all.len(), rest.capacity()), (4, 0));
    assert!(rest.freeze(0).is_empty());
    drop(all);
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
    assert_eq!(format!("{:?}", Packet::from(vec![0xab, 1])), "Packet(2 octets: ab01)");
    assert!(format!("{:?}", Packet::from(vec![0; 33])).ends_with("..)"));
}

#[test]
fn packets_cross_threads() {
    let packet = Packet::from(vec![5; 64]);
    let threads: Vec<_> = (0..4)
        .map(|at| {
            let part = packet.slice(at..at + 8);
            std::thread::spawn(move || {
                part.clone().iter().map(|&octet| u32::from(octet)).sum::<u32>()
            })
        })
        .collect();
    drop(packet);
    for thread in threads {
        assert_eq!(thread.join().unwrap(), 40);
    }
}
