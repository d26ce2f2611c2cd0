mod basics;
mod bed;
