//! A handle to a running router, for other threads.

use std::io;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::Receiver;
use weir_face::Socket;
use weir_manage::ControllerStatus;

use crate::check::check;
use crate::config::RuntimeConfig;
use crate::contents::Contents;
use crate::error::{StartError, StopError};
use crate::mailbox::ControlSender;
use crate::message::{ControllerSource, ToControl};
use crate::metrics::{ExtraMetric, MetricsPages, MetricsServer};
use crate::reload::ReloadReport;
use crate::snapshot::Snapshot;

/// A running router. Dropping the handle stops the router.
#[derive(Debug)]
pub struct Handle {
    control: ControlSender,
    thread: Option<JoinHandle<Result<(), StopError>>>,
    metrics: Option<MetricsServer>,
    pages: MetricsPages,
    /// Requests for reloads.
    requests: Receiver<()>,
    listening: Vec<String>,
    contents: Contents,
    disk_paths: Vec<PathBuf>,
}

/// What a handle needs besides the control thread.
pub(crate) struct HandleParts {
    pub(crate) control: ControlSender,
    pub(crate) metrics: Option<MetricsServer>,
    pub(crate) pages: MetricsPages,
    pub(crate) requests: Receiver<()>,
    pub(crate) listening: Vec<String>,
    pub(crate) contents: Contents,
    pub(crate) disk_paths: Vec<PathBuf>,
}

/// Connects applications in the router's process. Cheap to clone.
#[derive(Clone, Debug)]
pub struct LocalPort {
    control: ControlSender,
}

impl LocalPort {
    /// Connects an application. Its face has local scope, like a face of the Unix socket. The
    /// stream ends when the router stops, or at once if there are too many applications.
    pub fn connect(&self) -> io::Result<UnixStream> {
        let (application, router) = UnixStream::pair()?;
        self.control.send(ToControl::Local(Box::new(Socket::of_pair(router)?)));
        Ok(application)
    }
}

impl Handle {
    pub(crate) fn new(thread: JoinHandle<Result<(), StopError>>, parts: HandleParts) -> Self {
        let HandleParts { control, metrics, pages, requests, listening, contents, disk_paths } =
            parts;
        let thread = Some(thread);
        Self { control, thread, metrics, pages, requests, listening, contents, disk_paths }
    }

