mod converge;
mod edits;
mod fixture;
mod races;
mod service;
