//! Measures: values computed from the events of a run, or reported by a trial.

use crate::Arm;

macro_rules! measures {
    ($(
        $(#[doc = $doc:literal])*
        $variant:ident = $word:literal, $label:literal, $unit:literal;
    )*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Measure {
            $($(#[doc = $doc])* $variant,)*
        }

        impl Measure {
            /// All measures.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The word used in files.
            #[must_use]
            pub const fn word(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }

            /// The default label in figures.
            #[must_use]
            pub const fn label(self) -> &'static str {
                match self { $(Self::$variant => $label,)* }
            }

            #[must_use]
            pub const fn unit(self) -> &'static str {
                match self { $(Self::$variant => $unit,)* }
            }
        }
    };
}

measures! {
    /// Content bytes that consumers received, over time.
    Goodput = "goodput", "Goodput", "bit/s";
    /// Bytes of Data packets that consumers received, over time.
    Throughput = "throughput", "Throughput", "bit/s";
    /// Data that consumers received, over time.
    DataRate = "data-rate", "Data received", "packets/s";
    /// Interests that consumers sent, over time.
    InterestRate = "interest-rate", "Interests sent", "packets/s";
    /// Time from the last Interest for a segment to its Data.
    RoundTripTime = "rtt", "Round-trip time", "s";
    /// Finished Interests that got a Nack or no answer, as a fraction of all finished ones.
    Loss = "loss", "Interests lost", "%";
    /// Finished Interests that got a Nack, as a fraction of all finished ones.
    NackShare = "nack-share", "Interests refused", "%";
    /// Interests for segments requested before, as a fraction of those sent.
    RepeatedShare = "repeated-share", "Interests repeated", "%";
    /// Data with a congestion mark, as a fraction of those received.
    MarkedShare = "marked-share", "Data marked", "%";
    /// Time from the first Interest for an object to its last segment (content download time,
    /// CDoT).
    DownloadTime = "download-time", "Download time", "s";
    /// Time from the first Interest of any consumer for an object until every consumer has it
    /// (content distribution time, CDiT): one sample for each object.
    DistributionTime = "distribution-time", "Distribution time", "s";
    /// Objects that consumers started to fetch.
    ObjectsStarted = "objects-started", "Objects begun", "";
    ObjectsCompleted = "objects-completed", "Objects completed", "";
    /// Objects that consumers abandoned.
    ObjectsFailed = "objects-failed", "Objects given up", "";
    /// Interests, or chunks of a window, that timed out.
    Timeouts = "timeouts", "Time-outs", "";
    /// Samples of congestion windows.
    Window = "window", "Window", "packets";
    /// Samples of the congestion window of one link, for consumers with several links.
    PathWindow = "path-window", "Window of a path", "packets";
    /// Content bytes received on one link, over time, for consumers with several links.
    PathGoodput = "path-goodput", "Goodput of a path", "bit/s";
    /// Samples of Interests in flight at consumers.
    Outstanding = "outstanding", "Interests outstanding", "packets";
    QueueLength = "queue-length", "Queue length", "packets";
    /// Packets dropped at a full stage, over time.
    StageDrops = "stage-drops", "Dropped at a full queue", "packets/s";
    /// Packets that bypassed a full stage, over time.
    StageBypasses = "stage-bypasses", "Bypassed a full queue", "packets/s";
    /// Bytes that routers received, over time.
    InThroughput = "in-throughput", "Throughput in", "bit/s";
    /// Bytes that routers sent, over time.
    OutThroughput = "out-throughput", "Throughput out", "bit/s";
    /// Interests, Data and Nacks that routers received, over time.
    InPackets = "in-packets", "Packets in", "packets/s";
    /// Interests that routers received, over time.
    InInterests = "in-interests", "Interests in", "packets/s";
    /// Interests that routers sent, over time.
    OutInterests = "out-interests", "Interests out", "packets/s";
    /// Data that routers sent, over time.
    OutData = "out-data", "Data out", "packets/s";
    /// Store hits, as a fraction of lookups.
    HitRatio = "hit-ratio", "Hit ratio", "%";
    /// Samples of the number of Data in the store.
    StoreEntries = "store-entries", "Data in the store", "packets";
    PitEntries = "pit-entries", "Pending Interests", "";
    /// Samples of the bytes queued at a router, at all its faces and before their links.
    EgressQueue = "egress-queue", "Queued for sending at the router", "B";
    /// Packets that routers dropped, over time.
    RouterDrops = "router-drops", "Dropped by routers", "packets/s";
    /// Processor time of routers over elapsed time. In the simulator: routers with a `cpu` stage.
    CpuLoad = "cpu-load", "Processor load of the router", "%";
    /// Processor time of routers per received packet. In the simulator: routers with a `cpu` stage.
    CpuPerPacket = "cpu-per-packet", "Processor time per packet", "s";
    /// Bytes that routers sent per second of processor time, which is the throughput of one busy
    /// core. In the simulator: routers with a `cpu` stage.
    OutPerCpu = "out-per-cpu", "Throughput at a busy core", "bit/s";
    /// Data that consumers received, over the time from the first to the last of them (paper
    /// nb-cache, VI-B.4).
    DeliveryRate = "delivery-rate", "Throughput", "packets/s";
    /// When consumers received Data, from the start of the run.
    DeliveryTime = "delivery-time", "Time of delivery", "s";
    /// Records that routers read from their disks, over time.
    DiskReads = "disk-reads", "Records read from disk", "packets/s";
    /// Interests that routers answered from their disks, over time.
    DiskAnswers = "disk-answers", "Answers from disk", "packets/s";
    /// Time of answers from disk, with their wait.
    DiskReadTime = "disk-read-time", "Time of a read, with its wait", "s";
    /// Interests that shared a read in progress, over time.
    DiskReadsShared = "disk-reads-shared", "Reads shared", "packets/s";
    /// Interests rejected because too many waited for a disk, over time.
    DiskReadsRefused = "disk-reads-refused", "Rejected: disk queues full", "packets/s";
    /// Records that routers wrote to their disks, over time.
    DiskWrites = "disk-writes", "Records written to disk", "packets/s";
    /// Data not stored because the write queue was full, over time.
    DiskWritesPassedBy = "disk-writes-passed-by", "Data not stored", "packets/s";
    /// Lookups that the filter before the disks ended, over time.
    FilterNegatives = "filter-negatives", "Lookups ended by the filter", "packets/s";
    /// Lookups that the filter wrongly admitted, as a fraction of all absent ones.
    FilterFalsePositives = "filter-false-positives", "False positives", "%";
    /// Interests that bypassed the disks for any reason, over time.
    Bypasses = "bypasses", "Disks bypassed", "packets/s";
    /// Bypasses because as many reads waited as the threshold allows.
    BypassThreshold = "bypass-threshold", "Bypass: over the threshold", "packets/s";
    /// Bypasses because another next hop was likely to answer sooner.
    BypassAdaptive = "bypass-adaptive", "Bypass: next hop faster", "packets/s";
    /// Bypasses that measure the answer time of another next hop.
    BypassProbe = "bypass-probe", "Bypass: probe", "packets/s";
    /// Bypasses because the disk did not respond.
    BypassStalled = "bypass-stalled", "Bypass: disk stalled", "packets/s";
    /// Interests that waited for a disk over its threshold because no other hop was available, over
    /// time.
    WaitedOverThreshold = "waited-over-threshold", "Waited over the threshold", "packets/s";
    /// Data marked because of the disks, over time.
    StoreMarks = "store-marks", "Data marked by stores", "packets/s";
    /// Signals to neighbours that a store is or is not available, over time.
    Announcements = "announcements", "Announcements to neighbours", "packets/s";
    /// Samples of Interests that wait at routers because of their disks: for reads, and before a
    /// blocking store.
    DiskQueue = "disk-queue", "Interests before the disks", "packets";
    DiskEntries = "disk-entries", "Records on disk", "packets";
    /// Bytes that links carried, over time; `node` is the sender.
    LinkThroughput = "link-throughput", "Throughput of links", "bit/s";
    /// Frames that links dropped, as a fraction of those sent.
    LinkLoss = "link-loss", "Frames lost", "%";
    /// Bytes that links with a rate carried, as a fraction of their capacity; `node` is the sender.
    LinkLoad = "link-load", "Load of the link", "%";
    /// Samples of the queue before links with a rate, relative to the link's bandwidth-delay
    /// product.
    LinkQueue = "link-queue", "Queue, of BDP", "%";
    /// Jain's index of the content bytes that consumers received. 1 is fair; the minimum is one
    /// over the number of consumers.
    Fairness = "fairness", "Jain's index", "";
    /// Time from the start of the last consumer until each consumer reaches four fifths of its
    /// final rate. The rate is a mean over ten sampling periods; the final rate is the mean of the
    /// second half of the run.
    ConvergenceTime = "convergence-time", "Time to converge", "s";
    /// Requests that reach servers of live channels, over time: for a playlist, or for a segment of
    /// video. Of a trial: requests that the cache server received.
    ServerRequests = "server-requests", "Requests at the server", "requests/s";
    /// Bytes of Data that producers of live channels sent, as a fraction of those that all players
    /// received. Of a trial: content bytes of the cache server.
    ServerShare = "server-share", "Traffic served by the server", "%";
    /// Live channels watched at the same time, mean over time.
    ChannelsWatched = "channels-watched", "Channels watched", "";
    /// Of a trial: time from the request of one packet until it is verified, or from a message
    /// until it returns.
    AnswerTime = "answer-time", "Time to an answer", "s";
    /// Of a trial: bytes that consumers received per second of their processor time.
    ConsumerPerCpu = "consumer-per-cpu", "Goodput at a busy core of the consumer", "bit/s";
    /// Of a trial: bytes that producers sent per second of their processor time.
    ProducerPerCpu = "producer-per-cpu", "Goodput at a busy core of the producer", "bit/s";
    /// Of a trial: bytes segmented, named and signed per second.
    PublicationRate = "publication-rate", "Publication", "B/s";
    /// Of a trial: time to sign a packet.
    SignTime = "sign-time", "Time to sign a packet", "s";
    /// Of a trial: time to verify a packet.
    VerifyTime = "verify-time", "Time to verify a packet", "s";
    /// Of a trial: time for the digest of a packet.
    HashTime = "hash-time", "Time for the digest of a packet", "s";
    /// Of a trial: memory of a process per socket.
    SocketMemory = "socket-memory", "Memory of a socket", "B";
    /// Of a trial: time to create a socket.
    SocketTime = "socket-time", "Time to create a socket", "s";
    /// Of a trial: Interests that a producer received per published message.
    MessageInterests = "message-interests", "Interests at the producer for a message", "";
    /// Of a trial: bytes of Data that a producer sent per published message.
    MessageOctets = "message-octets", "Bytes that the producer sent for a message", "B";
    /// Of a trial: processor time of a producer per message.
    MessageCpu = "message-cpu", "Processor time of the producer for a message", "s";
    /// Of a trial: time from the publication of a message until a subscriber has verified it.
    MessageDelay = "message-delay", "Time from publication to receipt", "s";
    /// Of a trial: Interests for metadata that a producer received while subscribers joined, per
    /// joining subscriber. Interests for messages do not depend on joining.
    JoinInterests = "join-interests", "Interests for metadata for a subscriber that joins", "";
    /// Of a trial: time from a subscriber's first Interest until it knows the newest message.
    JoinTime = "join-time", "Time to join", "s";
    /// Of a trial: requests that the cache server answered from its cache, over time. It may have
    /// asked the origin whether its copy is current.
    ServerHits = "server-hits", "Hits of the server's cache", "requests/s";
    /// Of a trial: requests for which the cache server fetched content from the origin, over time.
    ServerMisses = "server-misses", "Misses of the server's cache", "requests/s";
    /// Of a trial: resident memory of the cache server at the end.
    ServerMemory = "server-memory", "Memory of the server", "B";
    /// Of a trial: processor time of the cache server over elapsed time.
    ServerCpu = "server-cpu", "Processor load of the server", "%";
    /// Of a trial: processor time of fronts, routers and the gateway origin over elapsed time.
    NetworkCpu = "network-cpu", "Processor load of gateways and routers", "%";
    /// Of a trial: requests of a viewer, over time.
    ViewerRequests = "viewer-requests", "Requests of a viewer", "requests/s";
    /// Of a trial: requests of viewers that failed, as a fraction of all.
    ViewerFailures = "viewer-failures", "Failed requests of viewers", "%";
    /// Of a trial: time in which a player had nothing to show, as a fraction of all time.
    ViewerStalls = "viewer-stalls", "Time in which players stalled", "%";
    /// Of a trial: the longest delay of a segment's publication. A busy machine causes it, and
    /// players that begin three segments before the end stall if it is longer than two segments.
    SourceDelay = "source-delay", "Longest delay of the source", "s";
}

/// How a measure is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MeasureKind {
    Samples,
    /// Amounts over time.
    Rate,
    /// Sum of amounts.
    Total,
    /// One amount over another.
    Ratio,
    /// Amounts over the time from the first to the last.
    Span,
    /// Jain's index of the amounts of nodes.
    Fairness,
    /// Time until the rates of all nodes have converged.
    Convergence,
}

