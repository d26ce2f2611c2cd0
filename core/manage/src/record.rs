//! Structures of the protocol, declared as tables with one line for each field.
//!
//! [`codec!`] generates the decoder and the encoder of a structure from lines `TYPE "Name" =>
//! field;`. Their order is that of encoding; elements are decoded in any order. A field of a type
//! like `u64` is required, an `Option` or `Vec` is optional. With `unless VALUE`, a field with this
//! value is not sent, and it is the default for a missing element.
//!
//! [`record!`] also declares the structure. Unknown critical elements are errors (NDN packet 0.3,
//! TLV evolvability), except elements that `ignores` accepts.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use weir_base::FaceId;
use weir_wire::Name;

use crate::element::{Element, RawElement, Writer};
use crate::error::DecodeError;
use crate::numbers::{FaceEventKind, FacePersistency, FaceScope, LinkType, types};
use crate::store_disk::CsDiskInfo;

/// A type that a field of a structure can have.
pub(crate) trait Field {
    /// Whether a structure without the field is malformed.
    const IS_REQUIRED: bool = true;

    /// Decodes the field from an element. `what` is its name in the protocol.
    fn read(&mut self, element: RawElement<'_>, what: &'static str) -> Result<(), DecodeError>;

    /// Appends the field as an element.
    fn write(&self, typ: u32, writer: &mut Writer);
}

impl Field for u64 {
    fn read(&mut self, element: RawElement<'_>, _: &'static str) -> Result<(), DecodeError> {
        *self = element.number()?;
        Ok(())
    }

    fn write(&self, typ: u32, writer: &mut Writer) {
        writer.number(typ, *self);
    }
}

impl Field for FaceId {
    fn read(&mut self, element: RawElement<'_>, what: &'static str) -> Result<(), DecodeError> {
        self.0.read(element, what)
    }

    fn write(&self, typ: u32, writer: &mut Writer) {
        self.0.write(typ, writer);
    }
}

impl Field for String {
    fn read(&mut self, element: RawElement<'_>, what: &'static str) -> Result<(), DecodeError> {
        *self = element.text(what)?;
        Ok(())
    }

    fn write(&self, typ: u32, writer: &mut Writer) {
        writer.text(typ, self);
    }
}

/// A Name, or an element whose value is a Name, as in Strategy.
impl Field for Name {
    fn read(&mut self, element: RawElement<'_>, _: &'static str) -> Result<(), DecodeError> {
        let is_bare = element.typ == types::NAME;
        *self = if is_bare { element.name()? } else { element.inner_name()? };
        Ok(())
    }

    fn write(&self, typ: u32, writer: &mut Writer) {
        if typ == types::NAME {
            writer.name(self);
        } else {
            writer.nested(typ, |inner| {
                inner.name(self);
            });
        }
    }
}

macro_rules! number_fields {
    ($($enum:ident),+) => {
        $(impl Field for $enum {
            fn read(
                &mut self,
                element: RawElement<'_>,
                _: &'static str,
            ) -> Result<(), DecodeError> {
                *self = Self::from_number(element.number()?)?;
                Ok(())
            }

            fn write(&self, typ: u32, writer: &mut Writer) {
                writer.number(typ, self.number());
            }
        })+
    };
}

number_fields!(FaceEventKind, FacePersistency, FaceScope, LinkType);

impl Field for CsDiskInfo {
    fn read(&mut self, element: RawElement<'_>, _: &'static str) -> Result<(), DecodeError> {
        *self = Self::decode_value(element.value)?;
        Ok(())
    }

    fn write(&self, _: u32, writer: &mut Writer) {
        writer.element(self);
    }
}

impl<E: Element> Field for Box<E> {
    fn read(&mut self, element: RawElement<'_>, _: &'static str) -> Result<(), DecodeError> {
        **self = E::decode_value(element.value)?;
        Ok(())
    }

