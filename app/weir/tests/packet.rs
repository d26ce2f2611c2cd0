//! `weir packet` on all test vectors, files and captures.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};
use weir_hicn::control::{Command as ControlCommand, ControlMessage};
use weir_hicn::{HicnName, HicnPrefix, Hop, from_tlv};
use weir_wire::{Data, Interest};

/// Keys of a vector that do not describe the packet.
const ABOUT: [&str; 4] = ["note", "verifies_with", "verified_by", "reassembles"];

fn records(file: &str) -> Vec<Value> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../core/wire/tests/vectors");
    let text = fs::read_to_string(folder.join(file)).expect("the vectors are there");
    let records = text.lines().skip(1).map(|line| serde_json::from_str(line).expect("JSON"));
    records.map(with_snake_case_keys).collect()
}

/// The vectors are shared with other implementations, and have keys in camelCase.
fn with_snake_case_keys(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let renamed = fields.into_iter().map(|(key, value)| {
                let letters = key.chars().flat_map(|letter| {
                    let gap = letter.is_ascii_uppercase().then_some('_');
                    gap.into_iter().chain([letter.to_ascii_lowercase()])
                });
                (letters.collect(), with_snake_case_keys(value))
            });
            Value::Object(renamed.collect())
        }
        Value::Array(items) => items.into_iter().map(with_snake_case_keys).collect(),
        other => other,
    }
}

fn octets(record: &Value) -> Vec<u8> {
    hex::decode(record["hex"].as_str().expect("hex")).expect("hex")
}

fn weir_packet(arguments: &[&str], input: &[u8]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_weir"))
        .arg("packet")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("weir starts");
    // Fails with --hex, as standard input is not read.
    let _ = child.stdin.take().expect("a pipe").write_all(input);
    child.wait_with_output().expect("weir ends")
}

/// The JSON objects in the output, one per line.
fn objects(output: &Output) -> Vec<Value> {
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().map(|line| serde_json::from_str(line).expect("a JSON object a line")).collect()
}

/// Checks that the printed fields equal those of the vector, with no missing and no extra key.
fn compare(record: &Value, printed: &Value) {
    let name = &record["name"];
    let expect = record["expect"].as_object().expect("expect");
    for (key, value) in expect.iter().filter(|(key, _)| !ABOUT.contains(&&***key)) {
        assert_eq!(&printed[key], value, "{name}: {key}");
    }
    for key in printed.as_object().expect("an object").keys() {
        assert!(key == "kind" || expect.contains_key(key), "{name}: {key} is not in the vector");
    }
    assert_eq!(printed["kind"], record["kind"], "{name}");
}

#[test]
fn prints_the_fields_of_valid_packets() {
    for record in records("valid.jsonl") {
        let hex = record["hex"].as_str().expect("hex");
        // The kernel limits one argument to 128 KiB, which no packet reaches in hexadecimal.
        let output = weir_packet(&["--hex", hex, "--json"], b"");
        assert!(output.status.success(), "{}", record["name"]);
        let printed = objects(&output);
        assert_eq!(printed.len(), 1);
        compare(&record, &printed[0]);
        let kind = record["kind"].as_str().expect("a kind");
        let asked = weir_packet(&["--as", kind, "--json", "-"], &octets(&record));
        assert_eq!(asked.stdout, output.stdout, "{}", record["name"]);
    }
}

/// Invalid vectors that are printed all the same: only a verifier checks their invalid field.
const CARRIED: [&str; 2] = ["inv-data-keylocator-empty", "inv-data-validity-malformed"];

#[test]
fn invalid_packet_exits_with_1_and_reason() {
    for record in records("invalid.jsonl").iter().chain(&records("divergent.jsonl")) {
        if CARRIED.iter().any(|name| record["name"] == *name) {
            continue;
        }
        let hex = record["hex"].as_str().expect("hex");
        let kind = record["expect"]["as"].as_str().expect("a kind");
        let output = weir_packet(&["--hex", hex, "--as", kind, "--json"], b"");
        assert_eq!(output.status.code(), Some(1), "{}", record["name"]);
        let printed = objects(&output);
        assert_eq!(printed.len(), 1, "{}", record["name"]);
        let reason = printed[0]["reason"].as_str().expect("a reason");
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(message.contains(reason), "{}: {message}", record["name"]);
    }
}

