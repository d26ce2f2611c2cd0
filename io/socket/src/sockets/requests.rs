//! Requests for unpublished names. The application receives them, and may publish.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{self, Poll};
use std::time::{Duration, Instant};

use weir_base::Packet;
use weir_hicn::RequestPayload;
use weir_transport::{METADATA_KEYWORD, NameMapping};
use weir_wire::{InterestView, Name, NameView};

use super::SocketError;
use super::offer::Offer;

/// The names of a producer that receives requests.
pub(crate) struct ServedNames {
    /// The prefix as the application sees it.
    pub(crate) prefix: Name,
    /// The prefix in the network.
    pub(crate) network_prefix: Name,
    pub(crate) mapping: NameMapping,
}

/// An Interest that waits for unpublished data.
#[derive(Clone, Debug)]
pub struct Request {
    name: Name,
    /// The prefix of the producer that received it, as the application sees it.
    own_prefix: Name,
    /// Parameters are in the payload of hICN.
    is_mapped: bool,
    interest: Packet,
}

impl Request {
    /// A request from an Interest TLV. `known` is the name of the object, if the producer knows it
    /// from an earlier publication.
    pub(crate) fn new(
        served: &ServedNames,
        interest: Packet,
        known: impl FnOnce(NameView<'_>) -> Option<Name>,
    ) -> Option<Self> {
        let view = InterestView::decode(&interest).ok()?;
        let ServedNames { prefix, network_prefix, mapping } = served;
        let carried = mapping.requested(&view).ok()?.map(|request| request.name);
        let carried = carried.filter(|name| prefix.as_view().is_prefix_of(*name));
        let name = match carried.map(NameView::to_name).or_else(|| known(view.name)) {
            Some(name) => name,
            None => object_of(network_prefix, view.name),
        };
        let is_mapped = *mapping != NameMapping::Identity;
        Some(Self { name, own_prefix: prefix.clone(), is_mapped, interest })
    }

    /// The name to publish: that of the Interest without the components that the transport adds
    /// (metadata keyword, version, segment). Of a mapped name, the application's name that the
    /// Interest carries. If it carries none, and the object was not published before, the name in
    /// the network.
    pub fn name(&self) -> &Name {
        &self.name
    }

    /// The Interest, a complete TLV, perhaps with parameters for the application.
    pub fn interest(&self) -> &Packet {
        &self.interest
    }

    pub(crate) fn interest_name(&self) -> Name {
        InterestView::decode(&self.interest).expect("decoded on arrival").name.to_name()
    }

    /// The offer in the Interest, if it has parameters.
    ///
    /// # Errors
    /// [`SocketError::Invalid`]: the parameters are no offer, or offer an object below this
    /// producer's own prefix, so that it would wait for itself.
    pub fn offer(&self) -> Option<Result<Offer, SocketError>> {
        let offer = Offer::decode(self.parameters()?.to_vec());
        Some(offer.and_then(|offer| {
            if !self.own_prefix.as_view().is_prefix_of(offer.name().as_view()) {
                return Ok(offer);
            }
            Err(SocketError::Invalid(format!(
                "the offer is useless: {} is below {}, which this producer serves",
                offer.name(),
                self.own_prefix
            )))
        }))
    }

    /// The Interest's application parameters.
    pub fn parameters(&self) -> Option<&[u8]> {
        let interest = InterestView::decode(&self.interest).ok()?;
        if self.is_mapped {
            RequestPayload::of(&interest).ok()??.parameters
        } else {
            interest.application_parameters()
        }
    }
}

/// The name of the object that an Interest requests.
fn object_of(prefix: &Name, asked: NameView<'_>) -> Name {
    let own = prefix.as_view().component_count();
    let is_added = |part: weir_wire::ComponentView<'_>| {
        part.is_keyword(METADATA_KEYWORD)
            || part.as_version().is_some()
            || part.as_segment().is_some()
            || part.is_implicit_digest()
    };
    let count = asked.components().skip(own).position(is_added);
    match count {
        Some(count) => asked.prefix(own + count).to_name(),
        None => asked.to_name(),
    }
}

/// Upper bound of waiting tasks. The latest ones are kept.
const TASKS_MAX: usize = 1024;

#[derive(Default)]
struct RequestsState {
    waiting: VecDeque<Request>,
    tasks: Vec<task::Waker>,
    is_closed: bool,
}

/// Requests that the application has not taken yet; the latest ones.
pub(crate) struct RequestQueue {
    state: Mutex<RequestsState>,
    changed: Condvar,
    max: usize,
}

