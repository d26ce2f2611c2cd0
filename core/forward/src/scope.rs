//! Scopes of names (NFD, name-based scope control).

use weir_wire::NameView;

/// How far packets of a name may travel.
pub(crate) enum Scope {
    Global,
    /// Never leaves this host.
    Localhost,
    /// Leaves this host only if it comes from a local face.
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

#[inline]
pub(crate) fn is_localhost(name: NameView<'_>) -> bool {
    name.value().starts_with(b"\x08\x09localhost")
}
