//! The promises of the store, asked of both engines: one suite, each test once on SQLite and once on PostgreSQL.
//! `SHIPSHAPE_SOAK=1` runs the long variants of the same code.

#[macro_use]
mod bed;

mod basics;
