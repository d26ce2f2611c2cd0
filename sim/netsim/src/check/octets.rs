//! Bytes delivered equal bytes produced. Consumers check every octet themselves; where a plan flips
//! octets, this checks the consumers: what was hit must never count as received.

use weir_wire::DataView;

use crate::hash::{HashedMap, of_octets};

/// What every producer has produced, by name.
#[derive(Debug, Default)]
pub(crate) struct Produced {
    contents: HashedMap<u64>,
}

impl Produced {
    /// A producer made this Data.
    pub(crate) fn on_produced(&mut self, packet: &[u8]) {
        if let Ok(data) = DataView::decode(packet) {
            self.contents.insert(of_octets(data.name.value()), of_octets(data.content));
        }
    }

    /// Whether content and name of a Data are as produced.
    pub(crate) fn is_genuine(&self, packet: &[u8]) -> bool {
        let Ok(data) = DataView::decode(packet) else { return false };
        let content = self.contents.get(&of_octets(data.name.value()));
        content == Some(&of_octets(data.content))
    }
}

/// A consumer was given a Data that `is_genuine` or not, and counted it `as_received` or not.
pub(crate) fn received(is_genuine: bool, as_received: bool) -> Result<(), String> {
    if is_genuine || !as_received {
        return Ok(());
    }
    Err("the consumer counts Data as received whose octets are not those produced".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_wire::Data;

    #[test]
    fn a_flipped_octet_is_noticed() {
        let data = |content: &[u8]| {
            Data::new("/a/1".parse().unwrap()).content(content).encode_with_digest()
        };
        let mut produced = Produced::default();
        assert!(!produced.is_genuine(&data(b"right")), "never produced");
        produced.on_produced(&data(b"right"));
        assert!(produced.is_genuine(&data(b"right")));
        assert!(!produced.is_genuine(&data(b"wrong")));
        assert!(!produced.is_genuine(&[6, 200, 1]));
        assert!(received(false, true).is_err());
        assert_eq!(received(false, false), Ok(()));
        assert_eq!(received(true, true), Ok(()));
    }
}
