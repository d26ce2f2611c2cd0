//! Checks that consumers accept exactly the bytes that were produced.
//!
//! Consumers verify content themselves. In plans with a fault that flips bytes, this module checks
//! the consumers: they must never count a damaged Data as received.

use weir_wire::DataView;

use weir_plan::hash::{Digest, HashedMap, of_octets};

/// A digest of each produced Data, by name.
#[derive(Debug, Default)]
pub(crate) struct ProducedData {
    contents: HashedMap<u64>,
}

impl ProducedData {
    pub(crate) fn on_produced(&mut self, packet: &[u8]) {
        if let Ok(data) = DataView::decode(packet) {
            self.contents.insert(of_octets(data.name.value()), digest(&data));
        }
    }

    /// Whether name, content, type and final block of a Data match what was produced.
    pub(crate) fn is_genuine(&self, packet: &[u8]) -> bool {
        let Ok(data) = DataView::decode(packet) else { return false };
        let content = self.contents.get(&of_octets(data.name.value()));
        content == Some(&digest(&data))
    }
}

/// Covers every field that a consumer reads.
fn digest(data: &DataView<'_>) -> u64 {
    let last_segment = data.final_block_id().and_then(|component| component.as_segment());
    let mut digest = Digest::default();
    digest.mix(of_octets(data.content));
    digest.mix(data.content_type);
    digest.mix(last_segment.unwrap_or(u64::MAX));
    digest.value()
}

/// Checks a consumer's count. `is_genuine`: the Data was as produced. `as_received`: the consumer
/// counted it as received.
pub(crate) fn check_received(is_genuine: bool, as_received: bool) -> Result<(), String> {
    if is_genuine || !as_received {
        return Ok(());
    }
    Err("the consumer counts Data as received although its bytes differ from those produced".into())
}

/// Checks a consumer's error about a Data. Only a fault that damaged frames (`is_damaged`)
/// justifies one, and only for Data that is not genuine.
pub(crate) fn check_complaint(
    is_genuine: bool,
    is_damaged: bool,
    what: String,
) -> Result<(), String> {
    match (is_genuine, is_damaged) {
        (false, true) => Ok(()),
        (true, true) => Err(format!("{what}, although the bytes are those produced")),
        (_, false) => Err(what),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_wire::Data;

    #[test]
    fn detects_a_flipped_byte() {
        let data = |content: &[u8]| {
            Data::new("/a/1".parse().unwrap()).content(content).encode_with_digest()
        };
        let mut produced = ProducedData::default();
        assert!(!produced.is_genuine(&data(b"right")), "never produced");
        produced.on_produced(&data(b"right"));
        assert!(produced.is_genuine(&data(b"right")));
        assert!(!produced.is_genuine(&data(b"wrong")));
        assert!(!produced.is_genuine(&[6, 200, 1]));
        let typed = Data::new("/a/1".parse().unwrap()).content(b"right").content_type(3);
        assert!(!produced.is_genuine(&typed.encode_with_digest()), "another type");
        assert!(check_received(false, true).is_err());
        assert_eq!(check_received(false, false), Ok(()));
        assert_eq!(check_received(true, true), Ok(()));
    }

    #[test]
    fn only_damage_justifies_an_error() {
        let wrong = || "wrong bytes".to_owned();
        assert_eq!(check_complaint(false, true, wrong()), Ok(()));
        assert!(
            check_complaint(true, true, wrong()).is_err(),
            "damage elsewhere does not justify an error"
        );
        assert!(check_complaint(true, false, wrong()).is_err());
        assert!(check_complaint(false, false, wrong()).is_err());
    }
}
