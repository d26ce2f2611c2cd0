mod basics;
mod bed;
mod check;
mod faults;
mod model;
mod returns;
mod workloads;
