//! Ports for servers that cannot bind port 0.

use std::net::TcpListener;

use anyhow::Context;

use crate::random;

/// A free port. Another process may take it before its user does; the caller then tries another one.
///
/// It is below the range from which the system assigns ports to outgoing connections: in that range a client that
/// keeps reconnecting while the server is down may get the server's own port, connect to itself, and keep the server
/// from restarting.
pub(crate) fn free() -> anyhow::Result<u16> {
    const LOWEST: u16 = 12_000;
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let end = range.split_whitespace().next().and_then(|low| low.parse().ok()).unwrap_or(32_768_u16);
    if let Some(width) = end.checked_sub(LOWEST).filter(|width| *width >= 1_000) {
        for _ in 0..100 {
            let port = LOWEST + u16::try_from(random::number() % u64::from(width))?;
            if TcpListener::bind(("127.0.0.1", port)).is_ok() {
                return Ok(port);
            }
        }
    }
    Ok(TcpListener::bind(("127.0.0.1", 0)).context("no free port")?.local_addr()?.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_free_port_can_be_bound() {
        let port = free().unwrap();
        TcpListener::bind(("127.0.0.1", port)).unwrap();
    }
}
