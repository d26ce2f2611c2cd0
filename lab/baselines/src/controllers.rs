//! Congestion controllers of the papers.

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

/// Those of every build, and those of the papers.
pub const CONTROLLERS: Controllers = Controllers::new(&[
    Controller::CUBIC,
    Controller::AIMD,
    Controller::FIXED,
    Controller::of::<Icp>("icp"),
    // What is different in HR-ICP is the shaping of Interests in the routers.
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