impl Measure {
    /// How it is computed.
    #[must_use]
    pub const fn kind(self) -> MeasureKind {
        match self {
            Self::RoundTripTime
            | Self::DownloadTime
            | Self::DistributionTime
            | Self::Window
            | Self::PathWindow
            | Self::Outstanding
            | Self::QueueLength
            | Self::StoreEntries
            | Self::DiskEntries
            | Self::DiskQueue
            | Self::DeliveryTime
            | Self::AnswerTime
            | Self::SignTime
            | Self::VerifyTime
            | Self::HashTime
            | Self::SocketTime
            | Self::MessageDelay
            | Self::JoinTime
            | Self::EgressQueue
            | Self::LinkQueue
            | Self::PitEntries => MeasureKind::Samples,
            Self::Fairness => MeasureKind::Fairness,
            Self::ConvergenceTime => MeasureKind::Convergence,
            Self::DeliveryRate => MeasureKind::Span,
            Self::ObjectsStarted
            | Self::ObjectsCompleted
            | Self::ObjectsFailed
            | Self::Timeouts => MeasureKind::Total,
            Self::Loss
            | Self::NackShare
            | Self::RepeatedShare
            | Self::MarkedShare
            | Self::HitRatio
            | Self::CpuLoad
            | Self::CpuPerPacket
            | Self::OutPerCpu
            | Self::DiskReadTime
            | Self::FilterFalsePositives
            | Self::MessageInterests
            | Self::MessageOctets
            | Self::MessageCpu
            | Self::JoinInterests
            | Self::ServerCpu
            | Self::NetworkCpu
            | Self::ViewerFailures
            | Self::ViewerStalls
            | Self::LinkLoad
            | Self::ServerShare
            | Self::LinkLoss => MeasureKind::Ratio,
            _ => MeasureKind::Rate,
        }
    }

