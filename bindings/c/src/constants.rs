//! Constants and sizes of the header.

use libc::{c_int, sa_family_t};

pub(crate) const AF_ICN: c_int = 20041;
pub(crate) const SOCK_CONS: c_int = 101;
pub(crate) const SOCK_PROD: c_int = 102;
pub(crate) const CONS_REL: c_int = 1;
pub(crate) const CONS_UNREL: c_int = 2;
pub(crate) const PROD_REL: c_int = 3;
pub(crate) const PROD_UNREL: c_int = 4;
pub(crate) const SOL_ICN: c_int = 20041;
pub(crate) const ICN_OPTION: c_int = 1;
pub(crate) const ICN_OFFER: c_int = 2;
pub(crate) const ICN_MORE: c_int = 0x0100_0000;
pub(crate) const ICN_NEWEST: c_int = 0x0200_0000;
pub(crate) const ICN_ANSWER: c_int = 0x0400_0000;
pub(crate) const ICN_MISSED: c_int = 0x0800_0000;
pub(crate) const ICN_REFUSE: c_int = 0x1000_0000;
pub(crate) const ICN_UNVERIFIED: c_int = 0x2000_0000;
pub(crate) const ICN_UNSIGNED_END: c_int = 0x4000_0000;

/// Size of `struct sockaddr_icn` before its name.
pub(crate) const FAMILY_BYTES: usize = size_of::<sa_family_t>();
/// Size of its name, including the terminating zero.
pub(crate) const NAME_BYTES: usize = 1024;
/// Size of the whole struct.
pub(crate) const ADDRESS_BYTES: usize = FAMILY_BYTES + NAME_BYTES;
