//! Which objects a list contains, and in which order.

use core::cmp::Ordering;

use weir_base::words;
use weir_wire::{Name, NameView, tlv};

use super::StoredObject;

const NAME: u32 = 7;
const ORDER: u32 = 0xf5c0;
const LIMIT: u32 = 0xf5c2;

/// What a list of objects is sorted by. All orders but that by name start with the largest.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug, Default)]
pub enum ObjectOrder {
    /// Bytes held.
    Size,
    #[default]
    Hits,
    /// Bytes of the answers.
    Served,
    /// The object that was used last comes first.
    LastUse,
    Name,
}

words!(ObjectOrder {
    Size = "size",
    Hits = "hits",
    Served = "served",
    LastUse = "last-use",
    Name = "name",
});

impl ObjectOrder {
    /// Whether `one` comes before `other`. Equal objects are ordered by size, then by name.
    pub(crate) fn compare(self, one: &StoredObject, other: &StoredObject) -> Ordering {
        let first = match self {
            Self::Size => Ordering::Equal,
            Self::Hits => other.uses.hits.cmp(&one.uses.hits),
            Self::Served => other.uses.served_bytes.cmp(&one.uses.served_bytes),
            Self::LastUse => other.uses.last_use.cmp(&one.uses.last_use),
            Self::Name => one.name.cmp(&other.name),
        };
        let by_size = || other.bytes().cmp(&one.bytes());
        first.then_with(by_size).then_with(|| one.name.cmp(&other.name))
    }
}

/// A request for a list of objects.
#[derive(Clone, Eq, PartialEq, Debug)]
pub struct ObjectQuery {
    /// Objects whose names start with this.
    pub prefix: Name,
    pub order: ObjectOrder,
    /// The most objects that the list may contain. The first in the order are chosen.
    pub limit: u64,
}

impl Default for ObjectQuery {
    /// The 100 objects with the most hits.
    fn default() -> Self {
        Self { prefix: Name::default(), order: ObjectOrder::default(), limit: 100 }
    }
}

impl ObjectQuery {
    /// The most objects of one list. A query for more gets this number.
    pub const LIMIT_MAX: u64 = 100_000;

    /// The name of the dataset with the answer. `prefix` is `/localhost/nfd`.
    pub fn dataset_name(&self, mut prefix: Name) -> Name {
        let mut writer = tlv::Writer::new();
        writer.tlv(NAME, self.prefix.as_view().value());
        let order = ObjectOrder::ALL.iter().position(|order| *order == self.order);
        writer.nni(ORDER, order.unwrap_or_default() as u64);
        writer.nni(LIMIT, self.limit);
        prefix.append_str("cs").append_str("list").append_generic(writer.as_slice());
        prefix
    }

    /// Decodes the last component of a dataset name, given by its TLV-VALUE. `None` if it is
    /// malformed or has an unknown order.
    pub fn decode(component: &[u8]) -> Option<Self> {
        let mut query = Self::default();
        for element in tlv::Reader::new(component) {
            let element = element.ok()?;
            match element.typ {
                NAME => query.prefix = NameView::decode(element.wire).ok()?.to_name(),
                ORDER => {
                    let order = usize::try_from(tlv::nni(element.value)?).ok()?;
                    query.order = *ObjectOrder::ALL.get(order)?;
                }
                LIMIT => query.limit = tlv::nni(element.value)?.min(Self::LIMIT_MAX),
                other if tlv::is_critical(other) => return None,
                _ => {}
            }
        }
        Some(query)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_survives_the_dataset_name() {
        let query =
            ObjectQuery { prefix: "/a/b".parse().unwrap(), order: ObjectOrder::LastUse, limit: 7 };
        let name = query.dataset_name("/localhost/nfd".parse().unwrap());
        let component = name.as_view().last().unwrap();
        assert_eq!(ObjectQuery::decode(component.value), Some(query));
        assert_eq!(ObjectQuery::decode(&[]), Some(ObjectQuery::default()));
        assert_eq!(ObjectQuery::decode(&[0xfd, 0xf5, 0xc0, 1, 99]), None, "an unknown order");
        assert_eq!(ObjectQuery::decode(&[7, 9, 8]), None, "malformed");
    }

    #[test]
    fn limit_is_capped() {
        let query = ObjectQuery { limit: u64::MAX, ..ObjectQuery::default() };
        let name = query.dataset_name("/localhost/nfd".parse().unwrap());
        let decoded = ObjectQuery::decode(name.as_view().last().unwrap().value).unwrap();
        assert_eq!(decoded.limit, ObjectQuery::LIMIT_MAX);
    }
}