#[test]
fn prints_consecutive_packets_one_by_one() {
    let valid = records("valid.jsonl");
    let stream: Vec<u8> = valid.iter().flat_map(octets).collect();
    let path = scratch("stream");
    fs::write(&path, &stream).expect("a scratch file");
    let output = weir_packet(&[path.to_str().expect("a path"), "--json"], b"");
    fs::remove_file(&path).expect("the scratch file goes");
    assert!(output.status.success());
    let printed = objects(&output);
    assert_eq!(printed.len(), valid.len());
    for (record, printed) in valid.iter().zip(&printed) {
        compare(record, printed);
    }
    // Hexadecimal text gives the same result.
    let text = hex::encode(&stream);
    assert_eq!(weir_packet(&["--json"], text.as_bytes()).stdout, output.stdout);
}

/// As `ndnsec cert-dump` and `weir key export` write certificates, and as ndnd does.
#[test]
fn reads_certificates_as_text() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../io/crypto/src/tests/vectors/cxx-certificate.hex");
    let certificate = fs::read_to_string(path).expect("the vector is there");
    let expected = weir_packet(&["--hex", certificate.trim(), "--json"], b"");
    assert!(expected.status.success());
    let octets = hex::decode(certificate.trim()).expect("hex");
    let text = weir_crypto::to_base64_lines(&octets);
    let pem = format!("-----BEGIN NDN CERT-----\nName: /a\n\n{text}-----END NDN CERT-----\n");
    for input in [text.clone(), text.replace('\n', "\r\n"), text.replace('\n', ""), pem] {
        let output = weir_packet(&["--json", "-"], input.as_bytes());
        assert_eq!(output.stdout, expected.stdout, "{input}");
    }
    let output = weir_packet(&["-"], &text.as_bytes()[..100]);
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn prints_text_by_default() {
    let output = weir_packet(&["--hex", INTEREST], b"");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success());
    assert!(text.starts_with("Interest, 13 bytes\n"), "{text}");
    for line in ["  nonce_hex               01020304", "  lifetime_ms             4000"] {
        assert!(text.lines().any(|found| found == line), "{text}");
    }
    let nack = format!("6418fd032005fd03210132500d{INTEREST}");
    let output = weir_packet(&["--hex", &nack], b"");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.starts_with("LpPacket, 26 bytes\n"), "{text}");
    for line in [
        "  nack_reason             50",
        "  Interest, 13 bytes",
        "    nonce_hex             01020304",
    ] {
        assert!(text.lines().any(|found| found == line), "{text}");
    }
}

#[test]
fn refuses_other_input_with_advice() {
    for (arguments, expected) in [
        (&["--hex", "05zz"][..], "not hexadecimal"),
        (&["/nowhere/at/all"][..], "cannot read /nowhere/at/all"),
        (&["--hex", "0700"][..], "the outermost element is Name"),
        (&["-"][..], "truncated"),
    ] {
        let output = weir_packet(arguments, b"");
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert!(message.contains(expected), "{arguments:?}: {message}");
    }
}

fn scratch(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("weir-packet-{}-{name}", std::process::id()))
}

const INTEREST: &str = "050b07030801410a0401020304";

/// Ethernet frames that contain the same Interest in all supported encapsulations, and other
/// traffic.
fn frames(interest: &[u8]) -> Vec<Vec<u8>> {
    let udp = |port: u16| {
        let mut udp = vec![0x30, 0x39];
        udp.extend(port.to_be_bytes());
        udp.extend((8 + interest.len() as u16).to_be_bytes());
        udp.extend([0, 0]);
        udp.extend(interest);
        udp
    };
    let tcp = |sequence: u32, payload: &[u8]| {
        let mut tcp = vec![0x18, 0xDB, 0x30, 0x39];
        tcp.extend(sequence.to_be_bytes());
        tcp.extend([0, 0, 0, 0, 0x50, 0x18, 0, 0, 0, 0, 0, 0]);
        tcp.extend(payload);
        tcp
    };
    let mut padded = interest.to_vec();
    padded.resize(46, 0);
    let (head, tail) = interest.split_at(5);
    vec![
        ethernet(&[0x86, 0x24], &padded),
        ethernet(&[0x08, 0x00], &ipv4(17, &udp(6363))),
        ethernet(&[0x81, 0x00, 0x00, 0x07, 0x08, 0x00], &ipv4(17, &udp(56363))),
        ethernet(&[0x86, 0xDD], &ipv6(17, &udp(6363))),
        ethernet(&[0x08, 0x00], &ipv4(17, &udp(53))),
        ethernet(&[0x08, 0x00], &ipv4(6, &tcp(1000, head))),
        ethernet(&[0x08, 0x00], &ipv4(6, &tcp(1000, head))),
        ethernet(&[0x08, 0x00], &ipv4(6, &tcp(1005, tail))),
        ethernet(&[0x08, 0x06], &[0; 28]),
    ]
}

