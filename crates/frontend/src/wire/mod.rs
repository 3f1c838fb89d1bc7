//! How requests are read and answers written: the resource manager's manners, in one place.

mod answer;
mod ask;
mod body;
mod page;
mod path;
mod query;
mod refusal;

pub(crate) use answer::Answer;
pub(crate) use ask::{Ask, CLIENT_ID, Ids, Scheme, client_request_id};
pub(crate) use body::Media;
pub(crate) use page::{LIMIT_DEFAULT, PageAsk};
pub(crate) use path::{ResourceId, Spelled, check_segments, clean};
pub(crate) use query::Query;
pub(crate) use refusal::{Code, Refusal, Told, sentence};
