/// Prefetches the first cache line of `value`, without waiting for it.
///
/// A hint: it does not change the meaning of the program, and does nothing on processors other than
/// x86-64 and AArch64.
#[inline(always)]
pub fn prefetch_read<T: ?Sized>(value: &T) {
    prefetch_pointer(core::ptr::from_ref(value).cast());
}

/// Like [`prefetch_read`], for an address that need not be valid.
#[inline(always)]
pub(crate) fn prefetch_pointer(pointer: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch never faults for any address, and SSE is part of x86-64.
    unsafe {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(pointer.cast());
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    // SAFETY: a prefetch never faults for any address, and changes no register and no flag.
    unsafe {
        core::arch::asm!(
            "prfm pldl1keep, [{0}]",
            in(reg) pointer,
            options(nostack, preserves_flags, readonly)
        );
    }
    #[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    let _ = pointer;
}