fn ethernet(typ: &[u8], payload: &[u8]) -> Vec<u8> {
    [&[2; 12][..], typ, payload].concat()
}

fn ipv4(protocol: u8, payload: &[u8]) -> Vec<u8> {
    let total = (20 + payload.len() as u16).to_be_bytes();
    let header = [0x45, 0, total[0], total[1], 0, 0, 0x40, 0, 64, protocol, 0, 0];
    [&header[..], &[192, 0, 2, 1], &[192, 0, 2, 2], payload].concat()
}

fn ipv6(next: u8, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u16).to_be_bytes();
    let header = [0x60, 0, 0, 0, length[0], length[1], next, 64];
    [&header[..], &[1; 16], &[2; 16], payload].concat()
}

/// A pcap file: little endian, microseconds.
fn pcap(link: u32, frames: &[Vec<u8>]) -> Vec<u8> {
    let mut out = vec![0xD4, 0xC3, 0xB2, 0xA1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    out.extend(65_535_u32.to_le_bytes());
    out.extend(link.to_le_bytes());
    for frame in frames {
        for number in [1_700_000_000, 5, frame.len() as u32, frame.len() as u32] {
            out.extend(number.to_le_bytes());
        }
        out.extend(frame);
    }
    out
}

/// A pcapng file: little endian, default time resolution, Ethernet.
fn pcapng(frames: &[Vec<u8>]) -> Vec<u8> {
    let block = |typ: u32, body: &[u8]| {
        let mut body = body.to_vec();
        body.resize(body.len().next_multiple_of(4), 0);
        let size = (12 + body.len() as u32).to_le_bytes();
        [&typ.to_le_bytes()[..], &size, &body, &size].concat()
    };
    let mut section = vec![0x4D, 0x3C, 0x2B, 0x1A, 1, 0, 0, 0];
    section.extend([0xFF; 8]);
    let mut out = block(0x0A0D_0D0A, &section);
    out.extend(block(1, &[1, 0, 0, 0, 0xFF, 0xFF, 0, 0]));
    for frame in frames {
        let time_us = 1_700_000_000_000_005_u64;
        let mut body = Vec::new();
        let (high, low) = ((time_us >> 32) as u32, time_us as u32);
        for number in [0, high, low, frame.len() as u32, frame.len() as u32] {
            body.extend(number.to_le_bytes());
        }
        body.extend(frame);
        out.extend(block(6, &body));
    }
    out
}

#[test]
fn reads_packets_of_captures() {
    let interest = hex::decode(INTEREST).expect("hex");
    let frames = frames(&interest);
    for (kind, capture) in [("pcap", pcap(1, &frames)), ("pcapng", pcapng(&frames))] {
        let output = weir_packet(&["--json", "-"], &capture);
        assert!(output.status.success(), "{kind}: {output:?}");
        let printed = objects(&output);
        let found: Vec<u64> = printed
            .iter()
            .map(|object| object["capture"]["frame"].as_u64().expect("a frame"))
            .collect();
        assert_eq!(found, [1, 2, 3, 4, 8], "{kind}");
        for object in &printed {
            assert_eq!(object["nonce_hex"], "01020304", "{kind}");
            assert_eq!(object["capture"]["time_us"], 1_700_000_000_000_005_u64, "{kind}");
        }
        assert_eq!(printed[1]["capture"]["from"], "192.0.2.1:12345");
        assert_eq!(printed[3]["capture"]["to"], "[202:202:202:202:202:202:202:202]:6363");
    }
}

#[test]
fn reads_captures_of_other_link_types() {
    let interest = hex::decode(INTEREST).expect("hex");
    let from_ethernet = &frames(&interest)[1];
    let datagram = &from_ethernet[14..];
    for (link, header) in [
        (0, vec![2, 0, 0, 0]),
        (101, vec![]),
        (113, [&[0; 14][..], &[0x08, 0x00]].concat()),
        (276, [&[0x08, 0x00][..], &[0; 18]].concat()),
    ] {
        let output = weir_packet(&["--json"], &pcap(link, &[[&header, datagram].concat()]));
        assert!(output.status.success(), "link type {link}");
        assert_eq!(objects(&output)[0]["name"], "/A", "link type {link}");
    }
}

#[test]
fn bad_or_empty_capture_exits_with_1() {
    let mut bad = frames(&hex::decode(INTEREST).expect("hex"));
    let output = weir_packet(&["-"], &pcap(1, &bad[8..]));
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no NDN packet"));

    let last = bad[1].len() - 6;
    bad[1][last] = 11;
    let output = weir_packet(&["--json", "-"], &pcap(1, &bad));
    assert_eq!(output.status.code(), Some(1));
    let printed = objects(&output);
    assert_eq!(printed.len(), 5);
    assert_eq!(printed[1]["reason"], "unrecognised-critical");
    assert!(String::from_utf8_lossy(&output.stderr).contains("frame 2: "));
}

/// Programs of hICN send commands over the port of packets, and hicn-light empty datagrams.
#[test]
fn reads_captures_of_hicn() {
    let name = HicnName { address: "2001:db8::1".parse().expect("an address"), suffix: 7 };
    let hop =
        Hop { locator: "2001:db8:9::1".parse().expect("an address"), face: 0, is_marked: false };
    let interest = from_tlv(&Interest::new(name.to_name()).encode(), &hop).expect("an Interest");
    let packet = Data::new(name.to_name()).content("text").encode_with_digest();
    let data = from_tlv(&packet, &hop).expect("a Data");
    let udp = |payload: &[u8]| {
        let length = (8 + payload.len() as u16).to_be_bytes();
        let header = [0x30, 0x39, 0x25, 0xDF, length[0], length[1], 0, 0];
        ipv4(17, &[&header, payload].concat())
    };
    let command = ControlMessage::request(ControlCommand::ROUTE_LIST, 1).encode();
    let cut = data[..data.len() - 2].to_vec();
    let frames = [udp(&interest), udp(&[]), udp(&command), interest.clone(), data, cut];
    let output = weir_packet(&["--json", "-"], &pcap(101, &frames));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.contains("skipped 1 frame with"), "{output:?}");
    let printed = objects(&output);
    let found: Vec<_> = printed.iter().map(|object| &object["capture"]["frame"]).collect();
    assert_eq!(found, [1, 4, 5]);
    assert!(printed.iter().all(|object| object["address"] == "2001:db8::1"), "{printed:?}");
}

