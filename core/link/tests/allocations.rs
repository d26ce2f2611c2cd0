//! In the steady state, packets cause no allocation, fragmented or not.

use std::net::Ipv6Addr;

use weir_base::{Instant, Packet, Pool};
use weir_hicn::HicnName;
use weir_link::{HicnConfig, Link, LinkConfig, Received};
use weir_wire::lp::{LpHeader, PitToken};
use weir_wire::{Data, Interest};

fn data(len: u16) -> Packet {
    let mut octets = vec![6, 253];
    octets.extend(len.to_be_bytes());
    octets.resize(4 + usize::from(len), 7);
    Packet::from(octets)
}

/// Sends `rounds` batches, delivers every frame to the receiver in a block of its pool, and counts
/// the packets.
fn exchange(near: &mut Link, far: &mut Link, pool: &mut Pool, packet: &Packet, rounds: u32) -> u32 {
    let header = LpHeader { pit_token: PitToken::new(b"8 octets").unwrap(), ..LpHeader::default() };
    let mut arrived = 0;
    for _ in 0..rounds {
        for _ in 0..32 {
            near.enqueue(Instant::ZERO, header.clone(), packet.clone()).unwrap();
        }
        while !near.is_egress_empty() {
            let frame = near.frames().next().unwrap();
            let len = frame.len();
            let (prefix_len, mut block) = (frame.prefix().len(), pool.alloc(len));
            block[..prefix_len].copy_from_slice(frame.prefix());
            block[prefix_len..len].copy_from_slice(frame.payload());
            near.frames_sent(1);
            let received = far.receive(Instant::ZERO, block.freeze(len), pool);
            arrived += u32::from(matches!(received, Received::Packet { .. }));
        }
    }
    arrived
}

#[test]
fn hicn_packets_cause_no_allocation() {
    let config = LinkConfig::hicn(1500, HicnConfig::default());
    let (mut near, mut far) = (Link::new(config.clone()), Link::new(config));
    let mut pool = Pool::new(16 << 20);
    let name = HicnName { address: Ipv6Addr::LOCALHOST, suffix: 7 }.to_name();
    let data = Packet::from(Data::new(name.clone()).content([5; 1200]).encode_with_digest());
    let interest = Packet::from(Interest::new(name).nonce(1).encode());
    for packet in [interest, data] {
        assert_eq!(exchange(&mut near, &mut far, &mut pool, &packet, 4), 128);
        let info = allocation_counter::measure(|| {
            assert_eq!(exchange(&mut near, &mut far, &mut pool, &packet, 100), 3200);
        });
        assert_eq!(info.count_total, 0);
    }
}

#[test]
fn packets_cause_no_allocation() {
    for mtu in [8800, 1420] {
        let mut near = Link::new(LinkConfig::datagram(mtu));
        let mut far = Link::new(LinkConfig::datagram(mtu));
        let mut pool = Pool::new(16 << 20);
        let packet = data(8000);
        assert_eq!(exchange(&mut near, &mut far, &mut pool, &packet, 4), 128);
        let info = allocation_counter::measure(|| {
            assert_eq!(exchange(&mut near, &mut far, &mut pool, &packet, 100), 3200);
        });
        assert_eq!(info.count_total, 0, "at an MTU of {mtu}");
    }
}
