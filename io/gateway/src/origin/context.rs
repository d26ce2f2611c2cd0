//! What all tasks of an origin share, and the publication of slices.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use bytes::Bytes;
use weir_base::Packet;
use weir_security::sign_data;
use weir_socket::{Identity, Producer, PublishOptions, Request, SignedSlice, SlicedObject};
use weir_wire::{Data, InterestView, Name};

use super::playlist::LiveFolders;
use super::response::{Counters, Problem};
use super::upstream::Upstream;
use super::version::Version;
use crate::config::OriginConfig;

/// What all tasks of an origin share.
pub(super) struct Context {
    pub(super) upstream: Upstream,
    pub(super) producer: Producer,
    pub(super) counters: Arc<Counters>,
    pub(super) config: OriginConfig,
    pub(super) playlists: LiveFolders,
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
        Self {
            upstream,
            producer,
            counters,
            config,
            playlists: LiveFolders::new(),
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
            self.publish_slice(version, slice, first.split_to(slice_bytes)).await?;
        }
        Ok(())
    }

    /// Signs and publishes a slice. Returns when the producer answers with it.
    pub(super) async fn publish_slice(
        &self,
        version: &Arc<Version>,
        slice: u64,
        content: Bytes,
    ) -> Result<(), Problem> {
        let fails = |error: &dyn std::fmt::Display| {
            Problem::bad_gateway(format!("The gateway cannot publish the content: {error}."))
        };
        let signing = version.clone();
        // It hashes megabytes.
        let sign = tokio::task::spawn_blocking(move || signing.object.sign(slice, &content));
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
