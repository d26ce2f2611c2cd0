use core::fmt;

/// The number of a face, unique for the lifetime of a router process.
///
/// The reserved numbers are NFD's, because management clients know them.
#[derive(Copy, Clone, Default, Eq, PartialEq, Ord, PartialOrd, Hash, Debug)]
pub struct FaceId(pub u64);

impl FaceId {
    pub const INVALID: Self = Self(0);
    /// The management face inside the router.
    pub const INTERNAL: Self = Self(1);
    /// The content store, as the incoming face of the Data that it returns.
    pub const CONTENT_STORE: Self = Self(254);
    /// The face that drops everything.
    pub const NULL: Self = Self(255);
    /// The first number of a face to another program or machine.
    pub const FIRST: Self = Self(256);
}

impl fmt::Display for FaceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
