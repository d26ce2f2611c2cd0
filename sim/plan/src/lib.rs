#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod app;
mod draws;
mod error;
pub mod event;
pub mod hash;
mod plan;
mod validate;
pub mod workload;

pub use draws::filler_prefix;
pub use error::PlanError;
pub use plan::{
    Compare, ControllerPlan, CpuPlan, DISKS_MAX, DiskExperiments, DiskPlan, Fault, FaultPlan,
    IndexKind, LinkPackets, LinkPlan, NodePlan, Plan, Role, RoutePlan, RouterPlan, RoutesPlan,
    StagePlan, StagesPlan, StoreExperiments, StoreIo, Transport, WhenFull,
};
