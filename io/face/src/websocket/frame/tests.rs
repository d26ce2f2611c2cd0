use super::*;

use std::iter;

const BINARY: u8 = 0x82;
const MASK: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];

/// A masked frame with any first octet.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut octets = vec![first];
    match payload.len() {
        len @ ..126 => octets.push(0x80 | len as u8),
        len @ ..65536 => {
            octets.push(0x80 | 126);
            octets.extend((len as u16).to_be_bytes());
        }
        len => {
            octets.push(0x80 | 127);
            octets.extend((len as u64).to_be_bytes());
        }
    }
    octets.extend(MASK);
    octets.extend(payload.iter().zip(MASK.into_iter().cycle()).map(|(octet, mask)| octet ^ mask));
    octets
}

fn payload(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 % 251) as u8).collect()
}

/// Decodes bytes that arrive in parts, as a socket does.
struct Received {
    decoder: Decoder,
    rest: Vec<u8>,
    messages: Vec<Vec<u8>>,
    end: Option<End>,
}

impl Received {
    fn new(role: Role) -> Self {
        Self { decoder: Decoder::new(role), rest: Vec::new(), messages: Vec::new(), end: None }
    }

    fn push(&mut self, octets: &[u8]) {
        assert_eq!(self.end, None);
        self.rest.extend(octets);
        let mut messages = Vec::new();
        let mut pool = Pool::new(1 << 20);
        let decoded = self.decoder.decode(&mut self.rest, &mut pool, &mut messages);
        self.messages.extend(messages.into_iter().map(|message| match message {
            Message::Whole(payload) => self.rest[payload].to_vec(),
            Message::Joined(packet) => packet.to_vec(),
        }));
        self.end = decoded.end;
        self.rest.drain(..decoded.consumed);
    }
}

fn end_of(role: Role, octets: &[u8]) -> Option<End> {
    let mut received = Received::new(role);
    received.push(octets);
    received.end
}

fn broken(octets: &[u8]) -> WebSocketError {
    match end_of(Role::Server, octets) {
        Some(End::Broken(error)) => error,
        other => panic!("{other:?}"),
    }
}

#[test]
fn decodes_frames_split_at_every_byte() {
    let sent = [payload(2), payload(125), payload(126), payload(300), payload(8800)];
    let mut octets: Vec<u8> = sent.iter().flat_map(|sent| frame(BINARY, sent)).collect();
    octets.extend(frame(0x89, b"are you there"));
    for split in 0..=octets.len() {
        let mut received = Received::new(Role::Server);
        received.push(&octets[..split]);
        received.push(&octets[split..]);
        assert_eq!(received.messages, sent, "split at {split}");
        assert!(received.rest.is_empty() && received.end.is_none());
        assert_eq!(received.decoder.take_ping().unwrap(), b"are you there");
    }
    let mut received = Received::new(Role::Server);
    octets.chunks(1).for_each(|octet| received.push(octet));
    assert_eq!(received.messages, sent);
}

#[test]
fn decodes_what_it_encodes() {
    for (role, peer) in [(Role::Client, Role::Server), (Role::Server, Role::Client)] {
        let mut octets = Vec::new();
        let lengths = [0, 1, 125, 126, 8800, MESSAGE_BYTES_MAX];
        for len in lengths {
            let (start, whole) = (octets.len(), payload(len));
            let parts = [&whole[..len / 3], &whole[len / 3..]];
            encode(&mut octets, role, OpCode::Data(Data::Binary), parts).unwrap();
            assert_eq!(octets.len() - start, encoded_len(role, len));
        }
        let mut received = Received::new(peer);
        received.push(&octets);
        assert_eq!(received.messages, lengths.map(payload));
        assert!(received.end.is_none() && received.rest.is_empty());
    }
}

/// The examples of RFC 6455, section 5.7, with other opcodes.
#[test]
fn decodes_examples_of_the_rfc() {
    let masked = [0x82, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58];
    let mut received = Received::new(Role::Server);
    received.push(&masked);
    assert_eq!(received.messages, [b"Hello"]);
    let mut received = Received::new(Role::Client);
    received.push(&[0x02, 0x03, 0x48, 0x65, 0x6c, 0x80, 0x02, 0x6c, 0x6f]);
    assert_eq!(received.messages, [b"Hello"]);
}

