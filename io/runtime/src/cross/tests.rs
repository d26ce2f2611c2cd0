use super::*;
use weir_wire::NackReason;

/// The ends of two threads, and what the second waits with.
fn two_threads() -> (CrossPorts, CrossPorts, mio::Poll) {
    let poll = mio::Poll::new().expect("a poll");
    let waker = Arc::new(Waker::new(poll.registry(), mio::Token(0)).expect("a waker"));
    let mut ports = CrossPorts::connect_all(&[Arc::clone(&waker), waker]);
    let second = ports.pop().expect("two threads");
    (ports.pop().expect("two threads"), second, poll)
}

/// Whether the waker has been used since this was asked last.
fn has_rung(poll: &mut mio::Poll) -> bool {
    let mut events = mio::Events::with_capacity(4);
    poll.poll(&mut events, Some(std::time::Duration::ZERO)).expect("a poll");
    !events.is_empty()
}

fn octets(number: usize) -> Vec<u8> {
    // Smaller and larger than what is copied, and none at all.
    (0..number * 37 % (2 * COPY_BYTES_MAX)).map(|at| (at + number) as u8).collect()
}

fn header(number: usize) -> LpHeader {
    LpHeader {
        pit_token: PitToken::new(&octets(number % 33)[..number % 33 / 3]).expect("short"),
        incoming_face: number.is_multiple_of(3).then_some(number as u64 + 1),
        congestion_mark: [0, 1, 1 << 40][number % 5 % 3],
        nack: number.is_multiple_of(7).then_some(NackReason::Duplicate),
        no_cache: number.is_multiple_of(11),
        ..LpHeader::default()
    }
}

fn crossing(number: usize) -> Crossing {
    let (face, header) = (FaceId(number as u64), header(number));
    let packet = Packet::from(octets(number));
    match number % 5 {
        0 => Crossing::SignalOut { face, signal: HopSignal::Unavailable { for_ms: number as u64 } },
        1 | 2 => Crossing::In { face, header, packet },
        _ => Crossing::Out(OutPacket { face, header, packet }),
    }
}

/// All that a crossing says, for comparison.
fn said(crossing: &Crossing) -> (String, Vec<u8>) {
    let octets = match crossing {
        Crossing::In { packet, .. } | Crossing::Out(OutPacket { packet, .. }) => packet.to_vec(),
        _ => Vec::new(),
    };
    (format!("{crossing:?}"), octets)
}

#[test]
fn what_crosses_arrives_whole_and_in_order() {
    let (mut here, mut there, _poll) = two_threads();
    let mut pool = Pool::new(1 << 20);
    let (mut pushed, mut taken) = (0, 0);
    // Many times round the ring of octets, at other distances between the two each time.
    while pushed < 20_000 {
        for _ in 0..pushed % 97 + 1 {
            here.push(1, crossing(pushed), &mut pool);
            pushed += 1;
        }
        here.wake_pending();
        there.note_waiting();
        while let Some(got) = there.next_noted(&mut pool) {
            assert_eq!(said(&got), said(&crossing(taken)));
            taken += 1;
        }
        assert_eq!(taken, pushed);
    }
    assert_eq!(here.overflows, 0);
    assert!(here.next_noted(&mut pool).is_none());
}

#[test]
fn a_ring_that_is_full_at_its_end_goes_on_at_its_beginning() {
    let (mut here, mut there, _poll) = two_threads();
    let mut pool = Pool::new(1 << 20);
    let (mut pushed, mut taken) = (0, 0);
    // Records of 1025 octets never end where the ring does.
    for _ in 0..20 {
        loop {
            let (face, header) = (FaceId(pushed), LpHeader::default());
            let packet = Packet::from(vec![7; 1001]);
            if here.try_push(1, Crossing::In { face, header, packet }, &mut pool).is_err() {
                break;
            }
            pushed += 1;
        }
        assert!(pushed - taken >= (RING_BYTES / 1025) as u64 - 1);
        there.note_waiting();
        while let Some(Crossing::In { face, .. }) = there.next_noted(&mut pool) {
            assert_eq!(face.0, taken);
            taken += 1;
        }
        assert_eq!(taken, pushed);
    }
}

#[test]
fn a_full_ring_gives_back_what_it_has_no_room_for() {
    let (mut here, mut there, _poll) = two_threads();
    let mut pool = Pool::new(1 << 20);
    let small = |face| Crossing::In {
        face: FaceId(face),
        header: LpHeader::default(),
        packet: Packet::from(vec![7; 1000]),
    };
    let mut count = 0;
    let refused = loop {
        match here.try_push(1, small(count), &mut pool) {
            Ok(()) => count += 1,
            Err(refused) => break refused,
        }
    };
    assert_eq!(said(&refused), said(&small(count)));
    assert_eq!(count, (RING_BYTES / (Record::HEAD_BYTES + 1000)) as u64);
    here.push(1, refused, &mut pool);
    assert_eq!(here.overflows, 1);
    there.note_waiting();
    let mut faces = 0..count;
    while let Some(Crossing::In { face, packet, .. }) = there.next_noted(&mut pool) {
        assert_eq!((Some(face.0), packet.len()), (faces.next(), 1000));
    }
    assert!(faces.is_empty());
    here.try_push(1, small(0), &mut pool).expect("there is room again");
}

#[test]
fn only_what_was_noted_is_taken() {
    let (mut here, mut there, _poll) = two_threads();
    let mut pool = Pool::new(1 << 20);
    here.push(1, crossing(1), &mut pool);
    there.note_waiting();
    here.push(1, crossing(2), &mut pool);
    assert!(there.next_noted(&mut pool).is_some());
    assert!(there.next_noted(&mut pool).is_none());
    there.note_waiting();
    assert!(there.next_noted(&mut pool).is_some());
}

#[test]
fn a_thread_is_woken_if_it_sleeps_and_not_else() {
    let (mut here, mut there, mut poll) = two_threads();
    let mut pool = Pool::new(1 << 20);
    // Busy: it will look.
    here.push(1, crossing(1), &mut pool);
    here.wake_pending();
    assert!(!has_rung(&mut poll));
    // It may not sleep over what has come, and after that it may.
    assert!(!there.fall_asleep());
    there.wake_up();
    there.note_waiting();
    assert!(there.next_noted(&mut pool).is_some());
    assert!(there.fall_asleep());
    here.wake_pending();
    assert!(!has_rung(&mut poll), "nothing was handed over since");
    here.push(1, crossing(2), &mut pool);
    here.push(1, crossing(3), &mut pool);
    here.wake_pending();
    assert!(has_rung(&mut poll));
    // It is about to look.
    here.push(1, crossing(4), &mut pool);
    here.wake_pending();
    assert!(!has_rung(&mut poll));
    there.wake_up();
    there.note_waiting();
    while there.next_noted(&mut pool).is_some() {}
    // By another way than the rings.
    assert!(there.fall_asleep());
    here.rouse(1);
    here.wake_pending();
    assert!(has_rung(&mut poll));
}
