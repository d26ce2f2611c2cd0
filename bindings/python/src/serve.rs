//! The server behind `weir.put`: objects are signed once, and a thread answers until it is closed.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use pyo3::types::PyDict;
use weir_binding::WithoutSignals;
use weir_client::{Client, CommandError};
use weir_face::{FaceUri, unix_time_ms};
use weir_security::key_name_of;
use weir_socket::{
    Identity, Label, ObjectStore, PublishError, PublishOptions, Published, ServeProblem,
    publish_file, publish_listing, publish_octets, serve,
};
use weir_wire::{DataView, Name};

use crate::buffer::octets_of;
use crate::process_local::ProcessLocal;
use crate::producer::identity_of;
use crate::{errors, options, sessions};

const WHAT: &str = "the server of this object";
/// Producer options without effect here, because all objects stay.
const UNUSED: [&str; 5] =
    ["output_buffer", "output_policy", "request_wait", "requests_max", "objects_max"];
/// Pause before reconnecting to the router, and interval of checks whether to stop.
const RECONNECT_PAUSE: Duration = Duration::from_millis(500);
const STOP_PAUSE: Duration = Duration::from_millis(50);
/// Interval of checks for signals while files are signed.
const SIGNALS: Duration = Duration::from_millis(50);

/// The registered prefixes.
struct Prefixes {
    name: Name,
    /// The certificate's prefix. Metadata contains the certificate as well.
    certificate: Option<Name>,
}

impl Prefixes {
    fn register(&self, client: &mut Client) -> Result<(), CommandError> {
        client.register_prefix(&self.name)?;
        if let Some(certificate) = &self.certificate {
            let _ = client.register_prefix(certificate);
        }
        Ok(())
    }

    /// Only for a router that stays connected: it forgets the routes when the connection closes.
    fn unregister(&self, client: &mut Client) {
        let _ = client.unregister_prefix(&self.name);
        if let Some(certificate) = &self.certificate {
            let _ = client.unregister_prefix(certificate);
        }
    }
}

enum State {
    Filling(Box<ObjectStore>),
    Serving(ProcessLocal<JoinHandle<()>>),
    Closed,
}

/// The published objects of one `weir.put`.
#[pyclass(frozen, module = "weir._weir")]
pub(crate) struct Shelf {
    name: Name,
    router: FaceUri,
    identity: Identity,
    options: PublishOptions,
    version: u64,
    state: Mutex<State>,
    is_stopped: Arc<AtomicBool>,
    /// Also locked by the thread that answers.
    lost: ProcessLocal<Arc<Mutex<Vec<String>>>>,
}

#[pymethods]
impl Shelf {
    #[new]
    #[pyo3(signature = (name, router, sign, version, options))]
    fn new(
        py: Python<'_>,
        name: &str,
        router: Option<&str>,
        sign: &str,
        version: Option<u64>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        for name in options.into_iter().flat_map(|options| options.keys()) {
            let name: String = name.extract()?;
            if UNUSED.contains(&name.as_str()) {
                let message = format!("{name} is only for weir.Producer: put keeps it all");
                return Err(errors::raise("OptionError", message));
            }
        }
        let options = options::for_producer(options)?.publish_options();
        let name = sessions::name_of(name)?;
        if name.is_empty() {
            return Err(errors::name("a name needs at least one component, such as /data/file"));
        }
        Ok(Self {
            name,
            router: py.detach(|| weir_binding::router_of(router)).map_err(errors::of_socket)?,
            identity: identity_of(py, sign)?,
            options,
            version: version.unwrap_or_else(unix_time_ms),
            state: Mutex::new(State::Filling(Box::default())),
            is_stopped: Arc::default(),
            lost: ProcessLocal::new(Arc::default()),
        })
    }

    /// Signs a file. Returns its name with the version.
    fn add_file(&self, py: Python<'_>, path: PathBuf, name: &str) -> PyResult<String> {
        let name = sessions::name_of(name)?;
        let (mut raised, mut looked) = (None, Instant::now());
        let mut go_on = |_| {
            if raised.is_none() && looked.elapsed() >= SIGNALS {
                looked = Instant::now();
                raised = Python::attach(|py| py.check_signals()).err();
            }
            raised.is_none()
        };
        let published =
            self.sign(py, || publish_file(&path, self.label(&name), &self.options, &mut go_on));
        // An exception of a signal handler also made signing fail: raise the exception.
        match raised {
            Some(raised) => Err(raised),
            None => self.add(published),
        }
    }

    /// Signs bytes. Returns their name with the version.
    fn add_octets(&self, py: Python<'_>, data: &Bound<'_, PyAny>, name: &str) -> PyResult<String> {
        let (octets, name) = (octets_of(py, data)?, sessions::name_of(name)?);
        self.add(self.sign(py, || publish_octets(octets, self.label(&name), &self.options)))
    }

    /// Signs the listing of a directory: names, and whether each is a directory.
    fn add_listing(
        &self,
        py: Python<'_>,
        entries: Vec<(Vec<u8>, bool)>,
        name: &str,
    ) -> PyResult<String> {
        let name = sessions::name_of(name)?;
        self.add(self.sign(py, || publish_listing(&entries, self.label(&name), &self.options)))
    }

