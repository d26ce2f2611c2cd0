mod basics;
mod check;
mod disks;
mod faults;
mod model;
mod returns;
mod workloads;
