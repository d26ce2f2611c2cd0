//! A sampling profiler within the process: processor time by function.
//!
//! The kernel sends SIGPROF after each period of processor time of the process, at most at its tick
//! rate (100 to 1000 Hz). The handler only stores the interrupted instruction: it does not unwind,
//! lock or allocate. Time in the kernel counts for the function that made the system call.
//! Addresses are resolved to functions afterwards, including inlined ones.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{c_int, c_void};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use nix::libc;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

/// Maximum number of samples: more than a quarter of an hour at 1 kHz. Untouched memory is free.
const SAMPLES_MAX: usize = 1 << 20;

static SAMPLES: [AtomicUsize; SAMPLES_MAX] = [const { AtomicUsize::new(0) }; SAMPLES_MAX];
static COUNT: AtomicUsize = AtomicUsize::new(0);
static IS_RUNNING: AtomicBool = AtomicBool::new(false);

/// Samples this process until it is finished or dropped. Only one can run at a time.
#[derive(Debug)]
pub struct Profiler(());

/// A function and its number of samples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionSamples {
    /// Module and name; the symbol of a function outside this program; or `(unknown)`. Inlined code
    /// of other crates counts for this function.
    pub function: String,
    /// Samples in the function itself, not in functions that it called.
    pub samples: u64,
}

impl Profiler {
    /// Starts sampling at `rate_hz` of processor time.
    ///
    /// # Errors
    /// Another profiler runs, the processor is neither x86-64 nor AArch64, or the system refuses.
    pub fn start(rate_hz: u32) -> io::Result<Self> {
        if !cfg!(any(target_arch = "x86_64", target_arch = "aarch64")) {
            let why = "the profiler does not support this processor";
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        }
        if IS_RUNNING.swap(true, Ordering::SeqCst) {
            return Err(io::Error::new(
                io::ErrorKind::AlreadyExists,
                "another profiler is already running",
            ));
        }
        COUNT.store(0, Ordering::SeqCst);
        let profiler = Self(());
        let handler = SigHandler::SigAction(on_sample);
        // SA_RESTART: an interrupted system call continues instead of failing with EINTR.
        let action =
            SigAction::new(handler, SaFlags::SA_RESTART | SaFlags::SA_SIGINFO, SigSet::empty());
        // SAFETY: the handler only reads its context and updates atomic statics. Both are
        // async-signal-safe.
        unsafe { sigaction(Signal::SIGPROF, &action) }?;
        set_timer(1_000_000 / i64::from(rate_hz.clamp(1, 10_000)))?;
        Ok(profiler)
    }

    /// Stops sampling. Returns functions, those with most samples first.
    #[must_use]
    pub fn finish(self) -> Vec<FunctionSamples> {
        drop(self);
        // `COUNT` includes samples that found no free slot.
        let count = COUNT.load(Ordering::SeqCst).min(SAMPLES_MAX);
        let mut places: HashMap<usize, u64> = HashMap::new();
        for sample in &SAMPLES[..count] {
            *places.entry(sample.load(Ordering::SeqCst)).or_default() += 1;
        }
        let mut functions: BTreeMap<String, u64> = BTreeMap::new();
        for (place, samples) in places {
            *functions.entry(function_at(place)).or_default() += samples;
        }
        let mut table: Vec<_> = functions
            .into_iter()
            .map(|(function, samples)| FunctionSamples { function, samples })
            .collect();
        // The sort is stable: equal functions stay in the order of their names.
        table.sort_by_key(|row| std::cmp::Reverse(row.samples));
        table
    }
}

impl Drop for Profiler {
    fn drop(&mut self) {
        // The handler stays installed: without it, a pending signal would end the process.
        let _ = set_timer(0);
        IS_RUNNING.store(false, Ordering::SeqCst);
    }
}

