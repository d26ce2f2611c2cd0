//! HR-ICP's shaping: rate, shares, sizes and bounds.

use proptest::prelude::*;
use weir_base::{Instant, NS_PER_MS, NS_PER_S, Packet};
use weir_link::{Link, LinkDrop};
use weir_wire::{Data, Interest, Name, PacketView};

use super::{START, data, limited, offer, pool, sent};

fn name(uri: &str) -> Name {
    uri.parse().unwrap()
}

fn interest_packet(uri: &str) -> Packet {
    Packet::from(Interest::new(name(uri)).encode())
}

/// Receives a Data of `uri`, and returns its size in bytes.
fn answer(link: &mut Link, uri: &str, content_bytes: usize) -> u64 {
    let packet = Data::new(name(uri)).content(vec![7; content_bytes]).encode_with_digest();
    let bytes = packet.len() as u64;
    link.receive(START, Packet::from(packet), &mut pool());
    bytes
}

/// Names of the Interests that leave until `end`, with their times.
fn leaves(link: &mut Link, end: Instant) -> Vec<(Instant, String)> {
    let mut outgoing = Vec::new();
    let mut note = |link: &mut Link, now| {
        outgoing.extend(
            sent(link)
                .iter()
                .map(|packet| (now, PacketView::decode(packet).unwrap().name().to_string())),
        );
    };
    note(link, START);
    while let Some(due) = link.next_wakeup().filter(|&due| due <= end) {
        link.poll(due);
        note(link, due);
    }
    outgoing
}

#[test]
fn interests_leave_at_the_rate_of_their_data() {
    // 1,000 bytes take 1 ms.
    let mut link = limited("hr-icp rate_bps=8000000 burst_bytes=2000 data_bytes=1000");
    for number in 0..10 {
        offer(&mut link, START, interest_packet(&format!("/a/{number}"))).unwrap();
    }
    assert_eq!(link.counters().out_interests_delayed, 7);
    offer(&mut link, START, data(10)).unwrap();
    let local = interest_packet("/localhop/nfd/rib/register");
    offer(&mut link, START, local.clone()).unwrap();
    let first = sent(&mut link);
    assert_eq!(
        first[..3],
        [0, 1, 2].map(|number| interest_packet(&format!("/a/{number}"))),
        "the burst"
    );
    assert_eq!(first[3..], [data(10), local], "Data and management do not wait");
    let outgoing = leaves(&mut link, START.plus_ns(NS_PER_S));
    let times: Vec<_> = outgoing.iter().map(|(at, _)| at.ns_since(START) / NS_PER_MS).collect();
    assert_eq!(times, [1, 2, 3, 4, 5, 6, 7]);
    assert_eq!((link.next_wakeup(), link.queue_bytes()), (None, 0));
}

#[test]
fn flows_share_by_bytes_not_by_interests() {
    let mut link = limited("hr-icp rate_bps=8000000 burst_bytes=0 data_bytes=1000");
    offer(&mut link, START, interest_packet("/first")).unwrap();
    // Flows exist from their first Interest on; their sizes, one large and one small, become known.
    for flow in ["/large", "/small"] {
        offer(&mut link, START, interest_packet(flow)).unwrap();
    }
    let mut bytes = [0; 2];
    for _ in 0..100 {
        bytes = [answer(&mut link, "/large/x", 4000), answer(&mut link, "/small/x", 400)];
    }
    for number in 0..900 {
        offer(&mut link, START, interest_packet(&format!("/small/{number}"))).unwrap();
        offer(&mut link, START, interest_packet(&format!("/large/{number}"))).unwrap();
    }
    let outgoing = leaves(&mut link, START.plus_ns(500 * NS_PER_MS));
    let of = |flow: &str| outgoing.iter().filter(|(_, name)| name.starts_with(flow)).count() as u64;
    let shares = [of("/large") * bytes[0], of("/small") * bytes[1]];
    // Half of 500,000 bytes each, up to a quantum and the error of the mean sizes.
    for share in shares {
        assert!((235_000..=260_000).contains(&share), "{shares:?} bytes");
    }
    let numbers = outgoing.iter().filter_map(|(_, name)| name.strip_prefix("/large/"));
    assert!(numbers.map(|it| it.parse::<u32>().unwrap()).is_sorted(), "a flow keeps its order");
}

