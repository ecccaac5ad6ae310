//! The profile as JSON, the form for keeping and the only one that can be read back.
//!
//! The document is [`Profile`] field by field; only the history's events are packed (see
//! `packed.rs`). A reader checks `format` first and refuses an unknown one, whatever the rest says.
//! A profile that was read is valid ([`Profile::validate`]), so its indices are in range.

use std::fmt;
use std::io::{self, Write};

use serde::Deserialize;

use crate::model::{FORMAT, Profile};

/// The reason why a document is not a profile.
#[derive(Debug)]
pub enum ReadError {
    /// It is not JSON, or lacks the fields of a profile.
    Malformed(serde_json::Error),
    /// Its `format` is this, not [`FORMAT`].
    Format(String),
    /// It contradicts itself.
    Inconsistent(String),
}

/// Writes `profile` to `out`.
///
/// # Errors
/// Those of `out`.
pub fn write(profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    Ok(serde_json::to_writer(out, profile)?)
}

/// Reads what [`write`] wrote.
///
/// # Errors
/// A [`ReadError`] for any other document.
pub fn read(document: &[u8]) -> Result<Profile, ReadError> {
    #[derive(Deserialize)]
    struct Head {
        #[serde(default)]
        format: String,
    }
    let head: Head = serde_json::from_slice(document).map_err(ReadError::Malformed)?;
    if head.format != FORMAT {
        return Err(ReadError::Format(head.format));
    }
    let profile: Profile = serde_json::from_slice(document).map_err(ReadError::Malformed)?;
    profile.validate().map_err(ReadError::Inconsistent)?;
    Ok(profile)
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(error) => write!(f, "not a profile: {error}"),
            Self::Format(found) if found.is_empty() => {
                write!(f, "not a profile: it does not say \"format\": \"{FORMAT}\"")
            }
            Self::Format(found) => {
                write!(f, "not a profile this version reads: \"{found}\" instead of \"{FORMAT}\"")
            }
            Self::Inconsistent(what) => write!(f, "a profile that contradicts itself: {what}"),
        }
    }
}

impl std::error::Error for ReadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Malformed(error) => Some(error),
            _ => None,
        }
    }
}
