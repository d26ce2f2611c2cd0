//! Denies system calls to programs under test.

use std::collections::BTreeMap;
use std::thread;

use nix::libc::c_long;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, apply_filter,
};

/// A system call that always fails for a program.
#[derive(Clone, Copy, Debug)]
pub struct DeniedCall {
    /// `SYS_...`
    pub call: c_long,
    /// Index and value of an argument, if only calls with this value fail.
    pub argument: Option<(u8, u32)>,
    /// The error: `ENOSYS` as on an older system, `EPERM` as in a container, or another one.
    pub errno: i32,
}

impl DeniedCall {
    /// A system call with any arguments.
    pub fn call(call: c_long, errno: i32) -> Self {
        Self { call, argument: None, errno }
    }

    fn filter(&self) -> BpfProgram {
        let rule = self.argument.map(|(place, value)| {
            let is = SeccompCondition::new(
                place,
                SeccompCmpArgLen::Dword,
                SeccompCmpOp::Eq,
                value.into(),
            );
            SeccompRule::new(vec![is.expect("a condition")]).expect("a rule")
        });
        let rules = BTreeMap::from([(self.call, rule.into_iter().collect())]);
        let action = SeccompAction::Errno(self.errno as u32);
        let architecture = std::env::consts::ARCH.try_into().expect("an architecture with filters");
        SeccompFilter::new(rules, SeccompAction::Allow, action, architecture)
            .and_then(BpfProgram::try_from)
            .expect("a filter")
    }
}

/// Runs `start` in a thread without these system calls. Processes that it starts do not have them
/// either.
///
/// # Panics
/// If `start` panics, or the system does not support filters.
pub fn without_calls<T: Send>(denied: &[DeniedCall], start: impl FnOnce() -> T + Send) -> T {
    let filters: Vec<BpfProgram> = denied.iter().map(DeniedCall::filter).collect();
    thread::scope(|scope| {
        let thread = scope.spawn(move || {
            for filter in &filters {
                apply_filter(filter).expect("the system filters system calls");
            }
            start()
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Whether this system does not support filters, as in some containers. Prints that the test is
/// skipped.
pub fn is_denial_unavailable() -> bool {
    let nothing_else = DeniedCall::call(nix::libc::SYS_acct, nix::libc::EPERM);
    let taken = thread::spawn(move || apply_filter(&nothing_else.filter()).is_ok());
    let is_taken = taken.join().unwrap_or(false);
    if !is_taken {
        eprintln!("the system does not support seccomp filters: NOT tested");
    }
    !is_taken
}
