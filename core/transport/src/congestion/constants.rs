//! Constants of controllers, by name.

/// The tunable constants of a controller. [`controller_constants!`](crate::controller_constants)
/// implements it.
pub trait Constants: Default {
    const KEYS: &'static [&'static str];

    /// Sets a constant. Returns false if the name is unknown or the value is out of its bounds.
    fn set(&mut self, key: &str, value: f64) -> bool;

    /// A pair whose first must not exceed its second, but does.
    fn out_of_order(&self) -> Option<[(&'static str, f64); 2]>;
}

/// Implements [`Constants`](crate::congestion::Constants) for a struct of `f64` fields. Lists the
/// fields that a text may set, with their bounds. Optionally names a pair in which the first must
/// not exceed the second.
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

/// Upper bound of constants in one text.
const CHANGES_MAX: usize = 8;

/// The constants of a controller that differ from its defaults.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub struct ControllerConstants([Option<(&'static str, f64)>; CHANGES_MAX]);

impl ControllerConstants {
    /// Names and values, in the order in which they were given.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&'static str, f64)> + '_ {
        self.0.iter().copied().flatten()
    }

    /// Appends a constant. Returns false if there is no room.
    pub(super) fn push(&mut self, key: &'static str, value: f64) -> bool {
        let free = self.0.iter_mut().find(|slot| slot.is_none());
        free.map(|slot| *slot = Some((key, value))).is_some()
    }
}