#[test]
fn queues_and_flows_are_bounded() {
    let mut link = limited("hr-icp rate_bps=8000 burst_bytes=0 held_max=2 flows_max=3");
    let mut taken = Vec::new();
    for flow in 0..20 {
        for number in 0..4 {
            let result = offer(&mut link, START, interest_packet(&format!("/{flow}/{number}")));
            assert!(matches!(result, Ok(()) | Err(LinkDrop::FlowQueueFull)), "{result:?}");
            taken.extend(result.ok());
        }
    }
    // One left at once, and two of each of the three slots wait.
    assert_eq!(taken.len(), 7);
    assert_eq!(link.counters().drops[LinkDrop::FlowQueueFull], 73);
    link.shed_egress(0, false);
    assert_eq!(link.counters().drops[LinkDrop::EgressMemory], 7);
    assert_eq!((link.queue_bytes(), link.next_wakeup()), (0, None));

    let mut link = limited("hr-icp rate_bps=8000 burst_bytes=0");
    (0..9).for_each(|number| {
        offer(&mut link, START, interest_packet(&format!("/{number}"))).unwrap()
    });
    link.discard_all();
    assert_eq!(link.counters().drops[LinkDrop::SocketRefused], 9);
}

proptest! {
    /// In any time span, the requested Data exceeds neither the burst plus the rate, except by the
    /// one packet that uses up the credit. No Interest is lost, and each flow keeps its order.
    #[test]
    fn the_rate_holds_over_every_span(
        interests in prop::collection::vec((0u64..3000, 0u8..4), 1..120),
        rate_kbps in 100u64..20_000,
        burst_bytes in 0u64..5000,
        data_bytes in 1u64..9000,
    ) {
        let text = format!(
            "hr-icp rate_bps={} burst_bytes={burst_bytes} data_bytes={data_bytes}",
            rate_kbps * 1000,
        );
        let mut link = limited(&text);
        let mut now = START;
        let mut outgoing = Vec::new();
        let note = |link: &mut Link, now: Instant, outgoing: &mut Vec<(u64, u8, u8)>| {
            outgoing.extend(sent(link).iter().map(|packet| {
                let name = PacketView::decode(packet).unwrap().name();
                let octet = |index| name.component(index).unwrap().value[0];
                (now.as_ns(), octet(0), octet(1))
            }));
        };
        for (number, &(gap_us, flow)) in interests.iter().enumerate() {
            let arrives = now.plus_ns(gap_us * 1000);
            while let Some(due) = link.next_wakeup().filter(|&due| due <= arrives) {
                link.poll(due);
                note(&mut link, due, &mut outgoing);
            }
            now = arrives;
            let mut name = Name::new();
            name.append_generic(&[flow]).append_generic(&[number as u8]);
            let interest = Interest::new(name).lifetime_ms(3_600_000).encode();
            offer(&mut link, now, Packet::from(interest)).unwrap();
            note(&mut link, now, &mut outgoing);
        }
        while let Some(due) = link.next_wakeup() {
            link.poll(due);
            note(&mut link, due, &mut outgoing);
        }
        prop_assert_eq!(outgoing.len(), interests.len());
        for flow in 0..4 {
            prop_assert!(outgoing.iter().filter(|it| it.1 == flow).map(|it| it.2).is_sorted());
        }
        for from in 0..outgoing.len() {
            for to in from..outgoing.len() {
                let span_ns = u128::from(outgoing[to].0 - outgoing[from].0);
                let asked_bytes = (to - from) as u128 * u128::from(data_bytes);
                // Times are rounded down to a nanosecond for each Interest and for the burst.
                let spans_ns = span_ns + (to - from) as u128 + 1;
                let allowed_bits = spans_ns * u128::from(rate_kbps * 1000) / 1_000_000_000;
                prop_assert!(asked_bytes <= u128::from(burst_bytes) + allowed_bits / 8 + 1);
            }
        }
    }
}

/// An Interest that waited beyond its lifetime requests Data that would be dropped on the way back.
#[test]
fn expired_interests_are_not_sent() {
    let mut link = limited("hr-icp rate_bps=8000 burst_bytes=1000 data_bytes=1000");
    for number in 0..20 {
        let packet = Interest::new(name(&format!("/a/{number}"))).lifetime_ms(2000).encode();
        offer(&mut link, START, Packet::from(packet)).unwrap();
    }
    let outgoing = leaves(&mut link, START.plus_ns(60 * NS_PER_S));
    let late = outgoing.iter().filter(|(at, _)| at.ns_since(START) > 2 * NS_PER_S).count();
    assert_eq!(late, 0, "of {}", outgoing.len());
    assert_eq!(outgoing.len() as u64 + link.counters().drops.total(), 20);
}
