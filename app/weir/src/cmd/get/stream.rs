//! Outputs that receive bytes in order: standard output, pipes and devices.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use weir_socket::{Opened, Output, OutputError};
use weir_transport::Metadata;

use crate::table;
use crate::transfer::Stop;

/// Time between two checks for a stop while the reader is blocked.
const STOP_POLL_MS: u16 = 50;
/// Number of bytes that a writable pipe accepts without blocking (POSIX, `PIPE_BUF`).
const PIPE_BUF: usize = 4096;

/// State of a stream, shared with the threads that write to it.
#[derive(Debug, Default)]
pub(super) struct StreamState {
    /// The reader accepts no bytes, or there is no reader.
    pub(super) is_waiting: AtomicBool,
    /// Bytes have been written, so the fetch cannot start over.
    pub(super) has_begun: AtomicBool,
}

/// A file whose writes can be stopped, even while its reader accepts no bytes.
struct Stream {
    file: File,
    /// Writes fail with `WouldBlock` instead of blocking.
    is_nonblocking: bool,
    stop: Stop,
    state: Arc<StreamState>,
}

impl Stream {
    /// Waits until the file accepts bytes. Fails after a stop.
    fn wait(&self) -> io::Result<()> {
        loop {
            if self.stop.is_set() {
                return Err(io::Error::other("interrupted"));
            }
            let mut polled = [PollFd::new(self.file.as_fd(), PollFlags::POLLOUT)];
            match poll(&mut polled, PollTimeout::from(STOP_POLL_MS)) {
                Ok(0) | Err(Errno::EINTR) => self.state.is_waiting.store(true, Ordering::Relaxed),
                // `POLLERR` and `POLLHUP` end the wait too; the next write returns the error.
                Ok(_) => {
                    self.state.is_waiting.store(false, Ordering::Relaxed);
                    return Ok(());
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.state.has_begun.store(true, Ordering::Relaxed);
        if self.is_nonblocking {
            return loop {
                match self.file.write(bytes) {
                    Err(error) if error.kind() == ErrorKind::WouldBlock => self.wait()?,
                    result => break result,
                }
            };
        }
        // A blocking pipe that is writable accepts `PIPE_BUF` bytes; a longer write could block.
        self.wait()?;
        let len = if is_regular(&self.file) { bytes.len() } else { bytes.len().min(PIPE_BUF) };
        self.file.write(&bytes[..len])
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn is_regular(file: &File) -> bool {
    file.metadata().is_ok_and(|metadata| metadata.is_file())
}

/// Opens a pipe, a device or a descriptor of this process for writing, without blocking. A pipe
/// without a reader fails with `ENXIO`.
fn open_for_writing(path: &Path, flags: OFlag) -> io::Result<File> {
    let flags = flags | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    File::options().write(true).custom_flags(flags.bits()).open(path)
}

/// Standard output, through its descriptor. `std::io::Stdout` ignores a closed descriptor and
/// reports success.
pub(super) struct StandardOutput {
    stop: Stop,
    state: Arc<StreamState>,
}

impl StandardOutput {
    pub(super) fn new(stop: &Stop, state: &Arc<StreamState>) -> Self {
        Self { stop: stop.clone(), state: state.clone() }
    }

    fn stream(&self) -> io::Result<Stream> {
        let file = table::standard_output()?;
        // Open the pipe again for a non-blocking descriptor. Setting O_NONBLOCK on the existing one
        // would affect the other programs that share it.
        let own = if file.metadata()?.file_type().is_fifo() {
            let path = format!("/proc/self/fd/{}", file.as_raw_fd());
            open_for_writing(Path::new(&path), OFlag::empty()).ok()
        } else {
            None
        };
        let is_nonblocking = own.is_some();
        let (stop, state) = (self.stop.clone(), self.state.clone());
        Ok(Stream { file: own.unwrap_or(file), is_nonblocking, stop, state })
    }
}

impl Output for StandardOutput {
    fn open(&mut self, _metadata: &Metadata) -> Result<Opened, OutputError> {
        let stream = self.stream();
        let path = || PathBuf::from("standard output");
        let stream = stream.map_err(|source| OutputError::Io { path: path(), source })?;
        Ok(Opened::Stream(Box::new(stream)))
    }
}

/// A pipe, a device or a descriptor in `/proc`, given by a path.
pub(super) struct SpecialFile {
    path: PathBuf,
    may_be_link: bool,
    stop: Stop,
    state: Arc<StreamState>,
}

impl SpecialFile {
    pub(super) fn new(
        path: &Path,
        may_be_link: bool,
        stop: &Stop,
        state: &Arc<StreamState>,
    ) -> Self {
        let (path, stop) = (path.to_owned(), stop.clone());
        Self { path, may_be_link, stop, state: state.clone() }
    }

    /// Opens the file. Waits until a pipe has a reader.
    fn open_when_read(&self) -> io::Result<File> {
        // A link in /proc may lead to a file that another program also writes; append to it.
        let flags = if self.may_be_link { OFlag::O_APPEND } else { OFlag::O_NOFOLLOW };
        loop {
            match open_for_writing(&self.path, flags) {
                Err(error)
                    if error.raw_os_error() == Some(Errno::ENXIO as i32) && self.is_pipe() =>
                {
                    self.state.is_waiting.store(true, Ordering::Relaxed);
                }
                opened => {
                    self.state.is_waiting.store(false, Ordering::Relaxed);
                    return opened;
                }
            }
            if self.stop.is_set() {
                return Err(io::Error::other("interrupted"));
            }
            std::thread::sleep(Duration::from_millis(STOP_POLL_MS.into()));
        }
    }

    fn is_pipe(&self) -> bool {
        std::fs::metadata(&self.path).is_ok_and(|found| found.file_type().is_fifo())
    }
}

impl Output for SpecialFile {
    fn open(&mut self, _metadata: &Metadata) -> Result<Opened, OutputError> {
        let file = self.open_when_read();
        let file = file.map_err(|source| OutputError::Io { path: self.path.clone(), source })?;
        // If a regular file has replaced the pipe, the write would overwrite its start.
        if is_regular(&file) && !self.may_be_link {
            return Err(OutputError::Replaced { path: self.path.clone() });
        }
        let (stop, state) = (self.stop.clone(), self.state.clone());
        Ok(Opened::Stream(Box::new(Stream { file, is_nonblocking: true, stop, state })))
    }
}
