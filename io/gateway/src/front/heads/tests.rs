use weir_face::FaceUri;
use weir_io_fixture::router::TestRouter;
use weir_security::{DigestSigner, DigestVerifier, Verifier};
use weir_socket::{Identity, Producer, PublishOptions, Session, SessionConfig, SlicedObject};

use super::*;

const TIMEOUT: Duration = Duration::from_secs(10);

/// A router, and what a front knows.
struct Network {
    heads: Arc<Heads>,
    session: Session,
    router: TestRouter,
}

impl Network {
    async fn start(timeout: Duration) -> Self {
        let router = TestRouter::start();
        let uri = FaceUri::Unix(router.path.clone());
        let session = tokio::task::spawn_blocking(move || {
            let config =
                SessionConfig { router: Some(uri), reports_sources: true, ..Default::default() };
            Session::with(config).unwrap()
        });
        let session = session.await.unwrap();
        let trust: Arc<dyn Verifier> = Arc::new(DigestVerifier);
        let base = Consumer::bind(&session, Name::new(), trust.clone());
        let consumers = Consumers::new(base, Vec::new(), move |_| trust.clone());
        let heads = Arc::new(Heads::new(Arc::new(consumers), timeout));
        Self { heads, session, router }
    }

    /// Publishes an object with this head. Stores count it as fresh for a moment.
    async fn publish(&self, object: &Name, head: &ResponseHead) -> Producer {
        self.publish_with(object, Some(head.encode())).await
    }

    async fn publish_with(&self, object: &Name, head: Option<Vec<u8>>) -> Producer {
        let (session, object) = (self.session.clone(), object.clone());
        let publish = move || {
            let identity = Identity::new(DigestSigner);
            let producer = Producer::bind(&session, object.clone(), identity.clone()).unwrap();
            let versioned = object.clone().append_version(1).clone();
            let options = PublishOptions::default();
            let object = SlicedObject::new(versioned, 1, &identity, &options).unwrap();
            let mut packets = object.sign(0, b"a").unwrap().packets;
            packets.push(object.sign_metadata(1, 1, head).unwrap());
            producer.publish_packets_async(packets).unwrap().wait().unwrap();
            producer
        };
        tokio::task::spawn_blocking(publish).await.unwrap()
    }

    fn slot(&self, object: &Name) -> Arc<HeadSlot> {
        self.heads.slots().get_or_insert(object.clone(), Arc::default).clone()
    }

    /// Finds an object in a task of its own. When this returns, it waits for the head.
    async fn find_later(
        &self,
        object: &Name,
        slot: &Arc<HeadSlot>,
    ) -> tokio::task::JoinHandle<Result<HeadSource, SocketError>> {
        let (heads, object, users) = (self.heads.clone(), object.clone(), Arc::strong_count(slot));
        let find = async move { heads.find(&object, false).await.map(|(_, source)| source) };
        let task = tokio::spawn(find);
        while Arc::strong_count(slot) == users {
            tokio::task::yield_now().await;
        }
        task
    }
}

fn head(received_ms: u64, lifetime_ms: u64, cache_control: &'static str) -> ResponseHead {
    let mut head = ResponseHead::new(StatusCode::OK, received_ms);
    head.lifetime_ms = lifetime_ms;
    head.fields.insert(header::CACHE_CONTROL, HeaderValue::from_static(cache_control));
    head
}

