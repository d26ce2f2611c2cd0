//! `weir cs list`.

use weir_base::Instant;
use weir_runtime::objects_json;
use weir_store::{ObjectList, ObjectOrder, ObjectQuery, StoredObject, TierShare};
use weir_wire::Name;

use crate::management_client::ManagementClient;
use crate::table::{Align, Table, count, octets, out, outln, paragraph, span};
use crate::transfer::parse_prefix;
use crate::words::one_of;

/// The time that ages in the answer count back from. Any time after all ages will do.
const NOW: Instant = Instant::from_ns(u64::MAX / 2);

#[derive(clap::Args)]
pub(super) struct Args {
    /// Only objects below this prefix
    #[arg(value_parser = parse_prefix, default_value = "/")]
    prefix: Name,
    /// Sort by this; served means bytes sent from the store
    #[arg(long, value_name = "KEY", default_value_t,
        value_parser = one_of::<ObjectOrder>(ObjectOrder::WORDS))]
    sort: ObjectOrder,
    /// Show at most this number of objects, the first in the order
    #[arg(long, value_name = "N", default_value_t = 50)]
    limit: u64,
}

pub(super) fn run(args: Args, client: &mut ManagementClient, is_json: bool) -> anyhow::Result<()> {
    let query = ObjectQuery { prefix: args.prefix, order: args.sort, limit: args.limit };
    let list = client.objects(&query, NOW)?;
    if is_json {
        outln!("{}", objects_json(&list))?;
    } else {
        out!("{}", list_text(&list))?;
    }
    Ok(())
}

fn held_text(object: &StoredObject) -> String {
    match (object.segments, object.held_percent()) {
        (Some(segments), Some(percent)) => {
            // "100 %" must mean that nothing is missing.
            let percent = if percent < 100.0 { percent.min(99.0) } else { percent };
            format!("{} of {segments}, {percent:.0} %", object.packets())
        }
        _ => count(object.packets(), "packet", "packets"),
    }
}

fn bytes_text(share: TierShare) -> String {
    if share.packets == 0 { "-".to_owned() } else { octets(share.bytes) }
}

/// The list as a table, with a line about all objects and what is missing.
fn list_text(list: &ObjectList) -> String {
    let mut table = Table::new(&[
        ("HITS", Align::Right),
        ("SERVED", Align::Right),
        ("LAST USE", Align::Right),
        ("MEMORY", Align::Right),
        ("DISK", Align::Right),
        ("HELD", Align::Right),
        ("OBJECT", Align::Left),
    ]);
    for object in &list.objects {
        let age = object.uses.ms_since_last(list.listed_at);
        let age = age.map_or_else(|| "-".to_owned(), |ms| format!("{} ago", span(ms)));
        let pinned = if list.is_pinned(object) { " (pinned)" } else { "" };
        table.row(vec![
            object.uses.hits.to_string(),
            octets(object.uses.served_bytes),
            age,
            bytes_text(object.memory),
            bytes_text(object.disk),
            held_text(object),
            format!("{}{pinned}", object.name),
        ]);
    }
    let mut text = table.render("no objects");
    let all = format!(
        "{} of {}; {} in memory, {} on disks",
        list.objects.len(),
        count(list.total, "object", "objects"),
        octets(list.memory.bytes),
        octets(list.disk.bytes)
    );
    let pins = list.pins.iter();
    let pins =
        pins.map(|(prefix, bytes_max)| format!("pinned: {prefix}, up to {}", octets(*bytes_max)));
    for line in std::iter::once(all).chain(pins).chain(notes(list)) {
        text.push_str(&paragraph("  ", &line));
    }
    text
}

/// What the list lacks, and why.
fn notes(list: &ObjectList) -> Vec<String> {
    let mut notes = Vec::new();
    if list.unnamed > 0 {
        let unnamed = count(list.unnamed, "more object", "more objects");
        notes.push(format!(
            "{unnamed} on disks since before the last start; a name is known again after its \
             first use"
        ));
    }
    if list.dropped > 0 {
        notes.push(format!(
            "partial: {} left out, because the memory for a list is limited; give a PREFIX",
            count(list.dropped, "object was", "objects were")
        ));
    } else if list.is_partial {
        notes.push(
            "partial: the index of the disks is incomplete, or a thread was late; try again"
                .to_owned(),
        );
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_base::NS_PER_MS;
    use weir_store::ObjectUses;

    fn list() -> ObjectList {
        let object = StoredObject {
            name: "/data/file/v=7".parse().unwrap(),
            memory: TierShare { packets: 50, bytes: 400_000 },
            segments: Some(100),
            uses: ObjectUses {
                hits: 12,
                served_bytes: 96_000,
                last_use: Instant::from_ns(NOW.as_ns() - 3000 * NS_PER_MS),
            },
            ..StoredObject::default()
        };
        ObjectList {
            objects: vec![object.clone()],
            listed_at: NOW,
            total: 9,
            memory: object.memory,
            pins: vec![("/data".parse().unwrap(), 1 << 20)],
            ..ObjectList::default()
        }
    }

    #[test]
    fn shows_share_age_and_pins_of_objects() {
        let text = list_text(&list());
        let row = text.lines().nth(1).unwrap();
        for part in ["12", "3 s ago", "50 of 100, 50 %", "/data/file/v=7 (pinned)"] {
            assert!(row.contains(part), "{part}: {text}");
        }
        assert!(text.contains("1 of 9 objects; "), "{text}");
        assert!(text.contains("pinned: /data, up to 1.00 MiB"), "{text}");
        assert!(!text.contains("partial"), "{text}");
    }

    #[test]
    fn nearly_complete_objects_are_not_100_percent() {
        let held = |packets| {
            held_text(&StoredObject {
                memory: TierShare { packets, bytes: 1 },
                segments: Some(1000),
                ..StoredObject::default()
            })
        };
        assert_eq!(held(999), "999 of 1000, 99 %");
        assert_eq!(held(1000), "1000 of 1000, 100 %");
    }

    #[test]
    fn says_what_a_list_lacks() {
        let partial = ObjectList { dropped: 1, is_partial: true, unnamed: 2, ..list() };
        let text = list_text(&partial);
        assert!(text.contains("2 more objects on disks"), "{text}");
        assert!(text.contains("partial: 1 object was left out"), "{text}");
        assert!(list_text(&ObjectList::default()).contains("no objects"));
    }
}
