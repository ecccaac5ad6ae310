//! The profile as JSON: the form that is kept, and the only one that is read back.
//!
//! The document is [`Profile`] field by field; only the history's events are packed (the
//! reason and the layout stand in `packed.rs`). A reader looks at `format` first: what it does
//! not know is refused, whatever else the document says. What is read has been checked
//! ([`Profile::validate`]), so its indices lead somewhere.

use std::fmt;
use std::io::{self, Write};

use serde::Deserialize;

use crate::model::{FORMAT, Profile};

/// Why a document is not a profile.
#[derive(Debug)]
pub enum ReadError {
    /// It is not JSON, or not of the shape of a profile.
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
/// A [`ReadError`], for whatever else `document` may be.
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
