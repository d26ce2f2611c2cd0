//! Measures: what can be computed from the events of a run, or is given by a trial.

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
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The word that files use.
            #[must_use]
            pub const fn word(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }

            /// What figures call it when the scenario does not say.
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
    /// Octets of content that consumers received, over time.
    Goodput = "goodput", "Goodput", "bit/s";
    /// Octets of Data packets that consumers received, over time.
    Throughput = "throughput", "Throughput", "bit/s";
    /// Data that consumers received, over time.
    DataRate = "data-rate", "Data received", "packets/s";
    /// Interests that consumers sent, over time.
    InterestRate = "interest-rate", "Interests sent", "packets/s";
    /// Time from the last Interest for a segment to its Data.
    RoundTripTime = "rtt", "Round-trip time", "s";
    /// Interests that got a Nack or no answer, of those that ended.
    Loss = "loss", "Interests lost", "%";
    /// Interests answered by a Nack, of those that ended.
    NackShare = "nack-share", "Interests refused", "%";
    /// Interests for what had been asked for before, of those sent.
    RepeatedShare = "repeated-share", "Interests repeated", "%";
    /// Data with a congestion mark, of those received.
    MarkedShare = "marked-share", "Data marked", "%";
    /// Time from the first Interest for an object to its last segment (content download time,
    /// CDoT).
    DownloadTime = "download-time", "Download time", "s";
    /// Time from the first Interest of any consumer for an object until every consumer has it
    /// (content distribution time, CDiT): a sample for each object.
    DistributionTime = "distribution-time", "Distribution time", "s";
    /// Objects that consumers began to fetch.
    ObjectsStarted = "objects-started", "Objects begun", "";
    ObjectsCompleted = "objects-completed", "Objects completed", "";
    /// Objects that consumers gave up.
    ObjectsFailed = "objects-failed", "Objects given up", "";
    /// Interests, or chunks of a window, that consumers gave up waiting for.
    Timeouts = "timeouts", "Time-outs", "";
    /// Samples of congestion windows.
    Window = "window", "Window", "packets";
    /// Samples of the congestion window of one link of consumers with several.
    PathWindow = "path-window", "Window of a path", "packets";
    /// Octets of content that consumers with several links received by one of them, over time.
    PathGoodput = "path-goodput", "Goodput of a path", "bit/s";
    /// Samples of Interests outstanding at consumers.
    Outstanding = "outstanding", "Interests outstanding", "packets";
    QueueLength = "queue-length", "Queue length", "packets";
    /// Packets that found a stage full and were dropped, over time.
    StageDrops = "stage-drops", "Dropped at a full queue", "packets/s";
    /// Packets that found a stage full and passed it by, over time.
    StageBypasses = "stage-bypasses", "Passed a full queue by", "packets/s";
    /// Octets that came into routers, over time.
    InThroughput = "in-throughput", "Throughput in", "bit/s";
    /// Octets that left routers, over time.
    OutThroughput = "out-throughput", "Throughput out", "bit/s";
    /// Interests, Data and Nacks that came into routers, over time.
    InPackets = "in-packets", "Packets in", "packets/s";
    /// Interests that came into routers, over time.
    InInterests = "in-interests", "Interests in", "packets/s";
    /// Interests that left routers, over time.
    OutInterests = "out-interests", "Interests out", "packets/s";
    /// Data that left routers, over time.
    OutData = "out-data", "Data out", "packets/s";
    /// Look-ups that the store answered, of all look-ups.
    HitRatio = "hit-ratio", "Hit ratio", "%";
    /// Samples of Data in the store.
    StoreEntries = "store-entries", "Data in the store", "packets";
    PitEntries = "pit-entries", "Pending Interests", "";
    /// Samples of the octets that wait to leave a router, at all its faces and before their links.
    EgressQueue = "egress-queue", "Waiting to leave the router", "B";
    /// Packets that routers dropped, over time.
    RouterDrops = "router-drops", "Dropped by routers", "packets/s";
    /// Processor time of routers, of the time that passed; in the simulator of routers with a
    /// `cpu` stage.
    CpuLoad = "cpu-load", "Processor load of the router", "%";
    /// Processor time of routers for each packet that came in; in the simulator of routers with a
    /// `cpu` stage.
    CpuPerPacket = "cpu-per-packet", "Processor time per packet", "s";
    /// Octets that left routers in a second of their processor time: what a router carries whose
    /// one core is busy; in the simulator of routers with a `cpu` stage.
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
    /// Time that answers from disk took, the wait included.
    DiskReadTime = "disk-read-time", "Time of a read, with its wait", "s";
    /// Interests that joined a read that was under way, over time.
    DiskReadsShared = "disk-reads-shared", "Reads shared", "packets/s";
    /// Interests refused since too many waited for a disk, over time.
    DiskReadsRefused = "disk-reads-refused", "Refused for full disk queues", "packets/s";
    /// Records that routers wrote to their disks, over time.
    DiskWrites = "disk-writes", "Records written to disk", "packets/s";
    /// Data that was not stored since too much waited to be written, over time.
    DiskWritesPassedBy = "disk-writes-passed-by", "Data not stored", "packets/s";
    /// Look-ups that the filter before the disks ended, over time.
    FilterNegatives = "filter-negatives", "Look-ups ended by the filter", "packets/s";
    /// Look-ups that the filter let pass for nothing, of all that had to be ended.
    FilterFalsePositives = "filter-false-positives", "False positives", "%";
    /// Interests that passed the disks by, for whatever reason, over time.
    Bypasses = "bypasses", "Disks passed by", "packets/s";
    /// Those since as many reads waited as the threshold says.
    BypassThreshold = "bypass-threshold", "Passed by: over the threshold", "packets/s";
    /// Those since an answer was likely to come sooner from elsewhere.
    BypassAdaptive = "bypass-adaptive", "Passed by: sooner elsewhere", "packets/s";
    /// Those that found out how long answers take from elsewhere.
    BypassProbe = "bypass-probe", "Passed by: to measure", "packets/s";
    /// Those since the disk did not answer.
    BypassStalled = "bypass-stalled", "Passed by: disk stalled", "packets/s";
    /// Interests that waited for a disk over its threshold, for want of another hop, over time.
    WaitedOverThreshold = "waited-over-threshold", "Waited over the threshold", "packets/s";
    /// Data marked because of the disks, over time.
    StoreMarks = "store-marks", "Data marked by stores", "packets/s";
    /// Times that neighbours were told that a store has room, or none, over time.
    Announcements = "announcements", "Announcements to neighbours", "packets/s";
    /// Samples of the Interests that wait at routers because of their disks: for reads, and before
    /// a store that blocks.
    DiskQueue = "disk-queue", "Interests before the disks", "packets";
    DiskEntries = "disk-entries", "Records on disk", "packets";
    /// Octets that links carried, over time; `node` is the sender.
    LinkThroughput = "link-throughput", "Throughput of links", "bit/s";
    /// Frames that links dropped, of those handed to them.
    LinkLoss = "link-loss", "Frames lost", "%";
    /// Octets that links with a rate carried, of what they could; `node` is the sender.
    LinkLoad = "link-load", "Load of the link", "%";
    /// Samples of the octets that wait before links with a rate, in parts of the octets that are on
    /// their way there and back at that rate (bandwidth-delay product).
    LinkQueue = "link-queue", "Queue, of BDP", "%";
    /// Jain's index of the octets of content that consumers received: 1 is fair, one over their
    /// number is the least.
    Fairness = "fairness", "Jain's index", "";
    /// Time from the start of the last consumer until each of them has had, over ten sampling
    /// periods, four fifths of what it gets in the mean of the second half of the run.
    ConvergenceTime = "convergence-time", "Time to converge", "s";
    /// Of a trial: time from a request of one packet until it is there and verified, or from a
    /// message until it is back.
    AnswerTime = "answer-time", "Time to an answer", "s";
    /// Of a trial: octets that consumers got in a second of their processor time.
    ConsumerPerCpu = "consumer-per-cpu", "Goodput at a busy core of the consumer", "bit/s";
    /// Of a trial: octets that producers gave in a second of their processor time.
    ProducerPerCpu = "producer-per-cpu", "Goodput at a busy core of the producer", "bit/s";
    /// Of a trial: octets that were segmented, named and signed in a second.
    PublicationRate = "publication-rate", "Publication", "B/s";
    /// Of a trial: time to sign a packet.
    SignTime = "sign-time", "Time to sign a packet", "s";
    /// Of a trial: time to verify a packet.
    VerifyTime = "verify-time", "Time to verify a packet", "s";
    /// Of a trial: time for the digest of a packet.
    HashTime = "hash-time", "Time for the digest of a packet", "s";
    /// Of a trial: memory of a process for each of its sockets.
    SocketMemory = "socket-memory", "Memory of a socket", "B";
    /// Of a trial: time to make a socket.
    SocketTime = "socket-time", "Time to make a socket", "s";
    /// Of a trial: Interests that came to a producer, for each message that it published.
    MessageInterests = "message-interests", "Interests at the producer for a message", "";
    /// Of a trial: octets of Data that a producer sent, for each message that it published.
    MessageOctets = "message-octets", "Octets that the producer sent for a message", "B";
    /// Of a trial: processor time of a producer for each message.
    MessageCpu = "message-cpu", "Processor time of the producer for a message", "s";
    /// Of a trial: time from the publication of a message until a subscriber has it, verified.
    MessageDelay = "message-delay", "Time from publication to receipt", "s";
    /// Of a trial: Interests for metadata that came to a producer while subscribers joined, for
    /// each that joined. Those for messages are the same as without them.
    JoinInterests = "join-interests", "Interests for metadata for a subscriber that joins", "";
    /// Of a trial: time from a subscriber's first Interest until it knows what is newest.
    JoinTime = "join-time", "Time to join", "s";
}

/// How numbers of a measure come about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MeasureKind {
    Samples,
    /// Amounts over time.
    Rate,
    /// Amounts, summed up.
    Total,
    /// One amount over another one.
    Ratio,
    /// Amounts over the time from the first to the last of them.
    Span,
    /// Jain's index of the amounts of nodes.
    Fairness,
    /// When the rates of all nodes are what they stay at.
    Convergence,
}

impl Measure {
    /// How its numbers come about.
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
            | Self::LinkLoad
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

    /// Whether it comes from the counters of routers.
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

    /// Whether it comes from what routers count of their disks.
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

    /// Whether trials alone give it.
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

    /// Whether an arm can give it: real processes do not tell of their queues, and links not of
    /// what they carried by when.
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

    /// What numbers are multiplied with: shares are told in percent.
    #[must_use]
    pub fn scale(self) -> f64 {
        if self.unit() == "%" { 100.0 } else { 1.0 }
    }
}
