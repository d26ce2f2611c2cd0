//! What an engine receives and reports.

use std::ffi::OsString;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};

/// Runs the shares of a sweep somewhere. The records that shares leave decide what is done; an
/// engine only starts them, waits, and reports why one failed.
pub(crate) trait Engine {
    /// Cores of a share, unless the user says how many.
    fn cores_default(&self) -> usize;

    /// Waits for shares that an earlier, interrupted command left running.
    fn wait_for_earlier(&self, _sweep: &Sweep, _watch: &Watch<'_>) -> Result<(), EngineError> {
        Ok(())
    }

    /// Runs the shares, and returns when none of them runs any more.
    ///
    /// # Errors
    /// The engine itself failed, or the user stopped it. A failed share is no error.
    fn run(&self, sweep: &Sweep, watch: &Watch<'_>) -> Result<Vec<ShareFailure>, EngineError>;
}

/// A sweep in `parts` shares. Share K is the command `weir lab run ... --part K/PARTS`, and its
/// results go to a folder of its own.
#[derive(Clone, Debug)]
pub(crate) struct Sweep {
    /// Of the scenario.
    pub id: String,
    /// Absolute, as other machines start it.
    pub program: PathBuf,
    /// `lab run SCENARIO` and the options that all shares have in common.
    pub arguments: Vec<String>,
    /// The folder of the merged results, absolute.
    pub folder: PathBuf,
    pub parts: usize,
    /// The shares to run, counted from 1.
    pub shares: Vec<usize>,
    /// Cores of a share.
    pub cores: usize,
    /// Runs at the same time within a share.
    pub jobs: usize,
}

impl Sweep {
    /// The folder with the results of all shares.
    pub(crate) fn parts_folder(&self) -> PathBuf {
        self.folder.join("parts")
    }

    pub(crate) fn log(&self, share: usize) -> PathBuf {
        self.parts_folder().join(format!("{share}-of-{}.log", self.parts))
    }

    /// The command of a share. `share` is a number, or a variable of a script.
    pub(crate) fn command(&self, share: &str) -> Vec<OsString> {
        let out = self.parts_folder().join(format!("{share}-of-{}", self.parts));
        let mut words: Vec<OsString> = vec![self.program.clone().into()];
        words.extend(self.arguments.iter().map(OsString::from));
        words.extend(["--part".into(), format!("{share}/{}", self.parts).into()]);
        words.extend(["--jobs".into(), self.jobs.to_string().into()]);
        words.extend(["--out".into(), out.into()]);
        words
    }

    /// Describes the end of a share, with the last line of its log.
    pub(crate) fn failure(
        &self,
        share: usize,
        reason: &str,
        exit_code: Option<i32>,
    ) -> ShareFailure {
        let log = self.log(share);
        let said = last_line(&log).map(|line| format!(": {line}")).unwrap_or_default();
        ShareFailure {
            text: format!("share {share}/{}: {reason}{said} ({})", self.parts, log.display()),
            exit_code,
        }
    }
}

/// Why a share did not end well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShareFailure {
    pub text: String,
    /// Of `weir lab run`, if it ended by itself.
    pub exit_code: Option<i32>,
}

/// Why an engine could not run shares.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The user stopped the command.
    #[error("interrupted; repeat the command to continue")]
    Interrupted,
    /// A program of the engine does not start.
    #[error("cannot start {program}: {source}; {remedy}")]
    Start { program: String, source: std::io::Error, remedy: &'static str },
    /// A program of the engine fails.
    #[error("{program} failed: {output}; {remedy}")]
    Failed { program: String, output: String, remedy: &'static str },
    #[error("{}: {source}; choose another folder with --out, or free some space", path.display())]
    File { path: PathBuf, source: std::io::Error },
}

impl EngineError {
    pub(crate) fn file(path: &Path) -> impl Fn(std::io::Error) -> Self + '_ {
        move |source| Self::File { path: path.to_path_buf(), source }
    }
}

/// How an engine learns that it must stop, and reports progress.
pub(crate) struct Watch<'a> {
    pub stop: &'a AtomicBool,
    pub note: &'a dyn Fn(String),
}

impl Watch<'_> {
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    pub(crate) fn note(&self, text: String) {
        (self.note)(text);
    }
}

/// Runs a short command of an engine, and returns its standard output.
pub(crate) fn output_of(
    command: &mut Command,
    remedy: &'static str,
) -> Result<String, EngineError> {
    let program = command.get_program().to_string_lossy().into_owned();
    match command.output() {
        Ok(output) if output.status.success() => {
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        }
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            let output = if said.is_empty() { output.status.to_string() } else { said };
            Err(EngineError::Failed { program, output, remedy })
        }
        Err(source) => Err(EngineError::Start { program, source, remedy }),
    }
}

/// How a process ended, such as "killed by signal 9", and its exit code.
pub(crate) fn describe(status: ExitStatus) -> (String, Option<i32>) {
    use std::os::unix::process::ExitStatusExt as _;
    match (status.signal(), status.code()) {
        (Some(signal), _) => (format!("killed by signal {signal}"), None),
        (None, code) => (format!("exit code {}", code.unwrap_or_default()), code),
    }
}

/// The last line of a file that has text, at most its last 4 KiB.
fn last_line(path: &Path) -> Option<String> {
    const TAIL: u64 = 4096;
    let mut file = std::fs::File::open(path).ok()?;
    let length = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL))).ok()?;
    let mut bytes = Vec::new();
    file.take(TAIL).read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    text.lines().map(str::trim).rfind(|line| !line.is_empty()).map(str::to_owned)
}
