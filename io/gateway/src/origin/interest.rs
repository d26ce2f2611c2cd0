//! What an Interest wants from an origin.

use weir_security::manifest::MANIFEST_KEYWORD;
use weir_transport::METADATA_KEYWORD;
use weir_wire::{ComponentView, NameView};

/// A packet below the name of an object.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// The newest metadata.
    Metadata,
    /// A segment of a version.
    Segment { version: u64, segment: u64 },
    /// A part of the manifest of a version. It has the number of its slice.
    Part { version: u64, slice: u64 },
}

/// What the components after the name of the object want; `None` for packets that no origin makes.
/// Metadata with a number are answered by stores alone, because a newer one always replaces them.
pub(super) fn wanted(name: NameView<'_>, object_components: usize) -> Option<Wanted> {
    let added: Vec<ComponentView<'_>> = name.components().skip(object_components).collect();
    match &added[..] {
        [keyword] if keyword.is_keyword(METADATA_KEYWORD) => Some(Wanted::Metadata),
        [version, segment] => {
            let (version, segment) = (version.as_version()?, segment.as_segment()?);
            Some(Wanted::Segment { version, segment })
        }
        [version, keyword, part] if keyword.is_keyword(MANIFEST_KEYWORD) => {
            let (version, slice) = (version.as_version()?, part.as_segment()?);
            Some(Wanted::Part { version, slice })
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
            ("/a/54=%05/32=manifest/50=%02", Some(Wanted::Part { version: 5, slice: 2 })),
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
