//! Distances on earth, and the delay of light in fibre. The results are the same on every machine
//! because the functions come from `libm`; plans depend on them.

/// Mean radius of the earth, in metres.
const EARTH_RADIUS_M: f64 = 6_371_008.8;
/// Speed of light in fibre: two thirds of that in vacuum, in metres per second.
const FIBRE_SPEED_M_PER_S: f64 = 299_792_458.0 * 2.0 / 3.0;

/// Great-circle distance of two points `(longitude, latitude)` in degrees, in metres (haversine).
pub(crate) fn distance_m(from: (f64, f64), to: (f64, f64)) -> f64 {
    let (latitude_a, latitude_b) = (from.1.to_radians(), to.1.to_radians());
    let half_latitude = libm::sin((latitude_b - latitude_a) / 2.0);
    let half_longitude = libm::sin((to.0 - from.0).to_radians() / 2.0);
    let h = half_latitude * half_latitude
        + libm::cos(latitude_a) * libm::cos(latitude_b) * half_longitude * half_longitude;
    2.0 * EARTH_RADIUS_M * libm::asin(h.sqrt().min(1.0))
}

/// Delay of light in fibre (2/3 c) along the great circle, in nanoseconds, rounded to 1 us.
///
/// Coordinates of towns are not more precise.
pub(crate) fn delay_ns(from: (f64, f64), to: (f64, f64)) -> u64 {
    let us = distance_m(from, to) / FIBRE_SPEED_M_PER_S * 1e6;
    us.round() as u64 * 1_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_those_of_the_atlas() {
        // London to New York is about 5,570 km; a quarter of a great circle is 10,007.5 km.
        let km = distance_m((-0.1278, 51.5074), (-74.0060, 40.7128)) / 1e3;
        assert!((km - 5_570.0).abs() < 5.0, "{km}");
        let km = distance_m((10.0, 0.0), (10.0, 90.0)) / 1e3;
        assert!((km - 10_007.6).abs() < 0.1, "{km}");
        assert_eq!(distance_m((5.0, 5.0), (5.0, 5.0)), 0.0);
        // Antipodes must not leave the domain of the arc sine.
        assert!(distance_m((0.0, 0.0), (180.0, 0.0)).is_finite());
    }

    #[test]
    fn light_takes_five_microseconds_a_kilometre() {
        let delay = delay_ns((0.0, 0.0), (0.0, 1.0));
        assert_eq!(delay, 556_000);
    }
}
