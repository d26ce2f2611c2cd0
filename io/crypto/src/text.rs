//! Packets as text: base64 in lines, as ndnsec writes certificates and SafeBags.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// Characters per line, as in ndnsec.
const LINE_LEN: usize = 64;

/// Base64 in lines of 64 characters, with a newline at the end.
pub fn to_base64_lines(octets: &[u8]) -> String {
    let text = STANDARD.encode(octets);
    let mut lines = String::with_capacity(text.len() + text.len() / LINE_LEN + 1);
    for line in text.as_bytes().chunks(LINE_LEN) {
        lines.extend(line.iter().copied().map(char::from));
        lines.push('\n');
    }
    lines
}

/// The packet in a file: the bytes themselves if the first is one of `outer_types`, else decoded
/// from base64 with any white space. `None` if it is neither.
pub fn packet_in_file(octets: &[u8], outer_types: &[u8]) -> Option<Vec<u8>> {
    if octets.first().is_some_and(|first| outer_types.contains(first)) {
        return Some(octets.to_vec());
    }
    let text: Vec<u8> = octets.iter().copied().filter(|c| !c.is_ascii_whitespace()).collect();
    let decoded = STANDARD.decode(text).ok()?;
    decoded.first().is_some_and(|first| outer_types.contains(first)).then_some(decoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_lines_round_trip() {
        let packet: Vec<u8> = (6..=255).collect();
        let text = to_base64_lines(&packet);
        assert!(text.lines().all(|line| line.len() <= LINE_LEN) && text.ends_with('\n'));
        assert_eq!(packet_in_file(text.as_bytes(), &[6]), Some(packet.clone()));
        assert_eq!(packet_in_file(text.replace('\n', "\r\n ").as_bytes(), &[6]), Some(packet));
    }

    #[test]
    fn accepts_binary_packets() {
        assert_eq!(packet_in_file(&[6, 0], &[6, 128]), Some(vec![6, 0]));
    }

    #[test]
    fn rejects_other_files() {
        assert_eq!(packet_in_file(b"not base64!", &[6]), None);
        assert_eq!(packet_in_file(b"", &[6]), None);
        assert_eq!(packet_in_file(to_base64_lines(&[5, 0]).as_bytes(), &[6]), None);
    }
}