    fn write(&self, _: u32, writer: &mut Writer) {
        writer.element(self.as_ref());
    }
}

impl<F: Field + Default> Field for Option<F> {
    const IS_REQUIRED: bool = false;

    fn read(&mut self, element: RawElement<'_>, what: &'static str) -> Result<(), DecodeError> {
        let mut field = F::default();
        field.read(element, what)?;
        *self = Some(field);
        Ok(())
    }

    fn write(&self, typ: u32, writer: &mut Writer) {
        if let Some(field) = self {
            field.write(typ, writer);
        }
    }
}

/// All elements of one type.
impl<E: Element> Field for Vec<E> {
    const IS_REQUIRED: bool = false;

    fn read(&mut self, element: RawElement<'_>, _: &'static str) -> Result<(), DecodeError> {
        self.push(E::decode_value(element.value)?);
        Ok(())
    }

    fn write(&self, _: u32, writer: &mut Writer) {
        for element in self {
            writer.element(element);
        }
    }
}

/// Whether a structure without this field is malformed.
pub(crate) fn is_required<F: Field>(_: &F) -> bool {
    F::IS_REQUIRED
}

macro_rules! codec {
    ($name:ident: $type:ident $(, ignores $ignores:expr)?; $($lines:tt)+) => {
        impl $crate::element::Element for $name {
            const TYPE: u32 = $crate::numbers::types::$type;

            fn decode_value(value: &[u8]) -> Result<Self, $crate::error::DecodeError> {
                Self::read_fields(value)
            }

            fn encode_value(&self, writer: &mut $crate::element::Writer) {
                self.write_fields(writer);
            }
        }

        $crate::record::codec! { $name $(, ignores $ignores)?; $($lines)+ }
    };
    ($name:ident $(, ignores $ignores:expr)?; $(
        $typ:ident $what:literal => $($path:ident).+ $(, unless $none:literal)?;
    )+) => {
        impl $name {
            fn read_fields(value: &[u8]) -> Result<Self, $crate::error::DecodeError> {
                use $crate::{numbers::types, record::Field};
                const TYPES: &[u32] = &[$(types::$typ),+];
                let is_ignored = |_typ: u32| false $(|| $ignores(_typ))?;
                let mut record = Self::default();
                let mut found = 0_u64;
                for element in $crate::element::Elements::new(value) {
                    let element = element?;
                    match element.typ {
                        $(types::$typ => record.$($path).+.read(element, $what)?,)+
                        typ if is_ignored(typ) => {}
                        _ => element.skip()?,
                    }
                    if let Some(at) = TYPES.iter().position(|typ| *typ == element.typ) {
                        found |= 1 << at;
                    }
                }
                let mut is_found = (0..TYPES.len()).map(|at| found >> at & 1 == 1);
                $(
                    let may_lack = false $(|| { let _ = $none; true })?
                        || !$crate::record::is_required(&record.$($path).+);
                    if is_found.next() != Some(true) && !may_lack {
                        return Err($crate::error::DecodeError::Missing { element: $what });
                    }
                )+
                Ok(record)
            }

            fn write_fields(&self, writer: &mut $crate::element::Writer) {
                use $crate::{numbers::types, record::Field};
                $(
                    let field = &self.$($path).+;
                    if true $(&& *field != $none)? {
                        field.write(types::$typ, writer);
                    }
                )+
            }
        }
    };
}

macro_rules! record {
    (
        $(#[$meta:meta])*
        $name:ident $(: $type:ident)? $(, ignores $ignores:expr)?;
        $(
            $(#[$field_meta:meta])*
            $field:ident: $field_type:ty = $typ:ident $what:literal;
        )+
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct $name {
            $($(#[$field_meta])* pub $field: $field_type,)+
        }

        $crate::record::codec! {
            $name $(: $type)? $(, ignores $ignores)?; $($typ $what => $field;)+
        }
    };
}

pub(crate) use {codec, record};
