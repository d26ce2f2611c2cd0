//! Samples, and the checks that look at everything.

use super::queue::Due;
use super::{Network, NodeKind};
use crate::check::{Broken, bounds};
use weir_plan::event::{EventKind, Observer, Queue, RouterSample};

impl Network {
    /// Samples everything and schedules the next time.
    pub(super) fn sample(&mut self, observer: &mut dyn Observer) -> Result<(), Broken> {
        self.check_bounds()?;
        for node in 0..self.nodes.len() as u32 {
            self.sample_node(node, observer);
        }
        for end in 0..self.ends.len() as u32 {
            self.sample_link(end, observer);
        }
        let next_ns = self.now_ns.saturating_add(self.sample_ns);
        if next_ns <= self.end_ns {
            let moment = self.queue.moment(next_ns, Due::Sample);
            self.queue.push(moment);
        }
        Ok(())
    }

    fn sample_node(&mut self, node: u32, observer: &mut dyn Observer) {
        let now = self.now();
        match &mut self.nodes[node as usize].kind {
            NodeKind::App(app) => {
                for kind in app.sample() {
                    self.emit(node, kind, observer);
                }
            }
            NodeKind::Router(router) => {
                let mut sample = router.counters(now);
                let stages = router.stages.iter().flat_map(|stages| stages.lengths());
                let stages = stages.map(|(queue, packets, _)| (queue, packets));
                let lengths: Vec<_> = stages.chain(router.disk_queues()).collect();
                for (queue, packets) in lengths {
                    self.emit(node, EventKind::QueueLength { queue, packets }, observer);
                }
                self.add_faces(node, &mut sample);
                self.emit(node, EventKind::RouterSample(Box::new(sample)), observer);
            }
        }
    }

    /// What the faces of a router have counted, and what waits at them.
    fn add_faces(&mut self, node: u32, sample: &mut RouterSample) {
        let now = self.now();
        for &end in &self.nodes[node as usize].ends {
            let end = &mut self.ends[end as usize];
            sample.egress_bytes += end.link.queue_bytes() + end.model.queue_bytes(now);
            let totals = end.totals();
            sample.in_bytes += totals.in_bytes;
            sample.out_bytes += totals.out_bytes;
            sample.dropped += totals.drops;
        }
    }

    fn sample_link(&mut self, end_index: u32, observer: &mut dyn Observer) {
        let now = self.now();
        let end = &mut self.ends[end_index as usize];
        let node = end.node;
        let link = end_index / 2;
        let packets = end.model.queue_packets(now);
        let waiting_bytes = end.link.queue_bytes() + end.model.queue_bytes(now);
        let stats = end.model.stats();
        let sample = EventKind::LinkSample {
            link,
            frames: stats.delivered_frames,
            bytes: stats.delivered_bytes,
            dropped: stats.dropped_frames(),
            waiting_bytes,
        };
        self.emit(node, EventKind::QueueLength { queue: Queue::Link(link), packets }, observer);
        self.emit(node, sample, observer);
    }

    /// Tables and queues are within their bounds.
    pub(super) fn check_bounds(&mut self) -> Result<(), Broken> {
        for (node, state) in self.nodes.iter_mut().enumerate() {
            if let NodeKind::Router(router) = &mut state.kind {
                router.check().map_err(|what| Broken::invariant(node as u32, what))?;
            }
        }
        let now = self.now();
        for end in &mut self.ends {
            let (bytes, packets) = (end.model.queue_bytes(now), end.model.queue_packets(now));
            let config = end.model.config();
            bounds::queue("the queue of a link, in octets,", bytes, config.queue_bytes_max)
                .and_then(|()| {
                    let packets_max = config.queue_packets_max.into();
                    bounds::queue("the queue of a link", packets.into(), packets_max)
                })
                .map_err(|what| Broken::invariant(end.node, what))?;
        }
        Ok(())
    }

    /// Every PIT is empty, no disk is busy, and no record is lost.
    pub(super) fn check_drained(&mut self) -> Result<(), Broken> {
        let now = self.now();
        for (node, state) in self.nodes.iter().enumerate() {
            if let NodeKind::Router(router) = &state.kind {
                let (are_records_kept, library) = (self.are_records_kept, &mut self.library);
                router
                    .check_drained()
                    .and_then(|()| router.check_records(now, are_records_kept, library))
                    .map_err(|what| Broken::invariant(node as u32, what))?;
            }
        }
        Ok(())
    }
}