#[test]
fn joins_fragments_around_control_frames() {
    let whole = payload(8800);
    let mut received = Received::new(Role::Server);
    received.push(&frame(0x02, &whole[..3000]));
    assert!(received.decoder.held_bytes() >= 3000);
    received.push(&frame(0x89, b"1"));
    received.push(&frame(0x8a, b"an unexpected pong"));
    received.push(&frame(0x00, &whole[3000..6000]));
    received.push(&frame(0x89, b"2"));
    received.push(&frame(0x80, &whole[6000..]));
    received.push(&frame(BINARY, b"next"));
    assert_eq!(received.messages, [whole, b"next".to_vec()]);
    assert_eq!(received.decoder.held_bytes(), 0);
    assert_eq!(received.decoder.take_ping().unwrap(), b"2");
}

#[test]
fn refuses_wrong_masks() {
    assert_eq!(broken(&[BINARY, 5, 1, 2, 3, 4, 5]), WebSocketError::Unmasked);
    let masked = end_of(Role::Client, &frame(BINARY, b"x"));
    assert_eq!(masked, Some(End::Broken(WebSocketError::Masked)));
}

#[test]
fn refuses_long_messages_by_their_header() {
    for len in [MESSAGE_BYTES_MAX as u64 + 1, 1 << 32, u64::MAX] {
        let mut header = vec![BINARY, 0x80 | 127];
        header.extend(len.to_be_bytes());
        header.extend(MASK);
        assert_eq!(broken(&header), WebSocketError::TooLong, "{len}");
    }
    // Fragments that are too long together.
    let mut octets = frame(0x02, &payload(5000));
    octets.extend(frame(0x00, &payload(5000)));
    assert_eq!(broken(&octets), WebSocketError::TooLong);
}

#[test]
fn refuses_text_and_misplaced_fragments() {
    assert_eq!(broken(&frame(0x81, b"hello")), WebSocketError::Text);
    assert_eq!(broken(&frame(0x01, b"hel")), WebSocketError::Text);
    assert_eq!(broken(&frame(0x80, b"lo")), WebSocketError::Fragment);
    let twice = [frame(0x02, b"a"), frame(BINARY, b"b")].concat();
    assert_eq!(broken(&twice), WebSocketError::Fragment);
}

#[test]
fn refuses_reserved_bits_and_opcodes() {
    for first in [0xc2, 0xa2, 0x92, 0x83, 0x87, 0x8b, 0x8f] {
        assert_eq!(broken(&frame(first, b"x")), WebSocketError::Reserved, "{first:x}");
    }
}

#[test]
fn refuses_long_or_fragmented_control_frames() {
    assert_eq!(broken(&frame(0x09, b"x")), WebSocketError::Control);
    assert_eq!(broken(&frame(0x89, &payload(126))), WebSocketError::Control);
}

#[test]
fn ends_at_close_frame() {
    let closed = |payload: &[u8]| end_of(Role::Server, &frame(0x88, payload));
    assert_eq!(closed(&[0x03, 0xe8, b'b', b'y', b'e']), Some(End::Closed(Some(CloseCode::Normal))));
    assert_eq!(closed(&[]), Some(End::Closed(None)));
    assert_eq!(closed(&[3]), Some(End::Closed(None)));
    let mut received = Received::new(Role::Server);
    received.push(&[frame(BINARY, b"1"), frame(0x88, &[]), frame(BINARY, b"2")].concat());
    assert_eq!(received.messages, [b"1"]);
}

proptest::proptest! {
    #[test]
    fn any_bytes_end_or_wait(octets in proptest::collection::vec(proptest::num::u8::ANY, 0..200)) {
        for role in [Role::Server, Role::Client] {
            let mut received = Received::new(role);
            for octet in &octets {
                if received.end.is_none() {
                    received.push(&[*octet]);
                }
            }
            let mut whole = Received::new(role);
            whole.push(&octets);
            // How the bytes are split makes no difference.
            proptest::prop_assert_eq!(&received.messages, &whole.messages);
            proptest::prop_assert_eq!(received.end, whole.end);
        }
    }

    #[test]
    fn masks_twice_to_the_same(octets in proptest::collection::vec(proptest::num::u8::ANY, 0..64)) {
        let mut masked = octets.clone();
        apply_mask(&mut masked, MASK);
        let expected: Vec<u8> =
            iter::zip(&octets, MASK.iter().cycle()).map(|(octet, mask)| octet ^ mask).collect();
        proptest::prop_assert_eq!(&masked, &expected);
        apply_mask(&mut masked, MASK);
        proptest::prop_assert_eq!(masked, octets);
    }
}
