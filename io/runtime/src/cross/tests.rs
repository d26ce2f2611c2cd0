use super::*;
use weir_wire::NackReason;

/// The rings of two threads, and the poll of the second thread.
fn two_threads() -> (ShardRings, ShardRings, mio::Poll) {
    let poll = mio::Poll::new().expect("a poll");
    let waker = Arc::new(Waker::new(poll.registry(), mio::Token(0)).expect("a waker"));
    let mut ports = ShardRings::connect_all(&[Arc::clone(&waker), waker]);
    let second = ports.pop().expect("two threads");
    (ports.pop().expect("two threads"), second, poll)
}

/// Whether the waker was used since the last call.
fn was_woken(poll: &mut mio::Poll) -> bool {
    let mut events = mio::Events::with_capacity(4);
    poll.poll(&mut events, Some(std::time::Duration::ZERO)).expect("a poll");
    !events.is_empty()
}

fn octets(number: usize) -> Vec<u8> {
    // Shorter and longer than the limit for copies, and empty.
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

fn message(number: usize) -> RingMessage {
    let (face, header) = (FaceId(number as u64), header(number));
    let packet = Packet::from(octets(number));
    match number % 5 {
        0 => RingMessage::SignalOut {
            face,
            signal: HopSignal::Unavailable { for_ms: number as u64 },
        },
        1 | 2 => RingMessage::In { face, header, packet },
        _ => RingMessage::Out(OutPacket { face, header, packet }),
    }
}

/// The contents of a message, for comparison.
fn describe(crossing: &RingMessage) -> (String, Vec<u8>) {
    let octets = match crossing {
        RingMessage::In { packet, .. } | RingMessage::Out(OutPacket { packet, .. }) => {
            packet.to_vec()
        }
        _ => Vec::new(),
    };
    (format!("{crossing:?}"), octets)
}

#[test]
fn messages_arrive_whole_and_in_order() {
    let (mut here, mut there, _poll) = two_threads();
    let mut pool = Pool::new(1 << 20);
    let (mut pushed, mut taken) = (0, 0);
    // Goes around the ring many times, with a different fill level each time.
    while pushed < 20_000 {
        for _ in 0..pushed % 97 + 1 {
            here.push(1, message(pushed), &mut pool);
            pushed += 1;
        }
        here.wake_pending();
        there.note_lengths();
        while let Some(got) = there.next_message(&mut pool) {
            assert_eq!(describe(&got), describe(&message(taken)));
            taken += 1;
        }
        assert_eq!(taken, pushed);
    }
    assert_eq!(here.overflows, 0);
    assert!(here.next_message(&mut pool).is_none());
}

#[test]
fn records_wrap_at_ring_end() {
    let (mut here, mut there, _poll) = two_threads();
    let mut pool = Pool::new(1 << 20);
    let (mut pushed, mut taken) = (0, 0);
    // Records of 1025 bytes never end exactly at the end of the ring.
    for _ in 0..20 {
        loop {
            let (face, header) = (FaceId(pushed), LpHeader::default());
            let packet = Packet::from(vec![7; 1001]);
            if here.try_push(1, RingMessage::In { face, header, packet }, &mut pool).is_err() {
                break;
            }
            pushed += 1;
        }
        assert!(pushed - taken >= (RING_BYTES / 1025) as u64 - 1);
        there.note_lengths();
        while let Some(RingMessage::In { face, .. }) = there.next_message(&mut pool) {
            assert_eq!(face.0, taken);
            taken += 1;
        }
        assert_eq!(taken, pushed);
    }
}

#[test]
fn full_ring_returns_message() {
    let (mut here, mut there, _poll) = two_threads();
    let mut pool = Pool::new(1 << 20);
    let small = |face| RingMessage::In {
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
    assert_eq!(describe(&refused), describe(&small(count)));
    assert_eq!(count, (RING_BYTES / (Record::HEAD_BYTES + 1000)) as u64);
    here.push(1, refused, &mut pool);
    assert_eq!(here.overflows, 1);
    there.note_lengths();
    let mut faces = 0..count;
    while let Some(RingMessage::In { face, packet, .. }) = there.next_message(&mut pool) {
        assert_eq!((Some(face.0), packet.len()), (faces.next(), 1000));
    }
    assert!(faces.is_empty());
    here.try_push(1, small(0), &mut pool).expect("there is room again");
}

#[test]
fn takes_only_noted_messages() {
    let (mut here, mut there, _poll) = two_threads();
    let mut pool = Pool::new(1 << 20);
    here.push(1, message(1), &mut pool);
    there.note_lengths();
    here.push(1, message(2), &mut pool);
    assert!(there.next_message(&mut pool).is_some());
    assert!(there.next_message(&mut pool).is_none());
    there.note_lengths();
    assert!(there.next_message(&mut pool).is_some());
}

#[test]
fn wakes_only_sleeping_threads() {
    let (mut here, mut there, mut poll) = two_threads();
    let mut pool = Pool::new(1 << 20);
    // A busy thread will look at its rings.
    here.push(1, message(1), &mut pool);
    here.wake_pending();
    assert!(!was_woken(&mut poll));
    // The thread must not sleep while a message waits.
    assert!(!there.begin_sleep());
    there.end_sleep();
    there.note_lengths();
    assert!(there.next_message(&mut pool).is_some());
    assert!(there.begin_sleep());
    here.wake_pending();
    assert!(!was_woken(&mut poll), "nothing was handed over since");
    here.push(1, message(2), &mut pool);
    here.push(1, message(3), &mut pool);
    here.wake_pending();
    assert!(was_woken(&mut poll));
    // The thread is awake and about to look.
    here.push(1, message(4), &mut pool);
    here.wake_pending();
    assert!(!was_woken(&mut poll));
    there.end_sleep();
    there.note_lengths();
    while there.next_message(&mut pool).is_some() {}
    // Woken by another way than the rings.
    assert!(there.begin_sleep());
    here.mark_for_wake(1);
    here.wake_pending();
    assert!(was_woken(&mut poll));
}
