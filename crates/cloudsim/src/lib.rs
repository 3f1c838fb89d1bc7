//! A simulated cloud: a small HTTP service that keeps what it holds in a SQLite file of its own.
