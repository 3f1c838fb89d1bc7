//! The API over HTTP: converts paths, query strings, media types and bodies to verbs, and results to responses.

mod auth;
mod body;
mod decode;
mod discovery;
mod handle;
mod impersonate;
mod list;
mod logs;
mod negotiate;
mod openapi;
mod options;
mod page;
mod protobuf;
mod query;
mod request_info;
mod reviews;
mod route;
mod serve;
mod swagger_protobuf;
mod table;
mod watch;
mod write;

pub use auth::Credentials;
pub use body::Body;
pub use handle::{ConnectionReset, handle};
pub use serve::{Server, ServerError};
