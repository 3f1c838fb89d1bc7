//! The engine on a small world, under a virtual clock.

mod bed;
mod failing;
mod leaving;
mod mishaps;
mod showing;
mod undoing;
