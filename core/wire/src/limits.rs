/// Largest Interest, Data or reassembled packet, in octets (NDN packet 0.3, practical maximum).
pub const PACKET_SIZE_MAX: usize = 8800;

/// The lifetime of an Interest without InterestLifetime, in milliseconds.
pub const DEFAULT_INTEREST_LIFETIME_MS: u64 = 4000;

/// Most components of a name that routers forward by default. Names in use have far fewer.
pub const NAME_COMPONENTS_MAX: usize = 64;
