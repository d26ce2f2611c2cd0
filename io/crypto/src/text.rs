//! Packets as text: base64 in lines, as ndnsec writes certificates and SafeBags, and the PEM text
//! of ndnd.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

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
/// from base64 with any white space, or the first certificate in ndnd's PEM text. `None` if it is
/// none of these.
pub fn packet_in_file(octets: &[u8], outer_types: &[u8]) -> Option<Vec<u8>> {
    if octets.first().is_some_and(|first| outer_types.contains(first)) {
        return Some(octets.to_vec());
    }
    let certificate = match str::from_utf8(octets) {
        Ok(text) => NdnPem::blocks(text).find(|block| block.kind == NdnPemKind::Certificate),
        Err(_) => None,
    };
    let decoded = match certificate {
        Some(certificate) => certificate.packet()?.to_vec(),
        None => decode_base64(octets)?.to_vec(),
    };
    decoded.first().is_some_and(|first| outer_types.contains(first)).then_some(decoded)
}

/// Decodes base64 with any white space.
fn decode_base64(text: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let digits = text.iter().copied().filter(|c| !c.is_ascii_whitespace());
    let digits = Zeroizing::new(digits.collect::<Vec<u8>>());
    STANDARD.decode(&*digits).ok().map(Zeroizing::new)
}

/// What a block of ndnd's PEM text contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NdnPemKind {
    Certificate,
    /// An unencrypted private key.
    Key,
}

/// A block of PEM text as ndnd 31822ab writes it (`std/security/pem.go`): a Data packet in base64,
/// after lines such as `Name: /a/KEY/k` that only repeat fields of the packet.
///
/// RFC 7468 has no such lines, so its decoders reject the text.
pub(crate) struct NdnPem<'a> {
    pub(crate) kind: NdnPemKind,
    body: &'a str,
}

impl<'a> NdnPem<'a> {
    /// The complete blocks of a text, in order.
    pub(crate) fn blocks(text: &'a str) -> impl Iterator<Item = Self> {
        // Nothing comes before the first boundary.
        text.split("-----BEGIN NDN ").skip(1).filter_map(|block| {
            let (label, rest) = block.split_once("-----")?;
            let kind = match label {
                "CERT" => NdnPemKind::Certificate,
                "KEY" => NdnPemKind::Key,
                _ => return None,
            };
            let (body, end) = rest.split_once("-----END NDN ")?;
            end.strip_prefix(label)?.starts_with("-----").then_some(Self { kind, body })
        })
    }

    /// The Data packet; `None` if the text is no base64.
    pub(crate) fn packet(&self) -> Option<Zeroizing<Vec<u8>>> {
        // Base64 has no colons.
        let lines = self.body.lines().filter(|line| !line.contains(':'));
        decode_base64(Zeroizing::new(lines.collect::<String>()).as_bytes())
    }
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

    #[test]
    fn finds_blocks_of_ndnd() {
        let block = |label: &str, packet: &[u8]| {
            let body = to_base64_lines(packet);
            format!("-----BEGIN {label}-----\nName: /a\n\n{body}-----END {label}-----\n")
        };
        let (key, certificate) = (block("NDN KEY", &[6, 1, 7]), block("NDN CERT", &[6, 1, 8]));
        let other = block("CERTIFICATE", &[6, 1, 9]);
        let text = format!("{other}{key}some text\r\n{certificate}");
        let found: Vec<_> =
            NdnPem::blocks(&text).map(|it| (it.kind, it.packet().unwrap().to_vec())).collect();
        let expected = [(NdnPemKind::Key, vec![6, 1, 7]), (NdnPemKind::Certificate, vec![6, 1, 8])];
        assert_eq!(found, expected);
        assert_eq!(packet_in_file(text.as_bytes(), &[6]), Some(vec![6, 1, 8]));
        assert_eq!(packet_in_file(key.as_bytes(), &[6]), None);
        let cut = &certificate[..certificate.len() - 8];
        assert_eq!(NdnPem::blocks(cut).count(), 0);
        assert_eq!(packet_in_file(certificate.replace("BgEI", "Bg?I").as_bytes(), &[6]), None);
    }
}
