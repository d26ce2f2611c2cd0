//! Writes the events of a run as CSV, or as Parquet for large runs.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::basic::Compression;
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use weir_plan::Plan;
use weir_plan::event::{Event, EventKind, Observer, Queue};

use crate::record::{RecordError, file_error};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventFormat {
    /// Text with one event per line.
    Csv,
    /// Compressed columns.
    Parquet,
}

/// The columns of both formats. A value that an event does not have is empty.
///
/// - `at_ns`, `node` (its name), `event` (its kind)
/// - `object`, `segment`: of Interests, Data and objects; `segment` is also the link of a link
///   sample, the path of a path sample, and the number of a fault
/// - `value`: content bytes, reason of a Nack, 1 for repeated Interests, length of a queue or
///   window, bytes of a link, 1 where a fault begins
/// - `elapsed_ns`: round-trip time, or time of a whole object
/// - `detail`: queue, congestion mark, or the counters of a router as `name=value`
const COLUMNS: [&str; 8] =
    ["at_ns", "node", "event", "object", "segment", "value", "elapsed_ns", "detail"];

const SCHEMA: &str = "message event {
    required int64 at_ns;
    required binary node (UTF8);
    required binary event (UTF8);
    optional int64 object;
    optional int64 segment;
    optional double value;
    optional int64 elapsed_ns;
    optional binary detail (UTF8);
}";

/// Events in a Parquet row group.
const GROUP_ROWS: usize = 100_000;

#[derive(Clone, Debug, Default, PartialEq)]
struct Row {
    at_ns: i64,
    node: String,
    event: &'static str,
    object: Option<i64>,
    segment: Option<i64>,
    value: Option<f64>,
    elapsed_ns: Option<i64>,
    detail: Option<String>,
}

fn queue_name(queue: Queue) -> String {
    match queue {
        Queue::Cpu => "cpu".to_owned(),
        Queue::Store => "store".to_owned(),
        Queue::StoreWrite => "store-write".to_owned(),
        Queue::Pit => "pit".to_owned(),
        Queue::PitData => "pit-data".to_owned(),
        Queue::Fib => "fib".to_owned(),
        Queue::DiskBlocked => "disk-blocked".to_owned(),
        Queue::DiskReads => "disk-reads".to_owned(),
        Queue::DiskWrites => "disk-writes".to_owned(),
        Queue::Link(link) => format!("link {link}"),
    }
}

impl Row {
    fn new(event: &Event, names: &[String]) -> Self {
        let node = names.get(event.node as usize).cloned().unwrap_or_default();
        let mut row = Self { at_ns: event.at_ns as i64, node, ..Self::default() };
        row.fill(&event.kind);
        row
    }

    fn named(&mut self, event: &'static str, object: u64, segment: Option<u64>) {
        self.event = event;
        self.object = Some(object as i64);
        self.segment = segment.map(|segment| segment as i64);
    }

    fn fill(&mut self, kind: &EventKind) {
        match kind {
            EventKind::InterestSent { object, segment, is_repeated } => {
                self.named("interest-sent", *object, Some(*segment));
                self.value = Some(f64::from(u8::from(*is_repeated)));
            }
            EventKind::DataReceived {
                object, segment, content_bytes, rtt_ns, is_marked, ..
            } => {
                self.named("data-received", *object, Some(*segment));
                self.value = Some(f64::from(*content_bytes));
                self.elapsed_ns = Some(*rtt_ns as i64);
                self.detail = is_marked.then(|| "marked".to_owned());
            }
            EventKind::NackReceived { object, segment, reason } => {
                self.named("nack-received", *object, Some(*segment));
                self.value = Some(*reason as f64);
            }
            EventKind::TimedOut { object, segment } => {
                self.named("timed-out", *object, Some(*segment));
            }
            EventKind::ObjectStarted { object } => self.named("object-started", *object, None),
            EventKind::ObjectCompleted { object, content_bytes, elapsed_ns } => {
                self.named("object-completed", *object, None);
                self.value = Some(*content_bytes as f64);
                self.elapsed_ns = Some(*elapsed_ns as i64);
            }
            EventKind::ObjectFailed { object } => self.named("object-failed", *object, None),
            EventKind::Window { window, outstanding } => {
                self.event = "window";
                self.value = Some(*window);
                self.detail = Some(format!("outstanding={outstanding}"));
            }
            EventKind::PathSample { path, window, content_bytes } => {
                self.event = "path-sample";
                self.segment = Some(i64::from(*path));
                self.value = Some(*window);
                self.detail = Some(format!("content_bytes={content_bytes}"));
            }
            other => self.fill_network(other),
        }
    }