    /// Addresses where peers reach this router, as FaceUris with the actual ports.
    pub fn listening(&self) -> &[String] {
        &self.listening
    }

    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics.as_ref().map(MetricsServer::address)
    }

    /// Adds metrics of another component of the process to `/metrics`.
    pub fn add_metrics(&self, source: impl Fn() -> Vec<ExtraMetric> + Send + Sync + 'static) {
        self.pages.extra.add(Box::new(source));
    }

    /// Describes the controller of this router to management clients from now on.
    pub fn set_controller_source(&self, source: impl Fn() -> ControllerStatus + Send + 'static) {
        self.control.send(ToControl::ControllerSource(ControllerSource(Box::new(source))));
    }

    /// Access to the contents of the store.
    pub fn contents(&self) -> Contents {
        self.contents.clone()
    }

    /// Connects applications in this process to the router.
    pub fn local_port(&self) -> LocalPort {
        LocalPort { control: self.control.clone() }
    }

    /// Current counters and sizes; `None` while the router is stopping.
    pub fn snapshot(&self) -> Option<Snapshot> {
        self.control.snapshot(Duration::from_secs(5))
    }

    /// Waits for a request to read the configuration again: SIGHUP, or `router/reload` of an
    /// operator. Returns false when the router stops. The caller must answer each request with
    /// [`Self::end_reload`]; requests meanwhile share the next one.
    pub fn wait_for_reload(&self) -> bool {
        self.requests.recv().is_ok()
    }

    /// Checks a whole configuration, then applies what a running router can change: static faces
    /// and their routes, strategies, the store's settings, trust anchors, who may send commands,
    /// and the address of the metrics. The rest is ignored.
    ///
    /// # Errors
    /// [`StartError`]. Then nothing has changed, except that the metrics are off if the error says
    /// so.
    pub fn reload(&mut self, config: RuntimeConfig) -> Result<ReloadReport, StartError> {
        check(&config)?;
        if let Some(gone) = self.disk_paths.iter().find(|path| !path.exists()) {
            return Err(StartError::Config(format!(
                "{}: this disk of the running router no longer exists, and a restart would create \
                 an empty one; mount its file system, or stop the router before you replace it",
                gone.display()
            )));
        }
        let moved = self.move_metrics(config.metrics)?;
        let (answer, answered) = crossbeam_channel::bounded(1);
        self.control.send(ToControl::Reload { config: Box::new(config), answer });
        let stopping = |_| StartError::Config("the router is stopping".into());
        let mut report = answered.recv().map_err(stopping)?;
        report.others.extend(moved);
        Ok(report)
    }

    /// Ends a requested reload, with a summary or the reason of its refusal.
    pub fn end_reload(&self, outcome: Result<String, String>) {
        self.control.send(ToControl::ReloadEnded(outcome));
    }

    /// Serves the metrics at another address. Returns a description of the change.
    fn move_metrics(&mut self, address: Option<SocketAddr>) -> Result<Option<String>, StartError> {
        let old = self.metrics_address();
        // A configured port 0 stands for the present one.
        let is_same = |new: SocketAddr| {
            old.is_some_and(|old| old.ip() == new.ip() && [0, old.port()].contains(&new.port()))
        };
        match address {
            Some(address) if is_same(address) => Ok(None),
            Some(address) => {
                self.metrics = Some(self.start_metrics(address, old)?);
                Ok(Some(format!("metrics at http://{address}/metrics")))
            }
            None => Ok(self.metrics.take().map(|_| "no metrics".into())),
        }
    }

    /// Starts another metrics server, before the present one is closed if possible.
    fn start_metrics(
        &mut self,
        address: SocketAddr,
        old: Option<SocketAddr>,
    ) -> Result<MetricsServer, StartError> {
        let start = |address| MetricsServer::start(address, self.pages.clone());
        let error = match start(address) {
            Ok(server) => return Ok(server),
            Err(error) => error,
        };
        // One address may include the other, such as 0.0.0.0 and 127.0.0.1.
        let is_in_use = error.kind() == io::ErrorKind::AddrInUse;
        let overlapping = old.filter(|old| is_in_use && old.port() == address.port());
        let Some(old) = overlapping else { return Err(StartError::metrics(address, &error)) };
        drop(self.metrics.take());
        let error = match start(address) {
            Ok(server) => return Ok(server),
            Err(error) => error,
        };
        match start(old) {
            Ok(server) => {
                self.metrics = Some(server);
                Err(StartError::metrics(address, &error))
            }
            Err(lost) => {
                tracing::error!(address = %old, error = %lost, "the router serves no metrics now");
                let (reason, lost) = (error.to_string(), lost.to_string());
                Err(StartError::MetricsLost { address, reason, old, lost })
            }
        }
    }

    /// Stops the router: closes its faces, removes its socket file, and ends its threads.
    pub fn stop(self) -> Result<(), StopError> {
        self.control.send(ToControl::Stop);
        self.wait()
    }

    /// Waits until the router stops, by a signal or because a thread failed.
    pub fn wait(mut self) -> Result<(), StopError> {
        self.join()
    }

    fn join(&mut self) -> Result<(), StopError> {
        let result = match self.thread.take().map(JoinHandle::join) {
            Some(Ok(result)) => result,
            Some(Err(_)) => Err(StopError::Panicked { thread: "control".into() }),
            None => Ok(()),
        };
        drop(self.metrics.take());
        result
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.control.send(ToControl::Stop);
        let _ = self.join();
    }
}