/// Segmentation offload: the kernel captures several datagrams as one.
#[test]
fn splits_captured_super_packets() {
    let interest = |name: &str| Interest::new(name.parse().expect("a name")).encode();
    let (first, second, longer) = (interest("/a"), interest("/b"), interest("/b/longer"));
    let udp = |port: u16, payload: &[u8]| {
        let length = 8 + payload.len() as u16;
        let header = [0x3039, port, length, 0].map(u16::to_be_bytes);
        ipv4(17, &[header.as_flattened(), payload].concat())
    };
    let name = HicnName { address: "2001:db8::1".parse().expect("an address"), suffix: 7 };
    let hop = Hop { locator: "2001:db8:9::1".parse().expect("one"), face: 0, is_marked: false };
    let hicn = from_tlv(&Interest::new(name.to_name()).encode(), &hop).expect("an Interest");
    // What is no packet to its end is shown as it was captured.
    let damaged = [&first[..], b"??"].concat();
    let frames = [
        udp(6363, &[&first[..], &second, &first].concat()),
        udp(9695, &[&hicn[..], &hicn].concat()),
        udp(6363, &damaged),
        udp(6363, &[&first[..], &longer].concat()),
    ];
    let output = weir_packet(&["--json", "-"], &pcap(101, &frames));
    let printed = objects(&output);
    let names: Vec<&str> =
        printed[..3].iter().map(|it| it["name"].as_str().expect("a name")).collect();
    assert_eq!(names, ["/a", "/b", "/a"]);
    assert!(printed[3..5].iter().all(|it| it["address"] == "2001:db8::1"), "{printed:?}");
    assert_eq!(printed.len(), 7);
    assert!(printed[5..].iter().all(|it| it["reason"] == "trailing-octets"), "{printed:?}");
}

