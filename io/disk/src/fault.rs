//! Injected faults, for tests.

use std::io;
use std::sync::Mutex;

use weir_base::Rng;

use crate::config::Faults;
use crate::threads::PositionedIo;

/// A disk that fails some operations.
pub(crate) struct FaultyIo<F> {
    inner: F,
    faults: Faults,
    /// Partial transfers are multiples of this size, as direct I/O requires.
    block_bytes: usize,
    state: Mutex<(Rng, u64)>,
}

/// What happens to one operation.
struct FaultPlan {
    is_interrupted: bool,
    is_error: bool,
    is_no_space: bool,
    is_torn: bool,
    is_stalled: bool,
    /// Bytes transferred, if not all.
    short: Option<usize>,
    /// The bit to flip, if any.
    flip: Option<usize>,
    /// Bytes that reach the disk when a write fails or is torn.
    partial_len: usize,
}

impl<F> FaultyIo<F> {
    pub(crate) fn new(inner: F, faults: Faults, block_bytes: u32) -> Self {
        let state = Mutex::new((Rng::from_seed(faults.seed), 0));
        Self { inner, faults, block_bytes: block_bytes as usize, state }
    }

    fn plan_faults(&self, len: usize, is_write: bool) -> FaultPlan {
        let mut state = self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let (rng, operations) = &mut *state;
        *operations += 1;
        let is_last = self.faults.panic_at == Some(*operations);
        let mut happens = |ppm: u32| rng.below(1_000_000) < ppm;
        let faults = &self.faults;
        let is_short = happens(faults.short_ppm);
        let is_flipped = happens(faults.flips_ppm) && !is_write && len > 0;
        let is_error =
            happens(if is_write { faults.write_errors_ppm } else { faults.read_errors_ppm });
        let fate = FaultPlan {
            is_interrupted: happens(faults.interrupts_ppm),
            is_error,
            is_no_space: happens(faults.no_space_ppm) && is_write,
            is_torn: happens(faults.torn_writes_ppm) && is_write,
            is_stalled: happens(faults.stalls_ppm),
            flip: is_flipped.then(|| rng.below(len as u32 * 8) as usize),
            partial_len: rng.below((len / self.block_bytes) as u32) as usize * self.block_bytes,
            short: None,
        };
        drop(state);
        assert!(!is_last, "an injected panic");
        FaultPlan { short: (is_short && fate.partial_len > 0).then_some(fate.partial_len), ..fate }
    }

    fn stall_or_interrupt(&self, fate: &FaultPlan) -> io::Result<()> {
        if fate.is_stalled {
            std::thread::sleep(self.faults.stall);
        }
        if fate.is_interrupted { Err(io::ErrorKind::Interrupted.into()) } else { Ok(()) }
    }
}

impl<F: PositionedIo> PositionedIo for FaultyIo<F> {
    fn read_at(&self, octets: &mut [u8], offset: u64) -> io::Result<usize> {
        let fate = self.plan_faults(octets.len(), false);
        self.stall_or_interrupt(&fate)?;
        if fate.is_error {
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        let len = fate.short.unwrap_or(octets.len());
        let read = self.inner.read_at(&mut octets[..len], offset)?;
        if let Some(bit) = fate.flip.filter(|bit| bit / 8 < read) {
            octets[bit / 8] ^= 1 << (bit % 8);
        }
        Ok(read)
    }

    fn write_at(&self, octets: &[u8], offset: u64) -> io::Result<usize> {
        let fate = self.plan_faults(octets.len(), true);
        self.stall_or_interrupt(&fate)?;
        if fate.is_no_space {
            return Err(io::Error::from_raw_os_error(libc::ENOSPC));
        }
        if fate.is_error || fate.is_torn {
            self.inner.write_at(&octets[..fate.partial_len], offset)?;
            let error = || io::Error::from_raw_os_error(libc::EIO);
            return if fate.is_error { Err(error()) } else { Ok(octets.len()) };
        }
        self.inner.write_at(&octets[..fate.short.unwrap_or(octets.len())], offset)
    }
}
