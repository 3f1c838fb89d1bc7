//! The simulated cloud as its users meet it: service and client, every verb, every fault, restarts, installations.

mod bed;
mod faults;
mod installing;
mod people;
mod resources;
mod restarts;
mod stores;
