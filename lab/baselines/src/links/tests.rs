//! Queue disciplines and marking policies in the link of a face.

mod hr_icp;
mod interest_rate;
mod marking;

use weir_base::{Instant, Packet, Pool};
use weir_link::{DisciplineConfig, Link, LinkConfig, LinkDrop};
use weir_wire::LpHeader;
use weir_wire::tlv;

use super::DISCIPLINES;

const START: Instant = Instant::from_ns(1_000_000_000);

fn pool() -> Pool {
    Pool::new(1 << 20)
}

/// A Data TLV whose value has `len` bytes.
fn data(len: usize) -> Packet {
    let mut head = [0; 10];
    let mut size = tlv::write_var_number(u64::from(tlv::DATA), &mut head);
    size += tlv::write_var_number(len as u64, &mut head[size..]);
    let mut octets = head[..size].to_vec();
    octets.resize(size + len, 7);
    Packet::from(octets)
}

/// Dequeues all frames, as bytes.
fn sent(link: &mut Link) -> Vec<Packet> {
    let octets = link.frames().map(|frame| [frame.prefix(), frame.payload()].concat().into());
    let frames: Vec<Packet> = octets.collect();
    link.frames_sent(frames.len());
    frames
}

fn limited(discipline: &str) -> Link {
    let mut config = LinkConfig::stream();
    config.egress.discipline = DisciplineConfig::read(discipline, DISCIPLINES).unwrap();
    Link::new(config)
}

fn offer(link: &mut Link, now: Instant, packet: Packet) -> Result<(), LinkDrop> {
    link.enqueue(now, LpHeader::default(), packet)
}

#[test]
fn baseline_names_follow_the_built_in_ones() {
    let error = DisciplineConfig::read("lifo", DISCIPLINES).unwrap_err();
    let expected =
        "unknown queue discipline `lifo`; choose one of fifo, paced, hr-icp, interest-rate";
    assert_eq!(error.to_string(), expected);
    assert_eq!(DisciplineConfig::read("fifo", DISCIPLINES), Ok(DisciplineConfig::Fifo));
    let chosen = DisciplineConfig::read("hr-icp  rate_bps=9 flows_max=3", DISCIPLINES).unwrap();
    assert_eq!(chosen.to_string(), "hr-icp rate_bps=9 flows_max=3");
}
