//! The HTTP API. It validates, writes and answers; long work is left to others.
