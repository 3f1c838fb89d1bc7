mod bed;
mod converge;
mod edits;
mod races;
mod service;
