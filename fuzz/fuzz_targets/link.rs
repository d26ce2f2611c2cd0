//! Frames as a neighbour may send them, one after another: reassembly stays within its bounds.
#![no_main]

use weir_base::{Instant, NS_PER_MS, Packet, Pool};
use weir_link::{Link, LinkConfig};
use weir_wire::LpHeader;

libfuzzer_sys::fuzz_target!(|octets: &[u8]| {
    let mut config = LinkConfig::default();
    config.codec.reassembly = true;
    config.codec.fragmentation = true;
    config.codec.reliability = true;
    let mut link = Link::new(config);
    let mut pool = Pool::new(1 << 20);
    let mut now = Instant::ZERO;
    let mut rest = octets;
    while let [len, after @ ..] = rest {
        let (frame, next) = after.split_at(usize::from(*len).min(after.len()));
        now = now.plus_ns(NS_PER_MS);
        let _ = link.receive(now, Packet::from(frame), &mut pool);
        link.poll(now);
        let _ = link.enqueue(now, LpHeader::default(), Packet::from(&[5, 1, 0][..]));
        let count = link.frames().len();
        link.frames_sent(count);
        rest = next;
    }
});
