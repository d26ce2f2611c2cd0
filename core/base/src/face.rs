use core::fmt;

/// The number of a face, unique for the life of a router process.
///
/// The reserved numbers are those of NFD, since management clients know them.
#[derive(Copy, Clone, Default, Eq, PartialEq, Ord, PartialOrd, Hash, Debug)]
pub struct FaceId(pub u64);

impl FaceId {
    pub const INVALID: Self = Self(0);
    /// The management face, inside the router.
    pub const INTERNAL: Self = Self(1);
    /// The content store, as the incoming face of Data that it answers with.
    pub const CONTENT_STORE: Self = Self(254);
    /// The face that drops everything.
    pub const NULL: Self = Self(255);
    /// The first number for a face that reaches another program or machine.
    pub const FIRST: Self = Self(256);
}

impl fmt::Display for FaceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