    /// Whether it needs periodic samples (`run.sample`).
    #[must_use]
    pub(crate) const fn is_sampled(self) -> bool {
        self.is_of_router()
            || matches!(
                self,
                Self::Window
                    | Self::PathWindow
                    | Self::PathGoodput
                    | Self::Outstanding
                    | Self::QueueLength
                    | Self::DiskQueue
                    | Self::LinkThroughput
                    | Self::LinkLoss
                    | Self::LinkLoad
                    | Self::LinkQueue
            )
    }

    /// Whether it uses the counters of routers.
    #[must_use]
    pub(crate) const fn is_of_router(self) -> bool {
        matches!(
            self,
            Self::InThroughput
                | Self::OutThroughput
                | Self::InPackets
                | Self::InInterests
                | Self::OutInterests
                | Self::OutData
                | Self::HitRatio
                | Self::StoreEntries
                | Self::PitEntries
                | Self::EgressQueue
                | Self::RouterDrops
                | Self::CpuLoad
                | Self::CpuPerPacket
                | Self::OutPerCpu
        ) || self.is_of_disks()
    }

    /// Whether it uses the counters of disks.
    #[must_use]
    pub(crate) const fn is_of_disks(self) -> bool {
        matches!(
            self,
            Self::DiskReads
                | Self::DiskAnswers
                | Self::DiskReadTime
                | Self::DiskReadsShared
                | Self::DiskReadsRefused
                | Self::DiskWrites
                | Self::DiskWritesPassedBy
                | Self::FilterNegatives
                | Self::FilterFalsePositives
                | Self::Bypasses
                | Self::BypassThreshold
                | Self::BypassAdaptive
                | Self::BypassProbe
                | Self::BypassStalled
                | Self::WaitedOverThreshold
                | Self::StoreMarks
                | Self::Announcements
                | Self::DiskEntries
        )
    }