/// The packet is one of the public library. Its manifest follows an authentication header.
#[test]
fn shows_suffixes_of_interest_manifests() {
    let file = "../../core/hicn/tests/vectors/interest-manifest.jsonl";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    let text = fs::read_to_string(path).expect("the vectors are there");
    let record = text.lines().nth(1).expect("a second packet");
    let wire = octets(&serde_json::from_str(record).expect("JSON"));
    let output = weir_packet(&["--json"], &wire);
    assert!(output.status.success(), "{output:?}");
    let printed = &objects(&output)[0];
    assert_eq!(printed["kind"], "hicn");
    assert_eq!((&printed["address"], &printed["suffix"]), (&json!("b001::1"), &json!(4)));
    assert_eq!(printed["manifest"], true);
    assert_eq!(printed["suffixes"], json!([4, 5, 6, 7]));
    assert!(printed["authentication"].is_object());
    assert!(printed.get("ndn_hex").is_none() && printed.get("inner").is_none(), "{printed}");
    let output = weir_packet(&["-"], &wire);
    let shown = String::from_utf8_lossy(&output.stdout);
    let is_suffixes = |line: &str| line.split_whitespace().eq(["suffixes", "4", "5", "6", "7"]);
    assert!(shown.lines().any(is_suffixes), "{shown}");
    // The last byte is part of the last suffix.
    let mut cut = wire[..wire.len() - 1].to_vec();
    cut[5] -= 1;
    let output = weir_packet(&["--json"], &cut);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(objects(&output)[0]["reason"], "hicn-interest-manifest");
}

#[test]
fn shows_control_messages_of_hicn_light() {
    let show = |wire: &[u8]| {
        let output = weir_packet(&["--json"], wire);
        assert!(output.status.success(), "{output:?}");
        let [printed] = <[Value; 1]>::try_from(objects(&output)).expect("one message");
        assert_eq!(printed["kind"], "hicn-control");
        let asked = weir_packet(&["--as", "hicn-control", "--json"], wire);
        assert_eq!(asked.stdout, output.stdout);
        printed
    };
    let prefix = HicnPrefix::masked("b001::".parse().expect("an address"), 64);
    let add = ControlMessage::request(ControlCommand::ROUTE_ADD, 7).encode_route(prefix);
    let expected = json!({
        "kind": "hicn-control",
        "message": "request",
        "command": 8,
        "command_name": "route-add",
        "count": 1,
        "sequence": 7,
        "connection": "SELF",
        "prefix": "b001::/64",
        "payload_hex": hex::encode(&add[8..]),
    });
    assert_eq!(show(&add), expected);
    let remove = ControlMessage::request(ControlCommand::ROUTE_REMOVE, 0);
    assert_eq!(show(&remove.encode_route_of(3, prefix))["connection"], "3");
    // A prefix, then its family, its length, and the number of the strategy.
    let mut strategy = ControlMessage::request(ControlCommand::STRATEGY_SET, 0).encode();
    strategy.extend(prefix.address().octets());
    strategy.extend([10, 64, 2, 0]);
    strategy.extend([0; 180]);
    let printed = show(&strategy);
    assert_eq!((&printed["prefix"], &printed["strategy"]), (&json!("b001::/64"), &json!(2)));
    // An ack, and a request that Weir does not know.
    assert_eq!(show(&[0xC2, 8, 0, 0, 7, 0, 0, 0])["message"], "ack");
    let printed = show(&[0xC0, 99, 0, 0, 0, 0, 0, 0, 1, 2]);
    assert_eq!((&printed["command"], &printed["payload_hex"]), (&json!(99), &json!("0102")));
    assert!(printed.get("command_name").is_none(), "{printed}");

    let output = weir_packet(&["--json"], &add[..add.len() - 1]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(objects(&output)[0]["reason"], "hicn-control-malformed");
    // A text that starts with the byte of a nack.
    let output = weir_packet(&["--json"], "\u{e9}cole".as_bytes());
    assert_ne!(objects(&output)[0]["reason"], "hicn-control-malformed");
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn hicn_version_9_is_not_supported() {
    let mut wire = vec![0x90; 100];
    wire[4..6].fill(0);
    for arguments in [&["--json"][..], &["--json", "--as", "hicn"]] {
        let output = weir_packet(arguments, &wire);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1));
        assert!(errors.contains("version 9 is not supported; only IPv6 is"), "{errors}");
        let printed = objects(&output);
        assert_eq!(printed.len(), 1);
        assert_eq!(printed[0]["reason"], "hicn-version");
    }
}