    fn fill_network(&mut self, kind: &EventKind) {
        match kind {
            EventKind::QueueLength { queue, packets } => {
                self.event = "queue-length";
                self.value = Some(f64::from(*packets));
                self.detail = Some(queue_name(*queue));
            }
            EventKind::StageFull { queue, is_bypass } => {
                self.event = if *is_bypass { "stage-bypassed" } else { "stage-dropped" };
                self.detail = Some(queue_name(*queue));
            }
            EventKind::RouterSample(sample) => {
                self.event = "router-sample";
                let counters = serde_json::to_value(sample).unwrap_or_default();
                let pairs = counters.as_object().into_iter().flatten();
                let pairs: Vec<String> =
                    pairs.map(|(name, value)| format!("{name}={value}")).collect();
                self.detail = Some(pairs.join(" "));
            }
            EventKind::LinkSample { link, frames, bytes, dropped, waiting_bytes } => {
                self.event = "link-sample";
                self.segment = Some(i64::from(*link));
                self.value = Some(*bytes as f64);
                self.detail =
                    Some(format!("frames={frames} dropped={dropped} waiting={waiting_bytes}"));
            }
            EventKind::FaultChanged { fault, begins } => {
                self.event = "fault";
                self.segment = Some(i64::from(*fault));
                self.value = Some(f64::from(u8::from(*begins)));
            }
            other => {
                self.event = "other";
                self.detail = Some(format!("{other:?}"));
            }
        }
    }
}

/// Writes the events of one run to a file.
pub(crate) struct EventWriter {
    path: PathBuf,
    names: Vec<String>,
    sink: Sink,
    /// The first error. Later events are not written.
    error: Option<RecordError>,
}

enum Sink {
    Csv(Box<csv::Writer<BufWriter<File>>>),
    Parquet(Box<Columns>),
}

struct Columns {
    file: SerializedFileWriter<File>,
    rows: Vec<Row>,
}

impl EventWriter {
    /// Creates `stem.csv` or `stem.parquet` in `folder`.
    pub(crate) fn create(
        folder: &Path,
        stem: &str,
        format: EventFormat,
        plan: &Plan,
    ) -> Result<Self, RecordError> {
        std::fs::create_dir_all(folder).map_err(file_error(folder))?;
        let ending = match format {
            EventFormat::Csv => "csv",
            EventFormat::Parquet => "parquet",
        };
        let path = folder.join(format!("{stem}.{ending}"));
        let file = File::create(&path).map_err(file_error(&path))?;
        let sink = match format {
            EventFormat::Csv => {
                let mut writer = csv::Writer::from_writer(BufWriter::new(file));
                writer.write_record(COLUMNS).map_err(|error| csv_error(&path, error))?;
                Sink::Csv(Box::new(writer))
            }
            EventFormat::Parquet => {
                let wrap = |error| parquet_error(&path, &error);
                let schema = Arc::new(parse_message_type(SCHEMA).map_err(wrap)?);
                let properties =
                    WriterProperties::builder().set_compression(Compression::SNAPPY).build();
                let file =
                    SerializedFileWriter::new(file, schema, Arc::new(properties)).map_err(wrap)?;
                Sink::Parquet(Box::new(Columns { file, rows: Vec::new() }))
            }
        };
        let names = plan.nodes.iter().map(|node| node.name.clone()).collect();
        Ok(Self { path, names, sink, error: None })
    }

