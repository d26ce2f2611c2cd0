//! The front.
/// Why a front does not start.
#[derive(Debug, thiserror::Error)]
pub enum FrontError {}
/// x
pub struct Front {}
