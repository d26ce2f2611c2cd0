mod basics;
mod check;
mod disks;
mod faults;
mod model;
mod prefix_hits;
mod stale_records;
mod workloads;
