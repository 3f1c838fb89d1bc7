//! Reading requests and writing responses, by the conventions of the resource manager.

mod body;
mod error;
mod page;
mod path;
mod query;
mod request;
mod response;

pub(crate) use body::Media;
pub(crate) use error::{ApiError, Code, LoggedError, as_sentence};
pub(crate) use page::{LIMIT_DEFAULT, PageRequest};
pub(crate) use path::{OriginalPath, ResourceId, check_segments, clean};
pub(crate) use query::Query;
pub(crate) use request::{ApiRequest, CLIENT_ID, RequestIds, Scheme, WRITE_ATTEMPTS_MAX, client_request_id};
pub(crate) use response::ApiResponse;
