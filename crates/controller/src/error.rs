//! Errors of requests, with what they were for.

use std::error::Error as StdError;
use std::fmt;

use api::error::{Class, Classify};

/// A request of a controller that failed.
#[derive(Debug, thiserror::Error)]
#[error("failed to {verb} {target}: {}", describe(.source))]
pub struct RequestError {
    /// The verb, as it continues "failed to".
    pub verb: &'static str,
    /// Kind and name of the object.
    pub target: String,
    /// The failure, described in this error's message.
    pub source: kube::Error,
}

impl RequestError {
    /// The error of a request that `verb` made for `target`.
    pub fn new(verb: &'static str, target: impl fmt::Display, source: kube::Error) -> RequestError {
        RequestError { verb, target: target.to_string(), source }
    }

    fn code(&self) -> Option<u16> {
        match &self.source {
            kube::Error::Api(status) => Some(status.code),
            _ => None,
        }
    }

    /// Whether the object does not exist.
    pub fn is_not_found(&self) -> bool {
        self.code() == Some(404)
    }

    /// Whether the object was changed since it was read, or exists already.
    pub fn is_conflict(&self) -> bool {
        self.code() == Some(409)
    }

    /// Whether the request may have had its effect although it failed: its response was lost, or the API server gave up on it.
    pub fn is_ambiguous(&self) -> bool {
        match &self.source {
            kube::Error::Api(status) => matches!(status.code, 500 | 502 | 503 | 504),
            kube::Error::HyperError(_) | kube::Error::Service(_) | kube::Error::ReadEvents(_) => true,
            _ => false,
        }
    }
}

impl Classify for RequestError {
    fn class(&self) -> Class {
        match &self.source {
            // 404 and 409 are the view of a moment; the rest of 4xx says that the request itself is wrong or denied.
            kube::Error::Api(status) => match status.code {
                404 | 408 | 409 | 410 | 429 | 500.. => Class::Transient,
                _ => Class::Terminal,
            },
            kube::Error::HyperError(_) | kube::Error::Service(_) | kube::Error::ReadEvents(_) => {
                Class::Transient
            }
            _ => Class::Terminal,
        }
    }
}

/// The message of a failed request. That of an API server is meant to be read alone; what kube adds to it is not.
fn describe(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if status.message.is_empty() => {
            format!("the API server responded with {}", status.code)
        }
        kube::Error::Api(status) => format!("{} ({})", status.message, status.code),
        other => error_chain(other),
    }
}

/// An error and its causes in one line. A cause that its error already quotes is left out.
pub(crate) fn error_chain(error: &dyn StdError) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_names_verb_object_and_what_the_api_server_said() {
        let status = kube::core::Status::failure("quota exceeded", "Forbidden").with_code(403);
        let error = RequestError::new("create", "ConfigMap web/a", kube::Error::Api(status.boxed()));
        assert_eq!(error.to_string(), "failed to create ConfigMap web/a: quota exceeded (403)");
        assert_eq!((error.class(), error.is_ambiguous()), (Class::Terminal, false));
    }

    #[test]
    fn a_lost_response_may_have_had_its_effect() {
        let lost = kube::Error::Service("connection reset".into());
        let error = RequestError::new("create", "ConfigMap web/a", lost);
        assert_eq!((error.class(), error.is_ambiguous()), (Class::Transient, true));
    }
}