fn version(object: &Name, head: &ResponseHead) -> Arc<FoundVersion> {
    let mut metadata = Metadata::new(object.clone().append_version(1).clone());
    metadata.http_head = Some(head.encode());
    Arc::new(FoundVersion::new(metadata, Instant::now()).unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_requests_share_failure() {
    let network = Network::start(TIMEOUT).await;
    let object: Name = "/p/a".parse().unwrap();
    let slot = network.slot(&object);
    let mut requesting = slot.requesting.clone().lock_owned().await;
    let waiting = network.find_later(&object, &slot).await;
    let now = Instant::now();
    let error = SocketError::NotFound(object.clone());
    *requesting = Some(HeadFailure { requested: now, ended: now, error: error.clone() });
    drop(requesting);
    assert_eq!(waiting.await.unwrap(), Err(error));
    // A later request asks the network, which has no route.
    let later = network.heads.find(&object, false).await.map(drop);
    assert_eq!(later, Err(SocketError::NoRoute(object)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_that_must_ask_ignores_earlier_failure() {
    let now = Instant::now();
    let later = now + Duration::from_secs(1);
    let error = SocketError::Closed;
    let failure = HeadFailure { requested: now, ended: now + Duration::from_secs(2), error };
    assert!(failure.answers(later, false) && !failure.answers(later, true));
    assert!(failure.answers(now, true));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wait_for_others_is_bounded() {
    let network = Network::start(Duration::from_millis(50)).await;
    let object: Name = "/p/a".parse().unwrap();
    let slot = network.slot(&object);
    let _requesting = slot.requesting.clone().lock_owned().await;
    let found = tokio::time::timeout(TIMEOUT, network.heads.find(&object, false)).await;
    assert_eq!(found.unwrap().map(drop), Err(SocketError::TimedOut(object)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn validates_in_one_task() {
    let network = Network::start(TIMEOUT).await;
    let object: Name = "/p/a".parse().unwrap();
    let slot = network.slot(&object);
    let stale = head(unix_time_ms() - 2000, 1000, "max-age=1, stale-while-revalidate=3600");
    slot.update(version(&object, &stale));
    let requesting = slot.requesting.clone().lock_owned().await;
    let users = Arc::strong_count(&slot);
    for _ in 0..10 {
        let found = network.heads.find(&object, false).await;
        assert_eq!(found.unwrap().1, HeadSource::Memory);
    }
    assert_eq!(Arc::strong_count(&slot), users);
    drop(requesting);
    assert_eq!(network.heads.find(&object, false).await.unwrap().1, HeadSource::Memory);
    // Now one task asks the network, which has no route.
    let asked = async {
        while slot.requesting.lock().await.is_none() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(TIMEOUT, asked).await.unwrap();
}

#[test]
fn must_revalidate_overrules_background_validation() {
    let object: Name = "/p/a".parse().unwrap();
    for (cache_control, is_used) in [
        ("max-age=1, stale-while-revalidate=60", true),
        ("max-age=1, stale-while-revalidate=60, must-revalidate", false),
        ("max-age=1, stale-while-revalidate=1", false),
    ] {
        let stale = version(&object, &head(10_000, 1000, cache_control));
        assert_eq!(stale.may_be_used_while_validated(13_000), is_used, "{cache_control}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn origin_with_late_clock_is_read() {
    let network = Network::start(TIMEOUT).await;
    let object: Name = "/p/a".parse().unwrap();
    let late_ms = unix_time_ms() - 3_600_000;
    for cache_control in ["no-cache", "max-age=0, must-revalidate", "s-maxage=0"] {
        let _producer = network.publish(&object, &head(late_ms, 0, cache_control)).await;
        let found = network.heads.find(&object, false).await;
        assert!(found.is_ok(), "{cache_control}: {:?}", found.err());
        network.heads.forget(&object);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stale_copy_of_store_is_refused() {
    let network = Network::start(TIMEOUT).await;
    let object: Name = "/p/a".parse().unwrap();
    // By its clock, it is fresh.
    let early_ms = unix_time_ms() + 3_600_000;
    let producer = network.publish(&object, &head(early_ms, 0, "must-revalidate")).await;
    assert!(network.heads.find(&object, false).await.is_ok());
    drop(producer);
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(network.heads.find(&object, false).await.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forgets_what_an_upload_changes() {
    let network = Network::start(TIMEOUT).await;
    let object: Name = "/p/a/b".parse().unwrap();
    let changed = ["/p/a/b", "/p/a/b/32=%40x=1", "/p/a/b/32=%3Fq", "/p/a", "/p/a/..."];
    let others = ["/p/a/c", "/p/a/b/c", "/p/a/c/32=%40x=1", "/p"];
    for name in changed.iter().chain(&others) {
        network.slot(&name.parse().unwrap());
    }
    network.heads.forget(&object);
    let known: Vec<String> =
        network.heads.slots().iter().map(|(name, _)| name.to_string()).collect();
    assert_eq!(known.len(), others.len(), "{known:?}");
    let with_query: Name = "/p/a/c/32=%3Fq".parse().unwrap();
    network.slot(&"/p/a".parse().unwrap());
    network.heads.forget(&with_query);
    assert_eq!(network.heads.known(), others.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn version_in_url_states_its_source() {
    let network = Network::start(TIMEOUT).await;
    let object: Name = "/p/a".parse().unwrap();
    let fresh = head(unix_time_ms(), 60_000, "max-age=60");
    let _producer = network.publish(&object, &fresh).await;
    let (_, source) = network.heads.find_version(&object, 1).await.unwrap();
    assert_ne!(source, HeadSource::Memory);
    let (_, source) = network.heads.find_version(&object, 1).await.unwrap();
    assert_eq!(source, HeadSource::Memory);
}

/// The session's face at the new router is a new one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn store_of_restarted_router_is_a_hit() {
    let mut network = Network::start(TIMEOUT).await;
    tokio::task::block_in_place(|| network.router.restart());
    expect_hit_of_local_store(&network).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answer_of_local_store_is_a_hit() {
    expect_hit_of_local_store(&Network::start(TIMEOUT).await).await;
}

async fn expect_hit_of_local_store(network: &Network) {
    let object: Name = "/p/a".parse().unwrap();
    // The server responded long ago, so only the face shows where the packet came from.
    let old = head(unix_time_ms() - 60_000, 0, "max-age=0");
    let producer = network.publish(&object, &old).await;
    let (_, source) = network.heads.find(&object, false).await.unwrap();
    assert_eq!(source, HeadSource::Network(ForwardReason::Miss));
    drop(producer);
    let (_, source) = network.heads.find(&object, false).await.unwrap();
    assert_eq!(source, HeadSource::Store);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn source_states_why_it_was_asked() {
    let network = Network::start(TIMEOUT).await;
    let object: Name = "/p/a".parse().unwrap();
    let slot = network.slot(&object);
    let stale = head(unix_time_ms() - 2000, 1000, "max-age=1");
    slot.update(version(&object, &stale));
    let later = head(unix_time_ms() + 60_000, 0, "no-cache");
    let _producer = network.publish(&object, &later).await;
    let (_, source) = network.heads.find(&object, false).await.unwrap();
    assert_eq!(source, HeadSource::Origin(ForwardReason::Stale));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_of_other_applications_have_no_origin() {
    let network = Network::start(TIMEOUT).await;
    let object: Name = "/p/a".parse().unwrap();
    let _producer = network.publish_with(&object, None).await;
    let (_, source) = network.heads.find(&object, false).await.unwrap();
    assert_eq!(source, HeadSource::Network(ForwardReason::Miss));
}