    /// Whether only trials measure it.
    #[must_use]
    pub(crate) const fn is_of_trial(self) -> bool {
        matches!(
            self,
            Self::AnswerTime
                | Self::ConsumerPerCpu
                | Self::ProducerPerCpu
                | Self::PublicationRate
                | Self::SignTime
                | Self::VerifyTime
                | Self::HashTime
                | Self::SocketMemory
                | Self::SocketTime
                | Self::MessageInterests
                | Self::MessageOctets
                | Self::MessageCpu
                | Self::MessageDelay
                | Self::JoinInterests
                | Self::JoinTime
        ) || self.is_of_video()
    }

    /// Whether only a trial of live video measures it.
    #[must_use]
    const fn is_of_video(self) -> bool {
        matches!(
            self,
            Self::ServerHits
                | Self::ServerMisses
                | Self::ServerMemory
                | Self::ServerCpu
                | Self::NetworkCpu
                | Self::ViewerRequests
                | Self::ViewerFailures
                | Self::ViewerStalls
                | Self::SourceDelay
        )
    }

    /// Whether it is about one of a node's queues.
    #[must_use]
    pub(crate) const fn is_of_queue(self) -> bool {
        matches!(self, Self::QueueLength | Self::StageDrops | Self::StageBypasses)
    }

    /// Whether it is about one of a consumer's links.
    #[must_use]
    pub(crate) const fn is_of_path(self) -> bool {
        matches!(self, Self::PathWindow | Self::PathGoodput)
    }

    /// Whether an arm can measure it. Real processes do not report their queues, and links do not
    /// report when they carried what.
    #[must_use]
    pub const fn is_measured_in(self, arm: Arm) -> bool {
        match arm {
            Arm::Sim => true,
            Arm::Real => {
                !self.is_of_queue()
                    && !matches!(
                        self,
                        Self::LinkThroughput
                            | Self::LinkLoss
                            | Self::LinkLoad
                            | Self::LinkQueue
                            | Self::EgressQueue
                    )
            }
        }
    }

    /// The factor for display: fractions are shown in percent.
    #[must_use]
    pub fn scale(self) -> f64 {
        if self.unit() == "%" { 100.0 } else { 1.0 }
    }
}
