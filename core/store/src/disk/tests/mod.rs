mod basics;
mod bed;
mod check;
mod model;
