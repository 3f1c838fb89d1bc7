//! The limits of a listener.

use std::time::Duration;

/// What the clients of one listener may make it hold, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Connections in total.
    pub connections: usize,
    /// Connections from one IPv4 address, or from one IPv6 network of 64 bits.
    pub connections_per_address: usize,
    /// Longest TLS handshake.
    pub handshake: Duration,
    /// Longest wait for the first byte of a connection.
    pub first_byte: Duration,
    /// Longest time from the first byte of a request's head to its last.
    pub head: Duration,
    /// Longest wait for the next request when none is under way. Zero closes the connection after each response.
    pub idle: Duration,
    /// Longest pause in a request body that a handler reads.
    pub body_pause: Duration,
    /// Longest time in which a client takes nothing of a response that is ready for it.
    pub stall: Duration,
    /// Longest time for responses under way when the listener ends, or when another connection has taken the place of theirs.
    pub closing: Duration,
    /// Requests that share one HTTP/2 connection.
    pub streams: u32,
    /// Largest head of a request, in bytes.
    pub head_bytes: usize,
}

impl Default for Limits {
    /// For servers that strangers can reach. `idle` is longer than most clients keep a connection, so that they close first.
    fn default() -> Limits {
        Limits {
            connections: 1024,
            connections_per_address: 512,
            handshake: Duration::from_secs(10),
            first_byte: Duration::from_secs(10),
            head: Duration::from_secs(15),
            idle: Duration::from_secs(95),
            body_pause: Duration::from_secs(30),
            stall: Duration::from_secs(120),
            closing: Duration::from_secs(10),
            streams: 100,
            head_bytes: 64 * 1024,
        }
    }
}
