//! Congestion controllers of papers.

mod chopcop;
mod delay;
mod icp;
mod ictp;
mod nb_cc;

use weir_transport::{Controller, Controllers};

use self::chopcop::Chopcop;
use self::delay::Delay;
use self::icp::Icp;
use self::ictp::Ictp;
use self::nb_cc::NbCc;

/// The controllers of every build, and those of papers.
pub const CONTROLLERS: Controllers = Controllers::new(&[
    Controller::CUBIC,
    Controller::AIMD,
    Controller::FIXED,
    Controller::of::<Icp>("icp"),
    // HR-ICP differs only in the shaping of Interests by routers.
    Controller::of::<Icp>("hr-icp"),
    Controller::of::<Ictp>("ictp"),
    Controller::of::<Chopcop>("chopcop"),
    Controller::of::<NbCc>("nb-cc"),
    Controller::of::<Delay>("delay"),
    Controller::LEDBAT,
    Controller::WEIR,
]);

#[cfg(test)]
mod tests;
