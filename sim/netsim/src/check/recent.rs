//! The last trace lines of a run, for the report of a violation.

use std::fmt::Write as _;

const LINES: usize = 64;

/// The kind of a trace line. Its number is part of the event hash, so existing numbers must not
/// change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum TraceKind {
    Interest = 1,
    Data,
    Nack,
    Fragment,
    Refused,
    SentInterest,
    SentData,
    SentNack,
    DroppedByLink,
    DroppedByQueue,
    LostInCut,
    LostToCrash,
    Damaged,
    Wakeup,
    FaultBegins,
    FaultEnds,
    StageFull,
    Signal,
    DiskRead,
    DiskWritten,
    DiskFailed,
    DiskDamaged,
    Shaped,
}

impl TraceKind {
    fn text(self) -> &'static str {
        match self {
            Self::Interest => "got an Interest",
            Self::Data => "got a Data",
            Self::Nack => "got a Nack",
            Self::Fragment => "got a fragment",
            Self::Refused => "refused a frame",
            Self::SentInterest => "sent an Interest",
            Self::SentData => "sent a Data",
            Self::SentNack => "sent a Nack",
            Self::DroppedByLink => "lost a frame on the link",
            Self::DroppedByQueue => "dropped a packet because its queue was full",
            Self::LostInCut => "lost a frame when the link went down",
            Self::LostToCrash => "was down when a frame arrived",
            Self::Damaged => "sent a frame that a fault damaged",
            Self::Wakeup => "woke up",
            Self::FaultBegins => "is hit by a fault",
            Self::FaultEnds => "recovers from a fault",
            Self::StageFull => "has a full stage",
            Self::Signal => "took a neighbour's signal",
            Self::DiskRead => "has read from a disk",
            Self::DiskWritten => "has written to a disk",
            Self::DiskFailed => "has a disk that failed",
            Self::DiskDamaged => "has a disk that returned or wrote wrong data",
            Self::Shaped => "held or refused an Interest",
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct TraceLine {
    pub(crate) at_ns: u64,
    pub(crate) node: u32,
    /// Face number, or 0 if no face is involved.
    pub(crate) face: u32,
    pub(crate) what: TraceKind,
    /// Bytes of the packet, or another number that depends on the kind.
    pub(crate) number: u32,
}

/// A ring of the last 64 lines.
#[derive(Debug)]
pub(crate) struct RecentEvents {
    lines: Box<[TraceLine; LINES]>,
    count: u64,
}

impl Default for RecentEvents {
    fn default() -> Self {
        let empty = TraceLine { at_ns: 0, node: 0, face: 0, what: TraceKind::Wakeup, number: 0 };
        Self { lines: Box::new([empty; LINES]), count: 0 }
    }
}

impl RecentEvents {
    #[inline]
    pub(crate) fn push(&mut self, line: TraceLine) {
        self.lines[self.count as usize % LINES] = line;
        self.count += 1;
    }

    /// All lines as text, oldest first.
    pub(crate) fn texts(&self, node_name: impl Fn(u32) -> String) -> Vec<String> {
        let first = self.count.saturating_sub(LINES as u64);
        let text = |at: u64| {
            let line = &self.lines[at as usize % LINES];
            let (seconds, rest) = (line.at_ns / 1_000_000_000, line.at_ns % 1_000_000_000);
            let name = node_name(line.node);
            let mut text = format!("{seconds}.{rest:09} s {name} {}", line.what.text());
            if line.number > 0 {
                let _ = write!(text, ", {}", line.number);
            }
            if line.face > 0 {
                let _ = write!(text, ", face {}", line.face);
            }
            text
        };
        (first..self.count).map(text).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_last_lines_in_order() {
        let mut recent = RecentEvents::default();
        let line =
            |at_ns| TraceLine { at_ns, node: 3, face: 256, what: TraceKind::Data, number: 90 };
        recent.push(line(1));
        let name = |node| format!("n{node}");
        assert_eq!(recent.texts(name), ["0.000000001 s n3 got a Data, 90, face 256"]);
        for at_ns in 2..=100 {
            recent.push(line(at_ns));
        }
        let texts = recent.texts(name);
        assert_eq!(texts.len(), LINES);
        assert!(texts[0].starts_with("0.000000037 s"), "{}", texts[0]);
        assert!(texts[63].starts_with("0.000000100 s"), "{}", texts[63]);
    }
}
