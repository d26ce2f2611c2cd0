use std::path::PathBuf;
#[cfg(feature = "lab")]
use std::time::Duration;

/// One disk of a set: a file or a block device.
#[derive(Clone, Debug)]
pub struct DiskFileConfig {
    /// The file, which is made when it does not exist, or the block device.
    pub path: PathBuf,
    /// A new file in the path's folder, without a name: nothing is left of it once it is closed,
    /// however the program ends. Where the file system has no such files (`O_TMPFILE`) it has the
    /// name of the path, which nothing else may have, for a moment while it is empty.
    pub unnamed: bool,
    /// Octets that it takes. None: all of a block device; a file keeps the size that it has.
    pub bytes: Option<u64>,
    /// Octets of a region, the unit of eviction: a multiple of 4,096, from 64 KiB to 1 GiB. None: a
    /// 64th of the disk, within 1 and 64 MiB, or what the disk was made with. Another value than
    /// the disk was made with empties the store.
    pub region_bytes: Option<u64>,
    /// Past the page cache (`O_DIRECT`). Where the file system cannot, there is a warning.
    pub direct: bool,
    /// How it is read and written.
    pub engine: Engine,
    /// Holds answers back, so that the disk seems to be as slow as this.
    #[cfg(feature = "lab")]
    pub pace: Option<Pace>,
    /// What goes wrong, for tests. Needs [`Engine::Threads`], and gets it from [`Engine::Auto`].
    #[cfg(feature = "lab")]
    pub faults: Option<Faults>,
}

impl DiskFileConfig {
    /// Defaults for a file or device of `bytes` octets.
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
    /// io_uring, or 16 threads where the system does not let us use it.
    #[default]
    Auto,
    /// io_uring, or it does not start.
    IoUring,
    /// This number of threads (1 to 256), each with one operation at a time.
    Threads(u16),
}

/// How fast a paced disk seems to be: operations are served by `parallelism` servers from one queue
/// in order of arrival. A write of several records counts as one operation for each. A disk that is
/// slower by itself stays so.
#[cfg(feature = "lab")]
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct Pace {
    /// Operations a second of all servers together, above 0.
    pub ops_per_s: f64,
    /// Operations served at the same time, at least 1.
    pub parallelism: u32,
    /// How the time of an operation is drawn.
    pub service: Service,
}

/// How the time of an operation of a paced disk is drawn.
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

/// What goes wrong with a disk, each with its probability in a million operations. For tests.
#[cfg(feature = "lab")]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    pub seed: u64,
    /// Reads that end in an error.
    pub read_errors_ppm: u32,
    /// Writes that end in an error after a part was written.
    pub write_errors_ppm: u32,
    /// Writes that end for want of space, nothing written.
    pub no_space_ppm: u32,
    /// Reads of which one bit is flipped.
    pub flips_ppm: u32,
    /// Writes of which only a part is written although all of it is acknowledged.
    pub torn_writes_ppm: u32,
    /// Reads and writes that do a part of what was asked and say so, which is no error.
    pub short_ppm: u32,
    /// Reads and writes that are interrupted by a signal.
    pub interrupts_ppm: u32,
    /// Reads and writes that take [`Self::stall`] longer.
    pub stalls_ppm: u32,
    pub stall: Duration,
    /// The operation that ends with a panic of the thread that does it.
    pub panic_at: Option<u64>,
}
