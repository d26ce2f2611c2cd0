//! Lists of objects as JSON.

use serde_json::{Value, json};
use weir_store::{ObjectList, StoredObject, TierShare};
use weir_wire::Name;

/// A list of objects as JSON, for `/contents` and `weir cs list --json`.
pub fn objects_json(list: &ObjectList) -> Value {
    let object = |object: &StoredObject| {
        json!({
            "name": object.name.to_string(),
            "memory": share_json(object.memory),
            "disk": share_json(object.disk),
            "packets_held": object.packets(),
            "segments": object.segments,
            "held_percent": object.held_percent(),
            "hits": object.uses.hits,
            "served_bytes": object.uses.served_bytes,
            "last_use_ms_ago": object.uses.ms_since_last(list.listed_at),
            "pinned": list.is_pinned(object),
        })
    };
    let pin = |(prefix, bytes_max): &(Name, u64)| {
        let prefix = prefix.to_string();
        json!({ "prefix": prefix, "bytes_max": bytes_max })
    };
    json!({
        "objects": list.objects.iter().map(object).collect::<Vec<_>>(),
        "total": list.total,
        "memory": share_json(list.memory),
        "disk": share_json(list.disk),
        "pins": list.pins.iter().map(pin).collect::<Vec<_>>(),
        "left_out": list.dropped,
        "unnamed": list.unnamed,
        "partial": list.is_partial,
    })
}

fn share_json(share: TierShare) -> Value {
    json!({ "packets": share.packets, "bytes": share.bytes })
}

#[cfg(test)]
mod tests {
    use weir_base::{Instant, NS_PER_MS};
    use weir_store::ObjectUses;

    use super::*;

    #[test]
    fn shows_age_share_and_pins_of_objects() {
        let at = |ms| Instant::from_ns(ms * NS_PER_MS);
        let object = StoredObject {
            name: "/data/file/v=7".parse().unwrap(),
            memory: TierShare { packets: 50, bytes: 400_000 },
            segments: Some(100),
            uses: ObjectUses { last_use: at(2000), ..ObjectUses::default() },
            ..StoredObject::default()
        };
        let list = ObjectList {
            objects: vec![object, StoredObject::default()],
            listed_at: at(5000),
            pins: vec![("/data".parse().unwrap(), 1 << 20)],
            ..ObjectList::default()
        };
        let json = objects_json(&list);
        let [first, second] = [0, 1].map(|at| &json["objects"][at]);
        assert_eq!(
            (&first["last_use_ms_ago"], &first["held_percent"]),
            (&json!(3000), &json!(50.0))
        );
        assert_eq!((&first["pinned"], &second["pinned"]), (&json!(true), &json!(false)));
        assert_eq!((&second["last_use_ms_ago"], &second["segments"]), (&json!(null), &json!(null)));
        assert_eq!(json["pins"], json!([{ "prefix": "/data", "bytes_max": 1 << 20 }]));
    }
}
