//! Names of this host and of its management.

use weir_wire::NameView;

/// Whether a name is below `/localhost`.
pub(crate) fn is_localhost(name: NameView<'_>) -> bool {
    name.value().starts_with(b"\x08\x09localhost")
}

/// Whether a name is below `/localhost`, or below `/localhop/nfd`: datasets and answers to commands
/// of this router or of a neighbour. Other names below `/localhop` are those of applications.
pub(crate) fn is_management(name: NameView<'_>) -> bool {
    is_localhost(name) || name.value().starts_with(b"\x08\x08localhop\x08\x03nfd")
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_wire::Name;

    #[test]
    fn management_is_below_two_prefixes() {
        let all = |uri: &str| {
            let name: Name = uri.parse().unwrap();
            (is_localhost(name.as_view()), is_management(name.as_view()))
        };
        for uri in ["/localhost", "/localhost/nfd/faces/list/v=1/seg=0"] {
            assert_eq!(all(uri), (true, true), "{uri}");
        }
        assert_eq!(all("/localhop/nfd/rib/register/v=1"), (false, true));
        for uri in ["/", "/localhop", "/localhop/nfdx", "/localhop/app", "/a/localhost"] {
            assert_eq!(all(uri), (false, false), "{uri}");
        }
    }
}