    fn write(&mut self, event: &Event) -> Result<(), RecordError> {
        let row = Row::new(event, &self.names);
        match &mut self.sink {
            Sink::Csv(writer) => {
                let number = |value: Option<i64>| value.map_or(String::new(), |v| v.to_string());
                let value = row.value.map_or(String::new(), |value| value.to_string());
                writer
                    .write_record([
                        row.at_ns.to_string().as_str(),
                        &row.node,
                        row.event,
                        &number(row.object),
                        &number(row.segment),
                        &value,
                        &number(row.elapsed_ns),
                        row.detail.as_deref().unwrap_or(""),
                    ])
                    .map_err(|error| csv_error(&self.path, error))
            }
            Sink::Parquet(columns) => {
                columns.rows.push(row);
                if columns.rows.len() < GROUP_ROWS {
                    return Ok(());
                }
                columns.write_group().map_err(|error| parquet_error(&self.path, &error))
            }
        }
    }

    /// Writes buffered events and closes the file.
    ///
    /// # Errors
    /// The first error since the file was created.
    pub(crate) fn finish(mut self) -> Result<(), RecordError> {
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        match self.sink {
            Sink::Csv(mut writer) => writer.flush().map_err(file_error(&self.path)),
            Sink::Parquet(mut columns) => columns
                .write_group()
                .and_then(|()| columns.file.close().map(drop))
                .map_err(|error| parquet_error(&self.path, &error)),
        }
    }
}

impl Observer for EventWriter {
    fn observe(&mut self, event: &Event) {
        if self.error.is_none() {
            self.error = self.write(event).err();
        }
    }
}

impl Columns {
    fn write_group(&mut self) -> Result<(), ParquetError> {
        if self.rows.is_empty() {
            return Ok(());
        }
        let rows = std::mem::take(&mut self.rows);
        let mut group = self.file.next_row_group()?;
        let mut index = 0;
        while let Some(mut column) = group.next_column()? {
            write_column(index, &rows, column.untyped())?;
            column.close()?;
            index += 1;
        }
        group.close()?;
        Ok(())
    }
}

/// The present values, and for each row whether it has one.
fn optional<T>(rows: &[Row], value: impl Fn(&Row) -> Option<T>) -> (Vec<T>, Vec<i16>) {
    let values: Vec<Option<T>> = rows.iter().map(value).collect();
    // Parquet calls these definition levels: 0 for an absent value, 1 for a present one.
    let levels = values.iter().map(|value| i16::from(value.is_some())).collect();
    (values.into_iter().flatten().collect(), levels)
}

fn write_column(
    index: usize,
    rows: &[Row],
    column: &mut ColumnWriter<'_>,
) -> Result<(), ParquetError> {
    // `index` counts the columns of `SCHEMA`. The type of the writer follows from it.
    let text = |text: &str| ByteArray::from(text.as_bytes().to_vec());
    match column {
        ColumnWriter::Int64ColumnWriter(writer) if index == 0 => {
            let values: Vec<i64> = rows.iter().map(|row| row.at_ns).collect();
            writer.write_batch(&values, None, None)?;
        }
        ColumnWriter::Int64ColumnWriter(writer) => {
            let (values, levels) = optional(rows, |row| match index {
                3 => row.object,
                4 => row.segment,
                _ => row.elapsed_ns,
            });
            writer.write_batch(&values, Some(&levels), None)?;
        }
        ColumnWriter::DoubleColumnWriter(writer) => {
            let (values, levels) = optional(rows, |row| row.value);
            writer.write_batch(&values, Some(&levels), None)?;
        }
        ColumnWriter::ByteArrayColumnWriter(writer) if index == 7 => {
            let (values, levels) = optional(rows, |row| row.detail.as_deref().map(text));
            writer.write_batch(&values, Some(&levels), None)?;
        }
        ColumnWriter::ByteArrayColumnWriter(writer) => {
            let field = |row: &Row| text(if index == 1 { &row.node } else { row.event });
            let values: Vec<ByteArray> = rows.iter().map(field).collect();
            writer.write_batch(&values, None, None)?;
        }
        _ => return Err(ParquetError::General("a column of the schema has another type".into())),
    }
    Ok(())
}

