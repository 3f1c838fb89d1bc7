//! The engine on a small world, under a virtual clock.

mod failing;
mod faults;
mod fixture;
mod progress;
mod releasing;
mod undoing;
