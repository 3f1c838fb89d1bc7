//! Addresses to listen on: whether they can be had, before anything is touched, and why not, in a sentence.

use std::io;
use std::net::SocketAddr;

use anyhow::anyhow;
use tokio::net::TcpListener;

/// A setting that names an address to listen on, and the flag for it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Listen {
    /// The setting.
    pub(crate) key: &'static str,
    /// The flag.
    pub(crate) flag: &'static str,
    /// Where.
    pub(crate) address: SocketAddr,
}

impl Listen {
    /// Takes the address.
    pub(crate) async fn bind(self) -> anyhow::Result<TcpListener> {
        TcpListener::bind(self.address).await.map_err(|error| self.refusal(&error))
    }

    /// Whether the address can be had. Somebody else may take it the moment after; then whoever needs it says so.
    #[cfg(feature = "services")]
    pub(crate) async fn ensure_free(self) -> anyhow::Result<()> {
        self.bind().await.map(drop)
    }

    fn refusal(self, error: &io::Error) -> anyhow::Error {
        let Listen { key, flag, address } = self;
        let advice = format!("choose another with {flag} ADDRESS:PORT or {key}");
        match error.kind() {
            io::ErrorKind::AddrInUse => {
                anyhow!("{key} {address}: the port is in use by another process; {advice}")
            }
            io::ErrorKind::AddrNotAvailable => {
                anyhow!("{key} {address}: this machine does not have that address; {advice}")
            }
            io::ErrorKind::PermissionDenied => {
                anyhow!("{key} {address}: this user may not open that port; {advice}")
            }
            _ => anyhow!("{key} {address}: {error}; {advice}"),
        }
    }
}
