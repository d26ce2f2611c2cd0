//! How far names reach (NFD, name-based scope control).

use weir_wire::NameView;

/// How far a name reaches (NFD, name-based scope control).
pub(crate) enum Scope {
    Global,
    /// Never crosses to another host.
    Localhost,
    /// Crosses to another host only from this one.
    Localhop,
}

#[inline]
pub(crate) fn scope_of(name_value: &[u8]) -> Scope {
    match name_value {
        [8, 9, rest @ ..] if rest.starts_with(b"localhost") => Scope::Localhost,
        [8, 8, rest @ ..] if rest.starts_with(b"localhop") => Scope::Localhop,
        _ => Scope::Global,
    }
}

/// Whether a name lies in `/localhost`.
#[inline]
pub(crate) fn is_localhost(name: NameView<'_>) -> bool {
    name.value().starts_with(b"\x08\x09localhost")
}
