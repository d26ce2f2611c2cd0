use std::path::PathBuf;
#[cfg(feature = "lab")]
use std::time::Duration;

/// One disk of a set: a file or a block device.
#[derive(Clone, Debug)]
pub struct DiskFileConfig {
    /// The file, which is created if it does not exist, or the block device.
    pub path: PathBuf,
    /// Create a file without a name in the path's folder. The file disappears once it is closed,
    /// however the program ends. On a file system that does not support this (`O_TMPFILE`), the
    /// empty file has the name of the path for a moment. That name must be unused.
    pub unnamed: bool,
    /// Size in bytes. `None`: a block device is used completely; a file keeps its size.
    pub bytes: Option<u64>,
    /// Bytes of a region, which is evicted as a whole: a multiple of 4096, from 64 KiB to 1 GiB.
    /// `None`: the size that the disk was created with. For a new disk, a 64th of it, but at least
    /// 1 MiB and at most 64 MiB.
    pub region_bytes: Option<u64>,
    /// Bypass the page cache (`O_DIRECT`). If the file system does not support it, the disk uses
    /// the page cache with a warning.
    pub direct: bool,
    /// How the disk is read and written.
    pub engine: Engine,
    /// Delays answers, so that the disk seems to be this slow.
    #[cfg(feature = "lab")]
    pub pace: Option<Pace>,
    /// Injects faults, for tests. Requires [`Engine::Threads`]; [`Engine::Auto`] selects it.
    #[cfg(feature = "lab")]
    pub faults: Option<Faults>,
}

impl DiskFileConfig {
    /// Default values for a file or device of `bytes` bytes.
    pub fn new(path: impl Into<PathBuf>, bytes: Option<u64>) -> Self {
        Self {
            path: path.into(),
            unnamed: false,
            bytes,
            region_bytes: None,
            direct: true,
            engine: Engine::default(),
            #[cfg(feature = "lab")]
            pace: None,
            #[cfg(feature = "lab")]
            faults: None,
        }
    }
}

/// How a disk is read and written.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum Engine {
    /// io_uring, or 16 threads if the system does not permit it.
    #[default]
    Auto,
    /// io_uring, or an error.
    IoUring,
    /// This number of threads (1 to 256), each with one operation at a time.
    Threads(u16),
}

/// The speed of a paced disk: `parallelism` servers process operations from one queue in order of
/// arrival. A write of several records counts as one operation for each. The real disk may be
/// slower.
#[cfg(feature = "lab")]
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct Pace {
    /// Operations a second of all servers together, above 0.
    pub ops_per_s: f64,
    /// Operations served at the same time, at least 1.
    pub parallelism: u32,
    pub service: Service,
}

/// The distribution of service times of a paced disk.
#[cfg(feature = "lab")]
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum Service {
    /// Always the same.
    #[default]
    Constant,
    Exponential {
        seed: u64,
    },
}

/// Faults to inject, each with its probability in a million operations. For tests.
#[cfg(feature = "lab")]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    pub seed: u64,
    /// Reads that end with an error.
    pub read_errors_ppm: u32,
    /// Writes that end with an error after a part was written.
    pub write_errors_ppm: u32,
    /// Writes that end with an error for lack of space; nothing is written.
    pub no_space_ppm: u32,
    /// Reads in which one bit is flipped.
    pub flips_ppm: u32,
    /// Writes that are acknowledged although only a part reaches the disk.
    pub torn_writes_ppm: u32,
    /// Reads and writes that transfer less than requested and report it, which is no error.
    pub short_ppm: u32,
    /// Reads and writes that a signal interrupts.
    pub interrupts_ppm: u32,
    /// Reads and writes that take [`Self::stall`] longer.
    pub stalls_ppm: u32,
    pub stall: Duration,
    /// The operation during which the thread panics.
    pub panic_at: Option<u64>,
}