impl RequestQueue {
    pub(crate) fn new(max: usize) -> Self {
        Self { state: Mutex::default(), changed: Condvar::new(), max }
    }

    fn state(&self) -> MutexGuard<'_, RequestsState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut RequestsState)) {
        let mut state = self.state();
        change(&mut state);
        let tasks = std::mem::take(&mut state.tasks);
        drop(state);
        self.changed.notify_one();
        // Some tasks may no longer wait, and the queue cannot know which. So it wakes all.
        tasks.into_iter().for_each(task::Waker::wake);
    }

    pub(crate) fn push(&self, request: Request) {
        self.change(|state| {
            if state.waiting.len() >= self.max {
                // The producer keeps only `max` Interests waiting, so the oldest one is stale.
                state.waiting.pop_front();
            }
            state.waiting.push_back(request);
        });
    }

    pub(crate) fn close(&self) {
        self.change(|state| state.is_closed = true);
        self.changed.notify_all();
    }

    /// The next request; `None` if none arrives in time.
    pub(crate) fn recv(&self, wait: Option<Duration>) -> Result<Option<Request>, SocketError> {
        let until = wait.and_then(|wait| Instant::now().checked_add(wait));
        let mut state = self.state();
        loop {
            if let Some(request) = state.waiting.pop_front() {
                return Ok(Some(request));
            }
            if state.is_closed {
                return Err(SocketError::Closed);
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            state = match left {
                Some(Duration::ZERO) => return Ok(None),
                Some(left) => {
                    let waited = self.changed.wait_timeout(state, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    pub(crate) fn poll(
        &self,
        context: &mut task::Context<'_>,
    ) -> Poll<Result<Request, SocketError>> {
        let mut state = self.state();
        match state.waiting.pop_front() {
            Some(request) => Poll::Ready(Ok(request)),
            None if state.is_closed => Poll::Ready(Err(SocketError::Closed)),
            None => {
                let task = context.waker();
                if !state.tasks.iter().any(|other| other.will_wake(task)) {
                    if state.tasks.len() >= TASKS_MAX {
                        state.tasks.remove(0);
                    }
                    state.tasks.push(task.clone());
                }
                Poll::Pending
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use weir_wire::Interest;

    use super::*;

    fn request(uri: &str) -> Request {
        let interest = Interest::new(uri.parse().unwrap()).encode();
        let prefix: Name = "/p/54=%01".parse().unwrap();
        let (network_prefix, mapping) = (prefix.clone(), NameMapping::Identity);
        let served = ServedNames { prefix, network_prefix, mapping };
        Request::new(&served, interest.into(), |_| None).unwrap()
    }

    #[test]
    fn strips_transport_components() {
        for (asked, name) in [
            ("/p/54=%01/a/b", "/p/54=%01/a/b"),
            ("/p/54=%01/a/b/32=metadata", "/p/54=%01/a/b"),
            ("/p/54=%01/a/54=%02/50=%00", "/p/54=%01/a"),
            ("/p/54=%01/a/54=%02/32=manifest/50=%00", "/p/54=%01/a"),
            ("/p/54=%01/50=%00", "/p/54=%01"),
        ] {
            assert_eq!(*request(asked).name(), name.parse().unwrap(), "{asked}");
        }
    }

    #[test]
    fn keeps_latest_until_closed() {
        let requests = RequestQueue::new(2);
        for uri in ["/p/54=%01/a", "/p/54=%01/b", "/p/54=%01/c"] {
            requests.push(request(uri));
        }
        let name = |found: Result<Option<Request>, _>| found.unwrap().unwrap().name().to_string();
        assert!(name(requests.recv(None)).ends_with("/b"));
        assert!(name(requests.recv(None)).ends_with("/c"));
        assert!(requests.recv(Some(Duration::ZERO)).unwrap().is_none());
        requests.close();
        assert!(matches!(requests.recv(None), Err(SocketError::Closed)));
    }

    struct WakeCounter(std::sync::atomic::AtomicU32);

    impl task::Wake for WakeCounter {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
    }

    /// A wake-up must not go to a task that no longer waits.
    #[test]
    fn wakes_all_waiting_tasks() {
        let requests = RequestQueue::new(2);
        let tasks = [0; 2].map(|count| std::sync::Arc::new(WakeCounter(count.into())));
        for task in &tasks {
            let waker = task::Waker::from(task.clone());
            for _ in 0..2 {
                assert!(requests.poll(&mut task::Context::from_waker(&waker)).is_pending());
            }
        }
        requests.push(request("/p/54=%01/a"));
        for task in tasks {
            assert_eq!(task.0.load(std::sync::atomic::Ordering::Relaxed), 1);
        }
    }
}
