//! Server-side apply: who owns which field, and what becomes of an object that several managers write.
