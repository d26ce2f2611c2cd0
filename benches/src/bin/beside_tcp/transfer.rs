//! Bulk transfers from the server to the client: by TCP of the kernel, and of NDN by `weir`.

use std::fmt;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, ensure};
use nix::sys::signal::Signal;
use socket2::SockRef;
use weir_tests::{Process, Site};

use crate::bottleneck::tcp_port;
use crate::host::Host;

/// Of the range that RFC 2544 sets aside for measurements.
pub(crate) const SERVER: &str = "198.18.0.1";
pub(crate) const CLIENT: &str = "198.18.0.2";
/// Octets handed to TCP at once.
const PIECE_BYTES: usize = 64 << 10;

/// A transfer and what controls its congestion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `weir get --pipeline`, over UDP.
    Ndn(String),
    /// TCP with a congestion control of the kernel.
    Tcp(String),
    /// None: the other one is alone.
    Nothing,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ndn(pipeline) => f.write_str(pipeline),
            Self::Tcp(control) => write!(f, "TCP {control}"),
            Self::Nothing => f.write_str("nothing"),
        }
    }
}

/// What a server offers over NDN.
pub(crate) struct Offer {
    pub(crate) segment_size: usize,
    pub(crate) file_bytes: u64,
    /// The router's `marking`.
    pub(crate) marking: String,
}

/// A router and a producer at the server.
pub(crate) struct Producer {
    name: String,
    uri: String,
    /// Kept running.
    _processes: [Process; 2],
}

impl Producer {
    /// Starts both. Each of one site has another `number`.
    pub(crate) fn start(
        server: &Host,
        site: &Site,
        number: u16,
        offer: &Offer,
    ) -> anyhow::Result<Self> {
        let source = site.path("source");
        if !source.exists() {
            File::create(&source)?.set_len(offer.file_bytes)?;
        }
        let text = |path: PathBuf| path.into_os_string().into_string().ok().context("UTF-8");
        let socket = text(site.path(&format!("router-{number}.sock")))?;
        let address = format!("{SERVER}:{}", 6363 + number);
        let config = format!("[faces]\nmarking = \"{}\"\n", offer.marking);
        let config = text(site.write(&format!("router-{number}.toml"), config.as_bytes()))?;
        server.run(|| {
            // No store, so that every transfer gets its Data from where the first one does.
            let words = ["router", "--json", "-c", &config, "--unix", &socket];
            let more = ["--udp", &address, "--tcp", "none", "--store", "0"];
            let router = site.weir("", &[&words[..], &more].concat());
            router.json_line();
            let unix = format!("unix://{socket}");
            let segment_size = offer.segment_size.to_string();
            let words = ["put", &text(source)?, "/beside/tcp", "--json", "--sign", "digest"];
            let more = ["--segment-size", &segment_size];
            let put = site.weir(&unix, &[&words[..], &more].concat());
            let name = put.json_line()["name"].as_str().context("a name")?.to_owned();
            Ok(Self { name, uri: format!("udp4://{address}"), _processes: [router, put] })
        })
    }
}

/// A transfer under way. It ends when this is dropped.
pub(crate) enum Transfer {
    Ndn(Process, PathBuf),
    Tcp { ends: [TcpStream; 2], threads: Vec<JoinHandle<()>> },
    Nothing,
}

impl Transfer {
    /// Starts `weir get` at the client.
    pub(crate) fn get(
        client: &Host,
        site: &Site,
        producer: &Producer,
        pipeline: &str,
    ) -> anyhow::Result<Self> {
        // A folder of its own, since a download that broke off would be gone on with.
        let folder = site.path("copy");
        std::fs::create_dir(&folder)?;
        let target = folder.join("file");
        let target_text = target.to_str().context("UTF-8")?;
        let words = ["get", &producer.name, "-o", target_text, "--json", "--allow-unsigned"];
        let words = [&words[..], &["--pipeline", pipeline]].concat();
        let uri = &producer.uri;
        let process = client.run(|| Ok(site.weir(uri, &words)))?;
        Ok(Self::Ndn(process, folder))
    }

    /// Starts a TCP connection that the server sends on. `index` is what its port tells.
    pub(crate) fn tcp(
        server: &Host,
        client: &Host,
        control: &str,
        index: usize,
    ) -> anyhow::Result<Self> {
        let address = (SERVER, tcp_port(index));
        let listener = server.run(|| {
            let listener = TcpListener::bind(address)?;
            SockRef::from(&listener).set_tcp_congestion(control.as_bytes()).with_context(|| {
                format!("this kernel has no TCP congestion control `{control}`; try modprobe")
            })?;
            Ok(listener)
        })?;
        let receiver = client.run(|| Ok(TcpStream::connect(address)?))?;
        let (sender, _) = listener.accept()?;
        // Nothing of this transfer shall be sent once it is over.
        SockRef::from(&sender).set_linger(Some(Duration::ZERO))?;
        let ends = [sender.try_clone()?, receiver.try_clone()?];
        let sending = std::thread::spawn(move || {
            let mut sender = sender;
            while sender.write_all(&[0x5a; PIECE_BYTES]).is_ok() {}
        });
        let receiving = std::thread::spawn(move || {
            let mut receiver = receiver;
            let mut octets = vec![0; PIECE_BYTES];
            while receiver.read(&mut octets).is_ok_and(|count| count > 0) {}
        });
        Ok(Self::Tcp { ends, threads: vec![sending, receiving] })
    }

    /// Fails if it has ended by itself.
    pub(crate) fn ensure_running(&mut self) -> anyhow::Result<()> {
        match self {
            Self::Ndn(process, _) => {
                ensure!(process.is_running(), "weir get has ended: {}", process.log());
            }
            Self::Tcp { threads, .. } => {
                let runs = threads.iter().all(|thread| !thread.is_finished());
                ensure!(runs, "the TCP connection has ended");
            }
            Self::Nothing => {}
        }
        Ok(())
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        match self {
            Self::Ndn(process, folder) => {
                while process.is_running() {
                    process.signal(Signal::SIGKILL);
                    std::thread::sleep(Duration::from_millis(2));
                }
                let _ = std::fs::remove_dir_all(folder);
            }
            Self::Tcp { ends, threads } => {
                for end in ends {
                    let _ = end.shutdown(Shutdown::Both);
                }
                for thread in threads.drain(..) {
                    let _ = thread.join();
                }
            }
            Self::Nothing => {}
        }
    }
}
