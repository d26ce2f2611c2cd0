//! Constants of controllers by name.

/// The constants of a controller, which a text may change. Made by
/// [`controller_constants!`](crate::controller_constants).
pub trait Constants: Default {
    /// Their names.
    const KEYS: &'static [&'static str];

    /// Changes one. Returns whether there is one of this name that may have this value.
    fn set(&mut self, key: &str, value: f64) -> bool;

    /// Two that contradict each other: the first must not be above the second.
    fn out_of_order(&self) -> Option<[(&'static str, f64); 2]>;
}

/// Implements [`Constants`](crate::congestion::Constants) for a struct: which of its fields, all
/// `f64`, a text may change, the bounds of each, and which of two must not be above the other.
///
/// ```
/// #[derive(Default)]
/// struct HalvingConfig {
///     step: f64,
///     least: f64,
///     most: f64,
/// }
///
/// weir_transport::controller_constants!(HalvingConfig {
///     step in 0.01..=100.0,
///     least in 0.0..=1.0,
///     most in 0.0..=1.0,
/// } least <= most);
/// ```
#[macro_export]
macro_rules! controller_constants {
    ($config:ty { $($key:ident in $range:expr,)* } $($low:ident <= $high:ident)?) => {
        impl $crate::congestion::Constants for $config {
            const KEYS: &'static [&'static str] = &[$(stringify!($key)),*];

            fn set(&mut self, key: &str, value: f64) -> bool {
                match (key, value) {
                    $((key, value) if key == stringify!($key) && ($range).contains(&value) => {
                        self.$key = value;
                        true
                    })*
                    _ => false,
                }
            }

            fn out_of_order(&self) -> Option<[(&'static str, f64); 2]> {
                $(if self.$low > self.$high {
                    return Some([
                        (stringify!($low), self.$low),
                        (stringify!($high), self.$high),
                    ]);
                })?
                None
            }
        }
    };
}

/// Constants that one text may change at most.
const CHANGES_MAX: usize = 8;

/// Constants of a controller that differ from its defaults.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub struct ControllerConstants([Option<(&'static str, f64)>; CHANGES_MAX]);

impl ControllerConstants {
    /// Names and values, in the order in which they were given.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&'static str, f64)> + '_ {
        self.0.iter().copied().flatten()
    }

    /// Appends one. Returns whether there was a place for it.
    pub(super) fn push(&mut self, key: &'static str, value: f64) -> bool {
        let free = self.0.iter_mut().find(|place| place.is_none());
        free.map(|place| *place = Some((key, value))).is_some()
    }
}
