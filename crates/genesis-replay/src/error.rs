//! The one error type of a replay: a sentence for its reader, and the kind of fault.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A replay that could not be done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Error {
    /// One line, without a trailing stop.
    pub message: String,
    /// True if the request is at fault (an unknown strategy, no such file), false if something
    /// failed while it was carried out.
    pub is_usage: bool,
}

/// The result of everything that can fail here.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Something failed while the request was carried out.
    pub fn failed(message: impl Into<String>) -> Self {
        Self { message: message.into(), is_usage: false }
    }

    /// The request cannot be carried out.
    pub fn usage(message: impl Into<String>) -> Self {
        Self { message: message.into(), is_usage: true }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl std::error::Error for Error {}
