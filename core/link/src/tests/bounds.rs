//! What a router may drop from a face when all faces together use too much memory.

use std::vec::Vec;

use weir_base::{Instant, Packet, Pool};
use weir_wire::lp::LpHeader;

use super::{START, data, fragment, interest, pool, whole};
use crate::{Link, LinkConfig, LinkDrop, Received};

/// Queues the packets of `count` numbered Interests.
fn queue(link: &mut Link, count: usize) {
    for _ in 0..count {
        link.enqueue(START, LpHeader::default(), interest()).unwrap();
    }
}

#[test]
fn newest_frames_are_dropped_first() {
    let mut link = Link::new(LinkConfig::stream());
    queue(&mut link, 1);
    let one = link.egress_memory_bytes();
    queue(&mut link, 99);
    assert_eq!(link.egress_memory_bytes(), 100 * one);
    let oldest = link.frames().next().unwrap().payload().as_ptr();
    link.shed_egress(40 * one, true);
    assert_eq!(link.frames().len(), 40);
    assert_eq!(link.counters().drops[LinkDrop::EgressMemory], 60);
    link.shed_egress(0, true);
    assert_eq!(link.frames().len(), 1);
    assert_eq!(link.frames().next().unwrap().payload().as_ptr(), oldest);
    assert_eq!(link.egress_memory_bytes(), one);
    link.frames_sent(1);
    link.shrink();
    assert_eq!((link.egress_memory_bytes(), link.queue_bytes()), (0, 0));
    queue(&mut link, 2);
}

#[test]
fn queued_packet_keeps_no_large_block() {
    let mut link = Link::new(LinkConfig::stream());
    let mut pool = pool();
    let mut chunk = pool.alloc(120_000);
    chunk[..8000].copy_from_slice(&data(7996)[..8000]);
    let chunk = chunk.freeze(120_000);
    link.enqueue(START, LpHeader::default(), chunk.slice(0..8000)).unwrap();
    let small = chunk.slice(0..40);
    link.enqueue(START, LpHeader::default(), small.clone()).unwrap();
    let compact = pool.copy(&data(7996));
    link.enqueue(START, LpHeader::default(), compact.clone()).unwrap();
    link.detach_frames(&mut pool);
    let held = |packet: &Packet| packet.block_bytes();
    let frames: Vec<_> = link.frames().map(|frame| held(frame.payload())).collect();
    assert_eq!(frames, [8000, 40, 8000].map(Pool::footprint));
    assert_eq!(link.frames().nth(1).unwrap().payload()[..], small[..]);
    assert_eq!(link.frames().nth(2).unwrap().payload().as_ptr(), compact.as_ptr(), "not copied");
}

#[test]
fn router_may_drop_any_partial_packet() {
    let mut link = Link::new(LinkConfig::datagram(8800));
    let mut pool = pool();
    let at = |message: u64| START.plus_ns(message);
    for message in 1..=3 {
        link.receive(at(message), fragment(message * 10, 0, 2, b"\x06\x02a"), &mut pool);
    }
    let mut partials: Vec<(Instant, u64, usize)> = link.partials().collect();
    partials.sort_unstable();
    assert_eq!(partials.iter().map(|&(_, id, _)| id).collect::<Vec<_>>(), [10, 20, 30]);
    assert_eq!(partials.iter().map(|&(.., bytes)| bytes).sum::<usize>(), link.partial_bytes());
    link.discard_partial(10);
    link.discard_partial(10);
    assert_eq!(link.counters().drops[LinkDrop::ReassemblyFull], 1);
    let received = link.receive(at(9), fragment(11, 1, 2, b"b"), &mut pool);
    assert!(matches!(received, Received::Partial), "its first fragment was dropped");
    whole(link.receive(at(9), fragment(21, 1, 2, b"b"), &mut pool));
    link.discard_partial(30);
    link.discard_partial(10);
    assert_eq!(link.partial_bytes(), 0);
}

/// Lists of early fragments grow to 400 elements, and a face may have 256 packets in reassembly.
#[test]
fn reassembly_keeps_little_spare_memory() {
    let mut link = Link::new(LinkConfig::datagram(8800));
    let mut pool = pool();
    let charge = |link: &mut Link, pool: &mut Pool| {
        for index in (1..400).rev() {
            link.receive(START, fragment(index, index, 400, b"x"), pool);
        }
        link.partial_bytes()
    };
    let bytes = charge(&mut link, &mut pool);
    // The list itself is charged too, not only the blocks.
    assert!(bytes > 399 * (Pool::footprint(1) + 2 * size_of::<(u32, Packet)>()), "{bytes}");
    link.discard_partial(0);
    link.shrink();
    assert_eq!(link.partial_bytes(), 0);
    assert_eq!(charge(&mut link, &mut pool), bytes);
}
