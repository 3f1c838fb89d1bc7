//! The operators' web pages, rendered here: a client of the Admin API. It has no store.
