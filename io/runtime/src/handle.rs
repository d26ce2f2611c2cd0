//! A running router, in the hands of another thread.

use std::io;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::thread::JoinHandle;
use std::time::Duration;

use weir_face::Socket;

use crate::contents::Contents;
use crate::error::StopError;
use crate::mailbox::ControlSender;
use crate::message::ToControl;
use crate::metrics::{ExtraMetric, MetricsServer};
use crate::snapshot::Snapshot;

/// A running router. Dropping it stops the router too.
#[derive(Debug)]
pub struct Handle {
    control: ControlSender,
    thread: Option<JoinHandle<Result<(), StopError>>>,
    metrics: Option<MetricsServer>,
    listening: Vec<String>,
    contents: Contents,
}

/// Where applications in the process of a router connect to it. Cheap to clone.
#[derive(Clone, Debug)]
pub struct LocalPort {
    control: ControlSender,
}

impl LocalPort {
    /// Connects an application, as one at the Unix socket would be: its face has local scope. The
    /// stream ends with the router, and when there are too many applications.
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

    /// Where peers reach this router, as FaceUris with the real ports.
    pub fn listening(&self) -> &[String] {
        &self.listening
    }

    /// Where `/metrics` is served.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics.as_ref().map(MetricsServer::address)
    }

    /// Adds metrics of something that runs beside the router to those of `/metrics`.
    pub fn add_metrics(&self, source: impl Fn() -> Vec<ExtraMetric> + Send + Sync + 'static) {
        if let Some(metrics) = &self.metrics {
            metrics.extra().add(Box::new(source));
        }
    }

    /// Asks what the store holds, and says what it is to hold.
    pub fn contents(&self) -> Contents {
        self.contents.clone()
    }

    /// Where applications in this process connect to the router.
    pub fn local_port(&self) -> LocalPort {
        LocalPort { control: self.control.clone() }
    }

    /// Counters and sizes now; `None` when the router is ending.
    pub fn snapshot(&self) -> Option<Snapshot> {
        self.control.snapshot(Duration::from_secs(5))
    }

    /// Stops the router: closes its faces, removes its socket file, ends its threads.
    pub fn stop(self) -> Result<(), StopError> {
        self.control.send(ToControl::Stop);
        self.wait()
    }

    /// Waits until the router stops: by signal, or because one of its threads failed.
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