fn set_timer(period_us: i64) -> io::Result<()> {
    let period = libc::timeval { tv_sec: 0, tv_usec: period_us };
    let timer = libc::itimerval { it_interval: period, it_value: period };
    // SAFETY: the structure is complete and only read. No result is requested.
    match unsafe { libc::setitimer(libc::ITIMER_PROF, &raw const timer, std::ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

extern "C" fn on_sample(_: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes a handler with SA_SIGINFO the interrupted context.
    let place = unsafe { program_counter(context.cast()) };
    let at = COUNT.fetch_add(1, Ordering::Relaxed);
    if let Some(sample) = SAMPLES.get(at) {
        sample.store(place, Ordering::Relaxed);
    }
}

/// # Safety
/// `context` is null or points to the context that a signal handler was given.
unsafe fn program_counter(context: *const libc::ucontext_t) -> usize {
    if context.is_null() {
        return 0;
    }
    // SAFETY: guaranteed by the caller.
    let machine = unsafe { &(*context).uc_mcontext };
    #[cfg(target_arch = "x86_64")]
    let place = machine.gregs[libc::REG_RIP as usize] as usize;
    #[cfg(target_arch = "aarch64")]
    let place = machine.pc as usize;
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let place = {
        let _ = machine;
        0
    };
    place
}

/// The function that holds an instruction. Of inlined functions, the innermost one of this program;
/// the standard library and third-party crates do not count.
fn function_at(place: usize) -> String {
    let mut chain = Vec::new();
    backtrace::resolve(std::ptr::without_provenance_mut(place), |symbol| {
        if let Some(name) = symbol.name() {
            let file = symbol.filename().map(std::path::Path::to_path_buf).unwrap_or_default();
            chain.push((format!("{name:#}"), file));
        }
    });
    let own = chain.iter().find_map(|(name, file)| Some(label(name, &module_of(file)?)));
    let outermost = chain.last().map(|(name, _)| name.clone());
    own.or(outermost).unwrap_or_else(|| "(unknown)".to_owned())
}

/// `forward::interest` for `core/forward/src/interest.rs`. Inlined functions are reported without
/// their module. `None` for files outside this program.
fn module_of(file: &std::path::Path) -> Option<String> {
    let text = file.to_str()?;
    if text.starts_with("/rustc/") || text.contains("/rustlib/") || text.contains("/registry/") {
        return None;
    }
    let (before, within) = text.rsplit_once("/src/")?;
    let package = before.rsplit('/').next()?;
    let module = within.trim_end_matches(".rs").trim_end_matches("/mod").replace('/', "::");
    Some(format!("{package}::{module}"))
}

/// A function's label: module and name, without type parameters.
fn label(name: &str, module: &str) -> String {
    // `<T as Trace>::name`, `path::name<T>` and `name<T>` yield the same label.
    let (mut depth, mut plain) = (0_u32, String::new());
    for letter in name.chars() {
        match letter {
            '<' => depth += 1,
            '>' => depth = depth.saturating_sub(1),
            _ if depth == 0 => plain.push(letter),
            _ => {}
        }
    }
    let mut parts = plain.rsplit("::").filter(|part| !part.is_empty());
    let own = parts.find(|part| !part.starts_with('{')).unwrap_or("(closure)");
    format!("{module}::{own}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[inline(never)]
    fn spin_for_the_profiler(rounds: u64) -> u64 {
        let mut sum = rounds;
        for number in 0..rounds {
            sum = std::hint::black_box(sum.wrapping_mul(31).wrapping_add(number));
        }
        sum
    }

    #[test]
    fn functions_are_named_by_module() {
        let module = |file: &str| module_of(std::path::Path::new(file));
        assert_eq!(module("/x/core/forward/src/interest.rs").as_deref(), Some("forward::interest"));
        assert_eq!(module("/x/io/runtime/src/worker/mod.rs").as_deref(), Some("runtime::worker"));
        assert_eq!(module("/rustc/5980/library/core/src/slice/mod.rs"), None);
        assert_eq!(module("/home/x/.cargo/registry/src/i/mio-1.2.4/src/poll.rs"), None);
        for name in ["push", "push<u8>", "<a::B<C> as d::E>::push", "f::push::{closure#0}"] {
            assert_eq!(label(name, "link::egress"), "link::egress::push");
        }
        assert_eq!(label("{closure#0}", "a::b"), "a::b::(closure)");
    }

    /// Spins until there are enough samples, however long that takes on a busy machine.
    #[test]
    fn samples_busy_function() {
        let profiler = Profiler::start(1000).unwrap();
        assert!(Profiler::start(1000).is_err(), "one at a time");
        while COUNT.load(Ordering::Relaxed) < 40 {
            std::hint::black_box(spin_for_the_profiler(100_000));
        }
        let table = profiler.finish();
        let all: u64 = table.iter().map(|row| row.samples).sum();
        let here: u64 = table
            .iter()
            .filter(|row| row.function.contains("spin_for_the_profiler"))
            .map(|row| row.samples)
            .sum();
        // Other tests of this process run at the same time and are sampled as well.
        assert!(here > 0, "{here} of {all}: {table:?}");
        assert!(table.is_sorted_by_key(|row| std::cmp::Reverse(row.samples)));
        let again = Profiler::start(1000).unwrap();
        drop(again);
    }
}
