//! System calls that programs under test do not get.

use std::collections::BTreeMap;
use std::thread;

use nix::libc::c_long;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, apply_filter,
};

/// A system call that ends with an error whenever a program makes it.
#[derive(Clone, Copy, Debug)]
pub struct DeniedCall {
    /// `SYS_...`
    pub call: c_long,
    /// The place of an argument, from 0, and its value, if calls with others go through.
    pub argument: Option<(u8, u32)>,
    /// `ENOSYS`, as of an older system, `EPERM`, as of a container, or another one.
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

/// Does `start` in a thread that does not get these system calls, and neither do the processes that
/// it starts.
///
/// # Panics
/// If `start` does, or the system takes no filters.
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

/// Whether this system takes no filters, as some containers do not; then it says that what is asked
/// of a test is not tested.
pub fn is_denial_unavailable() -> bool {
    let nothing_else = DeniedCall::call(nix::libc::SYS_acct, nix::libc::EPERM);
    let taken = thread::spawn(move || apply_filter(&nothing_else.filter()).is_ok());
    let is_taken = taken.join().unwrap_or(false);
    if !is_taken {
        eprintln!("the system takes no filters of system calls (seccomp): NOT tested");
    }
    !is_taken
}
