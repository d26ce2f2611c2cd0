//! What all tasks of an origin share, and the publication of slices.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{JoinError, spawn_blocking};
use weir_base::Packet;
use weir_security::sign_data;
use weir_socket::{Identity, Producer, PublishOptions, Request, SignedSlice, SlicedObject};
use weir_wire::{Data, InterestView, Name};

use super::playlist::LiveFolders;
use super::response::{Counters, Problem};
use super::upstream::Upstream;
use super::version::Version;
use crate::config::OriginConfig;

/// Bounds how many slices are hashed at the same time.
pub(super) struct Processors(Arc<Semaphore>);

/// Permits to hash one slice.
pub(super) struct Processor(OwnedSemaphorePermit);

impl Processors {
    fn new(count: usize) -> Self {
        Self(Arc::new(Semaphore::new(count)))
    }

    pub(super) async fn acquire(&self) -> Processor {
        Processor(self.0.clone().acquire_owned().await.expect("never closed"))
    }
}

impl Processor {
    /// Runs what would block a task for long.
    pub(super) async fn run<T: Send + 'static>(
        self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, JoinError> {
        let permit = self.0;
        // The work keeps the permit, even if the task that waits for it is dropped.
        let with_permit = move || {
            let _permit = permit;
            work()
        };
        spawn_blocking(with_permit).await
    }
}

/// What all tasks of an origin share.
pub(super) struct Context {
    pub(super) upstream: Upstream,
    pub(super) producer: Producer,
    pub(super) counters: Arc<Counters>,
    pub(super) config: OriginConfig,
    pub(super) playlists: LiveFolders,
    pub(super) processors: Processors,
    identity: Identity,
    options: PublishOptions,
}

impl Context {
    pub(super) fn new(
        upstream: Upstream,
        producer: Producer,
        identity: Identity,
        options: PublishOptions,
        config: OriginConfig,
    ) -> Self {
        let counters = upstream.counters();
        let processors = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        Self {
            upstream,
            producer,
            counters,
            config,
            playlists: LiveFolders::new(),
            processors: Processors::new(processors),
            identity,
            options,
        }
    }

    pub(super) fn count(&self, counter: impl Fn(&Counters) -> &AtomicU64) {
        Counters::add(counter(&self.counters), 1);
    }

    /// Answers an Interest, but does not store the answer.
    pub(super) fn answer(&self, request: &Request, content: &[u8]) {
        let Ok(interest) = InterestView::decode(request.interest()) else { return };
        let data = Data::new(interest.name.to_name()).content(content);
        let packet = sign_data(&data, &*self.identity.signer).map(Packet::from);
        let sent = packet.map(|packet| self.producer.answer_waiting(packet));
        if !matches!(sent, Ok(Ok(()))) {
            tracing::warn!("the answer to an upload is not sent");
        }
    }

    /// A version of an object.
    pub(super) fn object(
        &self,
        name: &Name,
        number: u64,
        size: u64,
    ) -> Result<SlicedObject, Problem> {
        let versioned = name.clone().append_version(number).clone();
        SlicedObject::new(versioned, size, &self.identity, &self.options)
            .map_err(|error| Problem::bad_gateway(format!("The content cannot be named: {error}.")))
    }

    /// Bytes of the first request to the server: a slice of an object with a name of usual length.
    pub(super) fn first_bytes(&self) -> u64 {
        SlicedObject::usual_slice_bytes(&self.options)
    }

    /// Publishes the complete slices at the start of a version.
    pub(super) async fn publish_slices(
        &self,
        version: &Arc<Version>,
        mut first: Bytes,
    ) -> Result<(), Problem> {
        for slice in 0..version.object.slices() {
            let slice_bytes = version.slice_bytes(slice);
            if first.len() < slice_bytes {
                break;
            }
            let processor = self.processors.acquire().await;
            let content = first.split_to(slice_bytes);
            self.publish_slice(processor, version, slice, content).await?;
        }
        Ok(())
    }

    /// Signs and publishes a slice. Returns when the producer answers with it.
    pub(super) async fn publish_slice(
        &self,
        processor: Processor,
        version: &Arc<Version>,
        slice: u64,
        content: Bytes,
    ) -> Result<(), Problem> {
        let fails = |error: &dyn std::fmt::Display| {
            Problem::bad_gateway(format!("The gateway cannot publish the content: {error}."))
        };
        let signing = version.clone();
        let sign = processor.run(move || signing.object.sign(slice, &content));
        let signed = sign.await.map_err(|error| fails(&error))?.map_err(|error| fails(&error))?;
        let SignedSlice { packets, digest } = signed;
        if !version.is_same_slice(slice, digest) {
            return Err(Problem::changed());
        }
        let published = self.producer.publish_packets_async(packets);
        published.map_err(|error| fails(&error))?.await.map_err(|error| fails(&error))?;
        self.count(|counters| &counters.slices);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn hashes_as_many_slices_as_processors() {
        let (processors, running) = (Processors::new(2), Arc::new(AtomicUsize::new(0)));
        let work = || async {
            let (processor, running) = (processors.acquire().await, running.clone());
            let hash = move || {
                let now = running.fetch_add(1, Ordering::SeqCst) + 1;
                std::thread::sleep(std::time::Duration::from_millis(5));
                running.fetch_sub(1, Ordering::SeqCst);
                now
            };
            processor.run(hash).await.unwrap()
        };
        let most = futures_util::future::join_all((0..20).map(|_| work())).await;
        // Without the bound, several more of the twenty overlap.
        assert!(most.into_iter().all(|running| running <= 2));
    }
}
