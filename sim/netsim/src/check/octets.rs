//! Bytes delivered equal bytes produced. Consumers check every octet themselves; where a plan flips
//! octets, this checks the consumers: what was hit must never count as received.

use weir_wire::DataView;

use weir_plan::hash::{Digest, HashedMap, of_octets};

/// What every producer has produced, by name.
#[derive(Debug, Default)]
pub(crate) struct ProducedData {
    contents: HashedMap<u64>,
}

impl ProducedData {
    /// A producer made this Data.
    pub(crate) fn on_produced(&mut self, packet: &[u8]) {
        if let Ok(data) = DataView::decode(packet) {
            self.contents.insert(of_octets(data.name.value()), digest(&data));
        }
    }

    /// Whether name, content, type and last segment of a Data are as produced.
    pub(crate) fn is_genuine(&self, packet: &[u8]) -> bool {
        let Ok(data) = DataView::decode(packet) else { return false };
        let content = self.contents.get(&of_octets(data.name.value()));
        content == Some(&digest(&data))
    }
}

/// All that consumers look at.
fn digest(data: &DataView<'_>) -> u64 {
    let last_segment = data.final_block_id().and_then(|component| component.as_segment());
    let mut digest = Digest::default();
    digest.mix(of_octets(data.content));
    digest.mix(data.content_type);
    digest.mix(last_segment.unwrap_or(u64::MAX));
    digest.value()
}

/// A consumer was given a Data that `is_genuine` or not, and counted it `as_received` or not.
pub(crate) fn check_received(is_genuine: bool, as_received: bool) -> Result<(), String> {
    if is_genuine || !as_received {
        return Ok(());
    }
    Err("the consumer counts Data as received whose octets are not those produced".into())
}

/// A consumer complains, in words, of a Data that `is_genuine` or not; `is_damaged` if a fault has
/// damaged frames. Only damage can be a reason.
pub(crate) fn check_complaint(
    is_genuine: bool,
    is_damaged: bool,
    what: String,
) -> Result<(), String> {
    match (is_genuine, is_damaged) {
        (false, true) => Ok(()),
        (true, true) => Err(format!("{what}, though they are those produced")),
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
        let wrong = || "wrong octets".to_owned();
        assert_eq!(check_complaint(false, true, wrong()), Ok(()));
        assert!(check_complaint(true, true, wrong()).is_err(), "damage elsewhere is no excuse");
        assert!(check_complaint(true, false, wrong()).is_err());
        assert!(check_complaint(false, false, wrong()).is_err());
    }
}
