//! Listeners. One accept loop for every server of the workspace: TLS with a certificate that is reloaded when its file changes,
//! HTTP/1.1 and HTTP/2, and limits on everything that a client can make a server hold.
//!
//! A connection is *idle* while no request is active on it: during the handshake, before the first byte, while the head of a
//! request arrives, and between requests. Each of these phases has a time limit, which HTTP/2 pings do not extend. A request is
//! *active* until its response body is written, so event streams and watches last as long as they are used. A client that reads
//! nothing of a response, or sends nothing of a request body, is disconnected after a limit of its own.
//!
//! When a listener has reached its limit of connections, in total or from one address, a new connection displaces the one that has
//! been idle longest, preferring those that never sent a request. The new connection is closed only if all others have active
//! requests.
//!
//! The crate knows no routes and no identities: a [`ConnectionHandler`] creates a service for each connection.

mod activity;
mod body;
mod connection;
mod host_names;
mod limits;
mod listener;
pub mod pki;
mod private_file;
mod registry;
#[cfg(test)]
mod tests;
pub mod tls;

pub use body::{BodyError, RequestBody, ResponseBody, ResponseData};
pub use host_names::{HostNames, authority_host, is_loopback_name};
pub use limits::ListenerLimits;
pub use listener::{
    ClientAddress, ConnectionEvent, ConnectionHandler, Listener, Peer, SharedService, client_network,
    reachable_address,
};
pub use private_file::{write_private, write_private_unsynced};
