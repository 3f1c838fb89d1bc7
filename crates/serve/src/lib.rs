//! Listeners. One accept loop for every server of the workspace: TLS whose certificate is read again when its file changes,
//! HTTP/1.1 and HTTP/2, and limits on everything that a client can make a server hold.
//!
//! A connection is *waiting* while no request is under way on it: during the handshake, before the first byte, while a request's
//! head arrives, and between requests. Waiting has a limit in each of these phases; pings of HTTP/2 do not extend it. A request
//! is *under way* until its response body has been written, so event streams and watches last as long as they are used. A client that
//! takes nothing of a response, or sends nothing of a request body, is cut off after a limit of its own.
//!
//! When a listener has as many connections as it may, in total or from one address, a new one takes the place of the one that has
//! been waiting longest, of those that never sent a request first. It is closed only when all of them have requests under way.
//!
//! It knows no routes and no identities: a [`Handler`] makes a service for each connection.

mod activity;
mod body;
mod connection;
mod limits;
mod listener;
mod names;
pub mod pki;
mod private_file;
mod registry;
#[cfg(test)]
mod tests;
pub mod tls;

pub use body::{BodyError, RequestBody, ResponseBody, ResponseData};
pub use limits::Limits;
pub use listener::{
    ClientAddress, ConnectionEvent, Handler, Listener, Peer, SameService, client_network, reachable,
};
pub use names::{HostNames, host_of, is_loopback_name};
pub use private_file::{write_private, write_private_unsynced};
