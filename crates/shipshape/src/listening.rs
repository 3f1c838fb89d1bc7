//! Listen addresses, and error messages for those that cannot be bound.

use std::io;
use std::net::SocketAddr;

use anyhow::anyhow;
use tokio::net::TcpListener;

/// A listen address with its setting and flag.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Listen {
    /// The setting.
    pub(crate) key: &'static str,
    /// The flag.
    pub(crate) flag: &'static str,
    /// The address.
    pub(crate) address: SocketAddr,
}

impl Listen {
    /// Binds the address.
    pub(crate) async fn bind(self) -> anyhow::Result<TcpListener> {
        TcpListener::bind(self.address).await.map_err(|error| self.bind_error(&error))
    }

    /// Checks that the address can be bound. Another process may still bind it afterwards; then the listener reports it.
    #[cfg(feature = "services")]
    pub(crate) async fn ensure_free(self) -> anyhow::Result<()> {
        self.bind().await.map(drop)
    }

    fn bind_error(self, error: &io::Error) -> anyhow::Error {
        let Listen { key, flag, address } = self;
        let advice = format!("pass another with {flag} ADDRESS:PORT or {key}");
        match error.kind() {
            io::ErrorKind::AddrInUse => {
                anyhow!("{key} {address}: the port is in use by another process; {advice}")
            }
            io::ErrorKind::AddrNotAvailable => {
                anyhow!("{key} {address}: the address does not exist on this machine; {advice}")
            }
            io::ErrorKind::PermissionDenied => {
                anyhow!("{key} {address}: the user is not allowed to open this port; {advice}")
            }
            _ => anyhow!("{key} {address}: {error}; {advice}"),
        }
    }
}
