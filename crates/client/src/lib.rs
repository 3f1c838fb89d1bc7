//! The typed client of the Admin API: what the command line and the portal speak through.
