use alloc::vec::Vec;
use core::cmp::Ordering;
use core::fmt;
use core::hash::{Hash, Hasher};

use super::{Component, ComponentView, DIGEST_SIZE, NameView};
use crate::error::DecodeError;
use crate::tlv;

/// A Name, owned. Equality, order and hash are those of [`NameView`].
#[derive(Clone, Default)]
pub struct Name {
    value: Vec<u8>,
    count: u32,
}

impl Name {
    /// The name without components.
    pub const fn new() -> Self {
        Self { value: Vec::new(), count: 0 }
    }

    /// Decodes a whole Name TLV.
    ///
    /// # Errors
    /// The octets are no Name.
    pub fn decode(wire: &[u8]) -> Result<Self, DecodeError> {
        NameView::decode(wire).map(NameView::to_name)
    }

    #[inline]
    pub fn as_view(&self) -> NameView<'_> {
        NameView::from_scanned(&self.value, self.count)
    }

    pub fn value(&self) -> &[u8] {
        &self.value
    }

    pub const fn component_count(&self) -> usize {
        self.count as usize
    }

    /// Whether the name has no components.
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub fn to_tlv(&self) -> Vec<u8> {
        let mut writer = tlv::Writer::with_capacity(self.value.len() + 6);
        writer.tlv(tlv::NAME, &self.value);
        writer.into_vec()
    }

    pub fn push(&mut self, component: &Component) -> &mut Self {
        self.push_view(component.as_view())
    }

    pub fn push_view(&mut self, component: ComponentView<'_>) -> &mut Self {
        self.value.extend_from_slice(component.wire);
        self.count += 1;
        self
    }

    pub fn append_generic(&mut self, value: &[u8]) -> &mut Self {
        self.push(&Component::generic(value))
    }

    /// Appends a GenericNameComponent with the octets of `text`, which is not parsed as a URI.
    pub fn append_str(&mut self, text: &str) -> &mut Self {
        self.append_generic(text.as_bytes())
    }

    pub fn append_keyword(&mut self, value: &[u8]) -> &mut Self {
        self.push(&Component::keyword(value))
    }

    pub fn append_segment(&mut self, number: u64) -> &mut Self {
        self.push(&Component::segment(number))
    }

    pub fn append_version(&mut self, number: u64) -> &mut Self {
        self.push(&Component::version(number))
    }

    pub fn append_sequence(&mut self, number: u64) -> &mut Self {
        self.push(&Component::sequence(number))
    }

    /// Appends an ImplicitSha256DigestComponent.
    pub fn append_implicit_digest(&mut self, digest: [u8; DIGEST_SIZE]) -> &mut Self {
        self.push(&Component::implicit_digest(digest))
    }

    /// Removes the last component and returns it.
    pub fn pop(&mut self) -> Option<Component> {
        let last = self.as_view().last()?.to_component();
        self.value.truncate(self.value.len() - last.wire().len());
        self.count -= 1;
        Some(last)
    }
}

impl From<NameView<'_>> for Name {
    fn from(view: NameView<'_>) -> Self {
        Self { value: view.value().to_vec(), count: view.component_count() as u32 }
    }
}

impl<'a> From<&'a Name> for NameView<'a> {
    fn from(name: &'a Name) -> Self {
        name.as_view()
    }
}

impl FromIterator<Component> for Name {
    fn from_iter<I: IntoIterator<Item = Component>>(components: I) -> Self {
        let mut name = Self::new();
        for component in components {
            name.push(&component);
        }
        name
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl Eq for Name {}

impl PartialOrd for Name {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Name {
    fn cmp(&self, other: &Self) -> Ordering {
        self.value.cmp(&other.value)
    }
}

impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_view().hash(state);
    }
}

impl fmt::Display for Name {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.as_view(), formatter)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}