fn csv_error(path: &Path, error: csv::Error) -> RecordError {
    file_error(path)(std::io::Error::other(error))
}

fn parquet_error(path: &Path, error: &ParquetError) -> RecordError {
    file_error(path)(std::io::Error::other(error.to_string()))
}

/// Writes text to a file through a buffer.
pub(crate) fn write_text(path: &Path, text: &str) -> Result<(), RecordError> {
    let file = File::create(path).map_err(file_error(path))?;
    let mut writer = BufWriter::new(file);
    writer.write_all(text.as_bytes()).map_err(file_error(path))?;
    writer.flush().map_err(file_error(path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::RowAccessor;
    use weir_plan::Role;
    use weir_plan::event::RouterSample;
    use weir_plan_fixture::PlanBuilder;

    fn plan() -> Plan {
        let mut builder = PlanBuilder::new(1, 1);
        builder.node("r0", Role::Router(Default::default()));
        builder.node("with,comma", Role::Router(Default::default()));
        builder.plan
    }

    fn events() -> Vec<Event> {
        let kinds = [
            EventKind::InterestSent { object: 7, segment: 2, is_repeated: true },
            EventKind::DataReceived {
                object: 7,
                segment: 2,
                content_bytes: 1000,
                packet_bytes: 1100,
                rtt_ns: 5,
                is_marked: false,
            },
            EventKind::QueueLength { queue: Queue::Link(3), packets: 12 },
            EventKind::RouterSample(Box::new(RouterSample {
                store_hits: 4,
                ..RouterSample::default()
            })),
        ];
        let at = |(i, kind)| Event { at_ns: 10 * i as u64, node: (i % 2) as u32, kind };
        kinds.into_iter().enumerate().map(at).collect()
    }

    fn write(folder: &Path, format: EventFormat, events: &[Event]) {
        let mut writer = EventWriter::create(folder, "e", format, &plan()).expect("created");
        events.iter().for_each(|event| writer.observe(event));
        writer.finish().expect("written");
    }

    #[test]
    fn csv_has_a_line_for_each_event() {
        let folder = tempfile::tempdir().expect("folder");
        write(folder.path(), EventFormat::Csv, &events());
        let text = std::fs::read_to_string(folder.path().join("e.csv")).expect("readable");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], COLUMNS.join(","));
        assert_eq!(lines[1], "0,r0,interest-sent,7,2,1,,");
        assert_eq!(lines[2], "10,\"with,comma\",data-received,7,2,1000,5,");
        assert_eq!(lines[3], "20,r0,queue-length,,,12,,link 3");
        assert!(lines[4].contains("router-sample") && lines[4].contains("store_hits=4"));
        assert_eq!(lines.len(), 5);
    }

    #[test]
    fn parquet_reads_back_over_several_row_groups() {
        let folder = tempfile::tempdir().expect("folder");
        let many: Vec<Event> = events().into_iter().cycle().take(GROUP_ROWS + 7).collect();
        write(folder.path(), EventFormat::Parquet, &many);
        let file = File::open(folder.path().join("e.parquet")).expect("there");
        let reader = SerializedFileReader::new(file).expect("Parquet");
        assert_eq!(reader.metadata().num_row_groups(), 2);
        let rows: Vec<_> = reader.get_row_iter(None).expect("rows").map(Result::unwrap).collect();
        assert_eq!(rows.len(), many.len());
        assert_eq!(rows[0].get_long(0).expect("at_ns"), 0);
        assert_eq!(rows[1].get_string(1).expect("node"), "with,comma");
        assert_eq!(rows[1].get_string(2).expect("event"), "data-received");
        assert_eq!(rows[1].get_long(3).expect("object"), 7);
        assert_eq!(rows[1].get_double(5).expect("value"), 1000.0);
        assert_eq!(rows[1].get_long(6).expect("elapsed_ns"), 5);
        assert!(rows[2].get_long(3).is_err(), "a queue has no object");
        assert_eq!(rows[GROUP_ROWS + 2].get_string(7).expect("detail"), "link 3");
    }
}
