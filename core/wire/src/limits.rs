/// Largest Interest, Data or reassembled packet, in octets (NDN packet 0.3, practical maximum).
pub const PACKET_SIZE_MAX: usize = 8800;

/// InterestLifetime of an Interest that states none, in milliseconds.
pub const DEFAULT_INTEREST_LIFETIME_MS: u64 = 4000;
