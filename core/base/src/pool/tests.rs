use super::*;
use crate::rng::Rng;
use std::sync::mpsc;
use std::thread;
use std::vec::Vec;

#[test]
fn a_dropped_block_is_used_again() {
    let mut pool = Pool::new(1 << 20);
    let first = pool.copy(b"one");
    let address = first.as_ptr();
    drop(first);
    assert_eq!(pool.cached_bytes(), Pool::footprint(3));
    let second = pool.copy(b"two");
    assert_eq!(second.as_ptr(), address);
    assert_eq!(&second[..], b"two");
    assert_eq!(pool.cached_bytes(), 0);
}

#[test]
fn recycle_takes_whole_own_blocks() {
    let mut pool = Pool::new(1 << 20);
    let mut packet = pool.copy(b"one");
    let address = packet.as_ptr();
    let shared = packet.share();
    pool.recycle(packet);
    assert_eq!(pool.cached_bytes(), 0);
    assert_eq!(&shared[..], b"one");
    pool.recycle(shared.slice(1..2));
    pool.recycle(shared);
    assert_eq!(pool.cached_bytes(), Pool::footprint(3));
    let again = pool.copy(b"two");
    assert_eq!(again.as_ptr(), address);
    let mut other = Pool::new(1 << 20);
    other.recycle(again);
    other.recycle(Packet::from(&[1, 2][..]));
    other.recycle(Packet::empty());
    assert_eq!((other.cached_bytes(), pool.cached_bytes()), (0, Pool::footprint(3)));
}

#[test]
fn capacity_covers_the_size() {
    let mut pool = Pool::new(1 << 20);
    for size in
        [0, 1, 104, 105, 8_150, 8_300, 8_448, 9_216, 65_536, 131_072, 262_144, 262_153, 400_000]
    {
        let mut packet = pool.alloc(size);
        assert!(packet.capacity() >= size);
        assert!(Pool::footprint(size) > packet.capacity());
        packet.fill(1);
    }
    assert!(pool.copy(&[]).is_empty());
    assert!(Pool::footprint(8_300) < 8_500);
}

#[test]
fn blocks_at_rest_are_bounded() {
    let max = 64 << 10;
    let mut pool = Pool::new(max);
    for size in [1_000, 100, 8_000, 1_000] {
        let packets: Vec<_> = (0..100).map(|_| pool.alloc(size).freeze(size)).collect();
        drop(packets);
        assert!(
            pool.cached_bytes() <= max && pool.cached_bytes() >= max / 4,
            "{}",
            pool.cached_bytes()
        );
    }
    let mut pool = Pool::new(0);
    drop(pool.copy(b"gone"));
    assert_eq!(pool.cached_bytes(), 0);
}

#[test]
fn classes_out_of_use_make_room() {
    let mut pool = Pool::new(40_000);
    let small: Vec<_> = (0..300).map(|_| pool.alloc(100)).collect();
    drop(small);
    drop(pool.alloc(1_000));
    // The owner's half is full of small blocks now. Large blocks must get it when they are in use.
    for _ in 0..3 {
        let large: Vec<_> = (0..2).map(|_| pool.alloc(8_000)).collect();
        drop(large);
    }
    let first = pool.alloc(8_000);
    let address = first.as_ptr();
    drop(first);
    pool.collect();
    assert!((0..2).any(|_| pool.alloc(8_000).as_ptr() == address));
    assert!(pool.cached_bytes() <= 40_000);
}

#[test]
fn packets_outlive_the_pool() {
    let mut pool = Pool::new(1 << 20);
    let kept = pool.copy(&[3; 500]);
    let part = kept.slice(100..200);
    drop(pool.copy(b"on the return stack"));
    let cached = pool.copy(b"on a list");
    drop(cached);
    pool.collect();
    drop(pool);
    drop(kept);
    assert_eq!(part[..], [3; 100]);
}

#[test]
fn other_threads_give_blocks_back() {
    let rounds = if cfg!(miri) { 30 } else { 20_000 };
    let mut pool = Pool::new(1 << 20);
    let (senders, threads): (Vec<_>, Vec<_>) = (0..3)
        .map(|_| {
            let (sender, receiver) = mpsc::sync_channel::<(u8, Packet)>(16);
            let thread = thread::spawn(move || {
                for (octet, packet) in receiver {
                    assert!(packet.iter().all(|&other| other == octet));
                }
            });
            (sender, thread)
        })
        .unzip();
    let mut rng = Rng::from_seed(11);
    for round in 0..rounds {
        let mut packet = pool.alloc(1 + rng.below(300) as usize);
        let octet = round as u8;
        packet.fill(octet);
        let len = packet.capacity();
        let packet = packet.freeze(len);
        for sender in &senders {
            sender.send((octet, packet.clone())).unwrap();
        }
    }
    assert!(pool.cached_bytes() <= 1 << 20);
    drop(pool);
    drop(senders);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn pool_drops_while_blocks_return() {
    for _ in 0..if cfg!(miri) { 5 } else { 300 } {
        let mut pool = Pool::new(1 << 20);
        let packets: Vec<_> = (0..8).map(|_| pool.copy(&[1; 50])).collect();
        let thread = thread::spawn(move || packets.into_iter().for_each(drop));
        drop(pool);
        thread.join().unwrap();
    }
}

#[test]
fn a_pool_may_move_to_another_thread() {
    let mut pool = Pool::new(1 << 16);
    drop(pool.copy(&[1; 50]));
    let packet = thread::spawn(move || pool.copy(&[2; 60])).join().unwrap();
    assert_eq!(packet[..], [2; 60]);
}
