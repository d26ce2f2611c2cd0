mod basics;
mod check;
mod disks;
mod faults;
mod model;
mod stale_records;
mod workloads;
