//! A router under test, with its share of the load.

use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context, ensure};
use nix::sys::signal::Signal;
use tempfile::TempDir;
use weir_benches::{NAMES_PER_PARENT, register};
use weir_tests::{DiskStore, Router};

use crate::args::{Args, Condition, Faces, Mode, SITES};
use crate::load::{End, Interests, Names, Shared, StopWhenDropped, consume};

/// How long a router may take to register a producer's prefix.
const REPLY_WITHIN: Duration = Duration::from_secs(5);
/// Pending Interests of a consumer while it fills a store, few enough for the disks.
const FILL_WINDOW: usize = 32;
/// The share of one router in a run.
#[derive(Clone, Copy)]
pub(crate) struct Part {
    pub(crate) threads: usize,
    pub(crate) consumers: usize,
    pub(crate) producers: usize,
    pub(crate) mebibytes: usize,
}

impl Part {
    /// Number of objects for `warm` and `disk`.
    pub(crate) fn objects(&self, condition: Condition) -> u64 {
        ((self.mebibytes << 20) / condition.payload) as u64 / NAMES_PER_PARENT
    }
}

pub(crate) struct Host {
    pub(crate) router: Router,
    /// Folder of its disks, removed with this value.
    _folder: Option<TempDir>,
    pub(crate) part: Part,
}

impl Host {
    pub(crate) fn start(args: &Args, condition: Condition, part: Part) -> anyhow::Result<Self> {
        ensure!(
            part.objects(condition) >= args.interleave,
            "--mebibytes: too small for this number of objects"
        );
        let host = weir_tests::Host::new();
        let (threads, mebibytes) = (part.threads, part.mebibytes);
        let settings = format!(
            "[router]\nthreads = {threads}\n[faces]\nshared_memory = {}\n",
            condition.faces == Faces::Shm
        );
        let mut arguments: Vec<String> =
            args.router.split_whitespace().map(str::to_owned).collect();
        if condition.mode == Mode::Disk {
            let folder = args.folder.as_ref().map(TempDir::new_in).transpose()?;
            let disks = DiskStore {
                disks: 2,
                size: format!("{}MiB", mebibytes + 64),
                // An eighth of the Data, for any number of threads.
                memory: format!("{}MiB", (mebibytes / 8).max(1)),
                settings: format!(
                    "offer = \"arrival\"\nbypass = \"off\"\nmark = \"off\"\n{settings}"
                ),
                folder: folder.as_ref().map(|folder| folder.path().to_owned()),
                arguments,
                ..DiskStore::new("router")
            };
            let router = disks.start(&host);
            return Ok(Self { router, _folder: folder, part });
        }
        // Names and signatures need space as well, and no shard may get more than fits.
        let size = mebibytes * (condition.payload + 400) / condition.payload * 2;
        let text = format!("{settings}[store]\nsize = \"{size}MiB\"\n");
        let config = host.write("router.toml", text.as_bytes());
        arguments.extend(["-c".into(), config.to_str().context("UTF-8")?.into()]);
        let router = Router::start_with(&host, &arguments);
        Ok(Self { router, _folder: None, part })
    }

    /// A connection of one of the producers, with its share of the names.
    pub(crate) fn register(&self, producer: usize) -> anyhow::Result<UnixStream> {
        let mut stream = None;
        for part in (producer as u64..SITES).step_by(self.part.producers) {
            let prefix = format!("/weir/site{part:02}");
            stream = Some(register(stream, self.router.socket(), &prefix, REPLY_WITHIN)?);
        }
        let stream = stream.context("a producer without names")?;
        stream.set_read_timeout(None)?;
        Ok(stream)
    }

    /// Makes the router fetch all Data of `warm` and `disk` once.
    pub(crate) fn fill(&self, condition: Condition) -> anyhow::Result<()> {
        let (consumers, objects) = (self.part.consumers as u64, self.part.objects(condition));
        let shared = Shared::default();
        std::thread::scope(|scope| {
            let _stop = StopWhenDropped(&shared.stop);
            let mut asking = Vec::new();
            for consumer in 0..consumers {
                let [first, end] = [consumer, consumer + 1].map(|at| at * objects / consumers);
                let names = Names::InOrder { first, count: objects };
                // One object after the other, because the rest of a share may not fill a turn of
                // several objects.
                let mut interests = Interests::new(names, 1);
                let count = (end - first) * NAMES_PER_PARENT;
                let mut end = End::connect(&self.router.unix())?;
                let shared = &shared;
                asking.push(
                    scope.spawn(move || {
                        consume(&mut end, &mut interests, FILL_WINDOW, count, shared)
                    }),
                );
            }
            asking.into_iter().try_for_each(|consumer| {
                consumer.join().expect("no thread panics").context("a consumer")
            })
        })?;
        let (asked, came) = (objects * NAMES_PER_PARENT, shared.data.load(Ordering::Relaxed));
        ensure!(came * 100 >= asked * 99, "{came} of {asked} Data came when the store was filled");
        if condition.mode == Mode::Disk {
            self.router.wait_for_idle_disks();
        }
        Ok(())
    }

    pub(crate) fn uri(&self, faces: Faces) -> String {
        match faces {
            Faces::Unix | Faces::Shm => self.router.unix(),
            Faces::Udp => self.router.udp(),
            Faces::Tcp => self.router.tcp(),
        }
    }

    /// Stops the router like an operator does, so that it writes its coverage or profile data.
    pub(crate) fn stop(mut self) {
        self.router.process.signal(Signal::SIGTERM);
        self.router.process.finish().success();
    }
}
