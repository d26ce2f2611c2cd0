//! A handle to a running router, for other threads.

use std::io;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::thread::JoinHandle;
use std::time::Duration;

use weir_face::Socket;
use weir_manage::ControllerStatus;

use crate::contents::Contents;
use crate::error::StopError;
use crate::mailbox::ControlSender;
use crate::message::{ControllerSource, ToControl};
use crate::metrics::{ExtraMetric, MetricsServer};
use crate::snapshot::Snapshot;

/// A running router. Dropping the handle stops the router.
#[derive(Debug)]
pub struct Handle {
    control: ControlSender,
    thread: Option<JoinHandle<Result<(), StopError>>>,
    metrics: Option<MetricsServer>,
    listening: Vec<String>,
    contents: Contents,
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
    pub(crate) fn new(
        control: ControlSender,
        thread: JoinHandle<Result<(), StopError>>,
        metrics: Option<MetricsServer>,
        listening: Vec<String>,
        contents: Contents,
    ) -> Self {
        Self { control, thread: Some(thread), metrics, listening, contents }
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
        if let Some(metrics) = &self.metrics {
            metrics.extra().add(Box::new(source));
        }
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