    /// Starts to serve everything that was added.
    fn start(&self, py: Python<'_>) -> PyResult<()> {
        // If starting fails, the server stays closed.
        let state = std::mem::replace(&mut *self.state(), State::Closed);
        let State::Filling(mut store) = state else {
            return Err(errors::closed(WHAT));
        };
        let mut certificate = None;
        if let Some(packet) = &self.identity.certificate {
            let view = DataView::decode(packet).ok();
            certificate = view.and_then(|data| key_name_of(data.name)).map(|key| key.to_name());
            let added = store.add_packet(packet.as_slice().into());
            added.map_err(|error| errors::raise("KeyChainError", error.to_string()))?;
        }
        let certificate =
            certificate.filter(|prefix| !self.name.as_view().is_prefix_of(prefix.as_view()));
        let prefixes = Prefixes { name: self.name.clone(), certificate };
        let (router, is_stopped) = (self.router.clone(), self.is_stopped.clone());
        let lost = self.lost.get_or_raise(WHAT)?.clone();
        let client = py.detach(|| {
            let mut client = Client::connect(&router).map_err(Unable::Connect)?;
            prefixes.register(&mut client).map_err(Unable::Register)?;
            Ok(client)
        });
        let client = client.map_err(|error| match error {
            Unable::Connect(error) => errors::of_socket(error.into()),
            Unable::Register(error) => errors::of_command(error),
        })?;
        let _guard = WithoutSignals::new();
        let thread = std::thread::Builder::new().name("put".into()).spawn(move || {
            Server { router, prefixes, store: *store, is_stopped, lost }.run(client);
        })?;
        *self.state() = State::Serving(ProcessLocal::new(thread));
        Ok(())
    }

    /// Messages about files that are no longer served, because they have changed or disappeared.
    #[getter]
    fn lost(&self) -> PyResult<Vec<String>> {
        Ok(self.lost.get_or_raise(WHAT)?.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }

    /// Stops serving. Does nothing in a child of `fork`, which serves nothing.
    fn close(&self, py: Python<'_>) {
        let state = std::mem::replace(&mut *self.state(), State::Closed);
        if let State::Serving(thread) = state
            && thread.is_current_process()
        {
            self.is_stopped.store(true, Ordering::Relaxed);
            py.detach(|| thread.into_value().map(JoinHandle::join));
        }
    }
}

enum Unable {
    Connect(weir_client::ClientError),
    Register(CommandError),
}

impl Shelf {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn label<'a>(&'a self, name: &'a Name) -> Label<'a> {
        Label {
            name,
            version: self.version,
            signer: &*self.identity.signer,
            certificate: self.identity.certificate.as_deref(),
        }
    }

    fn sign(
        &self,
        py: Python<'_>,
        sign: impl FnOnce() -> Result<Published, PublishError> + Send,
    ) -> Result<Published, PublishError> {
        py.detach(sign)
    }

    fn add(&self, published: Result<Published, PublishError>) -> PyResult<String> {
        let published = published.map_err(errors::of_publish)?;
        let versioned = published.versioned().to_string();
        let has_room = match &mut *self.state() {
            State::Filling(store) => {
                store.add(published);
                true
            }
            _ => false,
        };
        has_room.then_some(versioned).ok_or_else(|| errors::closed(WHAT))
    }
}

impl Drop for Shelf {
    fn drop(&mut self) {
        self.is_stopped.store(true, Ordering::Relaxed);
    }
}

/// The thread that answers.
struct Server {
    router: FaceUri,
    prefixes: Prefixes,
    store: ObjectStore,
    is_stopped: Arc<AtomicBool>,
    lost: Arc<Mutex<Vec<String>>>,
}

impl Server {
    fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }

    fn run(mut self, mut client: Client) {
        loop {
            let (is_stopped, lost) = (self.is_stopped.clone(), self.lost.clone());
            let mut go_on = |losses: Vec<ServeProblem>| {
                let told = losses.iter().map(ToString::to_string);
                lost.lock().unwrap_or_else(PoisonError::into_inner).extend(told);
                !is_stopped.load(Ordering::Relaxed)
            };
            // `serve` succeeds when `go_on` stops it, and fails when the connection breaks.
            if serve(&mut client, &mut self.store, &mut go_on).is_ok() {
                return self.prefixes.unregister(&mut client);
            }
            match self.reconnect() {
                Some(connected) => client = connected,
                None => return,
            }
        }
    }

    fn reconnect(&self) -> Option<Client> {
        loop {
            let until = Instant::now() + RECONNECT_PAUSE;
            while Instant::now() < until {
                if self.is_stopped() {
                    return None;
                }
                std::thread::sleep(STOP_PAUSE);
            }
            let Ok(mut client) = Client::connect(&self.router) else { continue };
            if self.prefixes.register(&mut client).is_ok() {
                return Some(client);
            }
        }
    }
}
