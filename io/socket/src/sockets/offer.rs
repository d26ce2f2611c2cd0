//! Reverse pull (paper socket-api, section 4.3): an Interest carries what its receiver needs to
//! fetch an object from the sender.

use weir_base::Packet;
use weir_transport::{METADATA_KEYWORD, Metadata, is_hicn_metadata, is_hicn_metadata_of};
use weir_wire::{DataView, Name};

use super::SocketError;

/// An invitation to fetch an object: the signed metadata of one version, a complete Data. They
/// state its name, its last segment and the shape of its manifest.
///
/// It is sent as the parameters of an Interest ([`Consumer::send`](super::Consumer::send)). The
/// receiver fetches the content with [`Consumer::fetch`](super::Consumer::fetch) by its
/// [name](Self::name). That verifies each segment and trusts nothing else in the offer: a false one
/// leads to an error, never to false content.
#[derive(Clone, Debug)]
pub struct Offer {
    packet: Packet,
    metadata: Metadata,
}

impl Offer {
    /// Decodes an offer, which may come from anyone.
    ///
    /// # Errors
    /// [`SocketError::Invalid`]: it is not the metadata of a version of the object in its name.
    pub fn decode(packet: impl Into<Packet>) -> Result<Self, SocketError> {
        let packet = packet.into();
        let invalid = |reason: String| SocketError::Invalid(format!("no offer: {reason}"));
        let data = DataView::decode(&packet).map_err(|error| invalid(error.to_string()))?;
        let metadata =
            Metadata::decode(data.content).map_err(|error| invalid(error.to_string()))?;
        if is_hicn_metadata(data.name) {
            let object = metadata.versioned.as_view().parent();
            return match is_hicn_metadata_of(data.name, object) {
                true => Ok(Self { packet, metadata }),
                false => Err(invalid(format!("{} belongs to another object", metadata.versioned))),
            };
        }
        let count = data.name.component_count();
        let keyword = count.checked_sub(3).and_then(|at| data.name.components().nth(at));
        let object = data.name.prefix(count.saturating_sub(3));
        match keyword.is_some_and(|part| part.is_keyword(METADATA_KEYWORD)) {
            true if object.is_prefix_of(metadata.versioned.as_view()) => {
                Ok(Self { packet, metadata })
            }
            true => Err(invalid(format!("{} belongs to another object", metadata.versioned))),
            false => Err(invalid(format!("{} is not the name of metadata", data.name.to_name()))),
        }
    }

    /// The metadata, as a basis to refuse the offer. They are not verified, so do not pass them to
    /// [`Consumer::fetch_found`](super::Consumer::fetch_found).
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// The name of the offered object, with its version.
    pub fn name(&self) -> &Name {
        &self.metadata.versioned
    }

    pub fn packet(&self) -> &Packet {
        &self.packet
    }
}

#[cfg(test)]
mod tests {
    use weir_transport::NameMapping;
    use weir_wire::Data;

    use super::*;

    fn data(name: &str, versioned: &str) -> Vec<u8> {
        let metadata = Metadata::new(versioned.parse().unwrap());
        Data::new(name.parse().unwrap()).content(metadata.encode()).encode_with_digest()
    }

    #[test]
    fn offer_needs_metadata_of_its_own_object() {
        let good = data("/a/32=metadata/54=%01/50=%00", "/a/54=%01");
        assert_eq!(*Offer::decode(good).unwrap().name(), "/a/54=%01".parse().unwrap());
        for (name, versioned, problem) in [
            ("/a/32=metadata/54=%01/50=%00", "/b/54=%01", "another object"),
            ("/a/b/54=%01/50=%00", "/a/54=%01", "not the name of metadata"),
            ("/", "/54=%01", "not the name of metadata"),
        ] {
            let error = Offer::decode(data(name, versioned)).unwrap_err().to_string();
            assert!(error.contains(problem), "{name}: {error}");
        }
        assert!(Offer::decode(vec![1, 2, 3]).is_err());
        let mapping: NameMapping = "hicn:2001:db8::/32".parse().unwrap();
        let mapped = |object: &str| {
            let object: Name = object.parse().unwrap();
            mapping.metadata_name(object.as_view(), 0).to_string()
        };
        let good = data(&mapped("/a"), "/a/54=%01");
        assert_eq!(*Offer::decode(good).unwrap().name(), "/a/54=%01".parse().unwrap());
        let error = Offer::decode(data(&mapped("/b"), "/a/54=%01")).unwrap_err();
        assert!(error.to_string().contains("another object"), "{error}");
    }
}
