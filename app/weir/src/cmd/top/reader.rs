//! The thread that reads a router again and again, so that the screen does not wait for it.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use weir_face::FaceUri;
use weir_manage::{CsInfo, FaceStatus, GeneralStatus};
use weir_store::{ObjectList, ObjectOrder, ObjectQuery};
use weir_wire::Name;

use crate::cmd::cs::store_info;
use crate::management_client::{ManagementClient, MissingDataset};
use crate::transfer::cannot_connect;

/// Time between two readings.
const INTERVAL: Duration = Duration::from_secs(1);
/// The router spends at most one part in this number of its time on lists of objects.
const LIST_SHARE: u32 = 20;
/// Time until a list that the router refused is requested again.
const LIST_RETRY: Duration = Duration::from_secs(5);
/// Objects requested. More than fit on a screen, because the router knows totals, and the screen
/// sorts by rate.
const OBJECTS_MAX: u64 = 500;

/// A dataset and when it was read, on a clock that starts with the program.
#[derive(Clone, Debug)]
pub(super) struct Timed<T> {
    pub(super) at: Duration,
    pub(super) value: T,
}

/// What a router reports at one time.
#[derive(Clone, Debug)]
pub(super) struct Reading {
    pub(super) general: Timed<GeneralStatus>,
    pub(super) faces: Timed<Vec<FaceStatus>>,
    /// `None` if the router has no such dataset.
    pub(super) store: Option<Timed<CsInfo>>,
    /// `None` if the router has no such dataset.
    pub(super) objects: Option<ObjectLists>,
}

/// The latest list of objects and the one before. Both may be older than the rest of a reading.
#[derive(Clone, Debug)]
pub(super) struct ObjectLists {
    pub(super) before: Option<Arc<Timed<ObjectList>>>,
    pub(super) latest: Arc<Timed<ObjectList>>,
}

/// A reading, or why there is none.
pub(super) type Answer = Result<Box<Reading>, String>;

/// Starts the thread. It ends when the sender of orders is dropped, and reads at once after each
/// order.
pub(super) fn start(
    client: ManagementClient,
    uri: FaceUri,
    order: ObjectOrder,
) -> anyhow::Result<(Sender<ObjectOrder>, Receiver<Answer>)> {
    let (orders, wanted) = channel();
    let (sender, answers) = channel();
    let now = Instant::now();
    let mut reader = Reader {
        uri,
        started: now,
        client: Some(client),
        order,
        objects: None,
        next_list: Some(now),
    };
    let thread = thread::Builder::new().name("weir-top-reader".to_owned());
    let spawned = thread.spawn(move || {
        while sender.send(reader.answer()).is_ok() {
            match wanted.recv_timeout(INTERVAL) {
                // Several keys are one new list.
                Ok(order) => reader.set_order(wanted.try_iter().last().unwrap_or(order)),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
    });
    spawned.context("cannot start a thread")?;
    Ok((orders, answers))
}

struct Reader {
    uri: FaceUri,
    started: Instant,
    /// `None` after an error, until the next attempt.
    client: Option<ManagementClient>,
    order: ObjectOrder,
    objects: Option<ObjectLists>,
    /// `None` if this router does not answer.
    next_list: Option<Instant>,
}

impl Reader {
    fn set_order(&mut self, order: ObjectOrder) {
        if self.order != order {
            self.order = order;
            self.next_list = self.next_list.map(|_| Instant::now());
        }
    }

    fn answer(&mut self) -> Answer {
        let reading = self.connected().and_then(|mut client| {
            let reading = self.read(&mut client)?;
            self.client = Some(client);
            Ok(reading)
        });
        reading.map(Box::new).map_err(|error| format!("{error:#}"))
    }

    fn connected(&mut self) -> anyhow::Result<ManagementClient> {
        if let Some(client) = self.client.take() {
            return Ok(client);
        }
        // The router may have restarted, and its counters with it.
        (self.objects, self.next_list) = (None, Some(Instant::now()));
        ManagementClient::connect_to(&self.uri).map_err(cannot_connect)
    }

    fn read(&mut self, client: &mut ManagementClient) -> anyhow::Result<Reading> {
        let general = client.general_status()?;
        let general = self.timed(general);
        let faces = client.dataset("faces/list")?;
        let faces = self.timed(faces);
        let store = optional(store_info(client))?.map(|store| self.timed(store));
        if self.next_list.is_some_and(|next| Instant::now() >= next) {
            self.read_objects(client)?;
        }
        Ok(Reading { general, faces, store, objects: self.objects.clone() })
    }

    fn read_objects(&mut self, client: &mut ManagementClient) -> anyhow::Result<()> {
        let begun = Instant::now();
        let query = ObjectQuery { prefix: Name::default(), order: self.order, limit: OBJECTS_MAX };
        // Nothing here needs the age of an object.
        let list = client.objects(&query, weir_base::Instant::ZERO);
        let pause = match list.map_err(anyhow::Error::downcast::<MissingDataset>) {
            Ok(list) => {
                let before = self.objects.take().map(|lists| lists.latest);
                self.objects = Some(ObjectLists { before, latest: Arc::new(self.timed(list)) });
                Some(begun.elapsed() * LIST_SHARE)
            }
            Err(Ok(error)) => error.is_refused.then_some(LIST_RETRY),
            Err(Err(error)) => return Err(error),
        };
        self.next_list = pause.map(|pause| Instant::now() + pause);
        Ok(())
    }

    fn timed<T>(&self, value: T) -> Timed<T> {
        Timed { at: self.started.elapsed(), value }
    }
}

/// `None` for a dataset that the router lacks or refuses.
fn optional<T>(result: anyhow::Result<T>) -> anyhow::Result<Option<T>> {
    match result.map_err(anyhow::Error::downcast::<MissingDataset>) {
        Ok(value) => Ok(Some(value)),
        Err(Ok(_)) => Ok(None),
        Err(Err(error)) => Err(error),
    }
}
