//! What an Interest wants from an origin.

use std::net::Ipv6Addr;
use std::num::NonZeroUsize;

use lru::LruCache;
use weir_hicn::{HicnName, RequestPayload};
use weir_security::manifest::MANIFEST_KEYWORD;
use weir_socket::Request;
use weir_transport::{METADATA_KEYWORD, NameMapping, is_hicn_metadata};
use weir_wire::{ComponentView, InterestView, Name, NameView};

/// Upper bound of versions whose hICN addresses are known.
const VERSIONS_MAX: NonZeroUsize = NonZeroUsize::new(65_536).unwrap();

/// A packet below the name of an object.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// The newest metadata.
    Metadata,
    /// A segment of a version.
    Segment { version: u64, segment: u64 },
    /// A part of the manifest of a version.
    Part { version: u64, part: u64 },
}

/// Finds out what Interests want.
pub(super) struct InterestNames {
    mapping: NameMapping,
    /// Objects and version numbers by the address of the version. Interests for segments name only
    /// that.
    versions: LruCache<Ipv6Addr, (Name, u64)>,
}

impl InterestNames {
    pub(super) fn new(mapping: NameMapping) -> Self {
        Self { mapping, versions: LruCache::new(VERSIONS_MAX) }
    }

    /// A version of an object exists.
    pub(super) fn add(&mut self, object: &Name, versioned: &Name, number: u64) {
        let NameMapping::Hicn(_) = self.mapping else { return };
        let prefix = self.mapping.version_prefix(versioned.as_view());
        if let Some(address) = HicnName::address_of(prefix.as_view()) {
            self.versions.get_or_insert(address, || (object.clone(), number));
        }
    }

    /// The object of a request, and which of its packets is wanted.
    pub(super) fn find(&mut self, request: &Request) -> Option<(Name, Wanted)> {
        let interest = InterestView::decode(request.interest()).ok()?;
        if self.mapping == NameMapping::Identity {
            let object = request.name();
            let wanted = wanted(interest.name, object.as_view().component_count())?;
            return Some((object.clone(), wanted));
        }
        if is_hicn_metadata(interest.name) {
            // Without the name of the object, the request is from another program.
            RequestPayload::of(&interest).ok()??;
            return Some((request.name().clone(), Wanted::Metadata));
        }
        let HicnName { address, suffix } = HicnName::from_name(interest.name)?;
        let (object, version) = self.versions.get(&address)?.clone();
        let wanted = match self.mapping.part_of_number(suffix.into()) {
            Some(part) if part.level == 1 => Wanted::Part { version, part: part.number },
            Some(_) => return None,
            None => Wanted::Segment { version, segment: suffix.into() },
        };
        Some((object, wanted))
    }
}

/// What the components after the name of the object want; `None` for packets that no origin makes.
/// Metadata with a number are answered by stores alone, because a newer one always replaces them.
fn wanted(name: NameView<'_>, object_components: usize) -> Option<Wanted> {
    let added: Vec<ComponentView<'_>> = name.components().skip(object_components).collect();
    match &added[..] {
        [keyword] if keyword.is_keyword(METADATA_KEYWORD) => Some(Wanted::Metadata),
        [version, segment] => {
            let (version, segment) = (version.as_version()?, segment.as_segment()?);
            Some(Wanted::Segment { version, segment })
        }
        [version, keyword, part] if keyword.is_keyword(MANIFEST_KEYWORD) => {
            let (version, part) = (version.as_version()?, part.as_segment()?);
            Some(Wanted::Part { version, part })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use weir_wire::Name;

    use super::*;

    #[test]
    fn tells_packets_of_an_object_apart() {
        for (name, expected) in [
            ("/a/32=metadata", Some(Wanted::Metadata)),
            ("/a/54=%05/50=%03", Some(Wanted::Segment { version: 5, segment: 3 })),
            ("/a/54=%05/32=manifest/50=%02", Some(Wanted::Part { version: 5, part: 2 })),
            ("/a/32=metadata/54=%05/50=%00", None),
            ("/a/54=%05", None),
            ("/a/54=%05/50=%03/50=%03", None),
            ("/a/54=%05/32=manifest/58=%02/50=%00", None),
            ("/a", None),
        ] {
            let parsed: Name = name.parse().unwrap();
            assert_eq!(wanted(parsed.as_view(), 1), expected, "{name}");
        }
    }
}
