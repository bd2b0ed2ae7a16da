//! The subcommands, one a file.

pub mod serve;
