//! The limits of a listener.

use std::time::Duration;

/// Limits on what the clients of one listener can make it hold, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListenerLimits {
    /// Connections in total.
    pub connections: usize,
    /// Connections from one IPv4 address, or from one IPv6 network of 64 bits.
    pub connections_per_address: usize,
    /// Longest TLS handshake.
    pub handshake: Duration,
    /// Longest wait for the first byte of a connection.
    pub first_byte: Duration,
    /// Longest time from the first byte of a request head to its last.
    pub head: Duration,
    /// Longest wait for the next request when none is active. Zero closes the connection after each response.
    pub idle: Duration,
    /// Longest pause in a request body.
    pub body_pause: Duration,
    /// Longest time in which a client reads nothing of a response that is ready.
    pub stall: Duration,
    /// Longest time for active responses after the listener shut down or another connection displaced theirs.
    pub closing: Duration,
    /// Requests that share one HTTP/2 connection.
    pub streams: u32,
    /// Largest request head, in bytes.
    pub head_bytes: usize,
}

impl Default for ListenerLimits {
    /// For servers that unauthenticated clients can reach. `idle` is longer than most clients keep a connection, so that they close
    /// first.
    fn default() -> ListenerLimits {
        ListenerLimits {
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
