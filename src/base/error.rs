//! The one error type of the library and the status numbers of its C interface.
//!
//! A [`Status`] is what C sees. An [`Error`] is a status with a sentence: what happened and, where
//! possible, what to do about it. Errors are made on failing paths only, so they may own a
//! formatted string.

use std::borrow::Cow;
use std::fmt;
use std::ops::{Deref, DerefMut};

use super::{PartLimit, Shortage};

/// Outcome of a call of the C interface.
///
/// Numbers are append-only: a number once published keeps its meaning for ever.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Status {
    /// The call did what it says.
    Success = 0,
    /// An argument is outside what the call accepts; nothing was changed.
    InvalidArgument = 1,
    /// The memory is not available, even after everything cached was given back.
    OutOfMemory = 2,
    /// There is no device of that ordinal.
    InvalidDevice = 3,
    /// The pointer was never handed out by this library; nothing was changed.
    ForeignPointer = 4,
    /// The pointer is not live any more; nothing was changed.
    DoubleFree = 5,
    /// A setting in the environment is wrong; no allocation succeeds until it is fixed.
    InvalidConfiguration = 6,
    /// No usable driver: the library is missing, too old, or refused to start.
    DriverUnavailable = 7,
    /// The driver answered a call with an error other than a shortage of memory.
    DriverFailed = 8,
    /// The device or the strategy in force cannot do this.
    NotSupported = 9,
    /// The process is a child after `fork`, where no device may be used.
    ForkedChild = 10,
    /// A defect of this library was caught at the C boundary.
    Internal = 11,
    /// A file cannot be opened or written.
    FileFailed = 12,
    /// Another operation is under way that this would disturb; nothing was changed.
    Busy = 13,
    /// A tag or a private pool has reached its limit; memory itself may not be short.
    LimitReached = 14,
    /// The host has no memory for the library's own tables; nothing was changed.
    OutOfHostMemory = 15,
}

impl Status {
    /// Every status, in the order of the numbers.
    pub const ALL: [Self; 16] = [
        Self::Success,
        Self::InvalidArgument,
        Self::OutOfMemory,
        Self::InvalidDevice,
        Self::ForeignPointer,
        Self::DoubleFree,
        Self::InvalidConfiguration,
        Self::DriverUnavailable,
        Self::DriverFailed,
        Self::NotSupported,
        Self::ForkedChild,
        Self::Internal,
        Self::FileFailed,
        Self::Busy,
        Self::LimitReached,
        Self::OutOfHostMemory,
    ];

    /// A short lower-case text, NUL-terminated for C.
    pub const fn text(self) -> &'static std::ffi::CStr {
        match self {
            Self::Success => c"success",
            Self::InvalidArgument => c"invalid argument",
            Self::OutOfMemory => c"out of memory",
            Self::InvalidDevice => c"no such device",
            Self::ForeignPointer => c"pointer not allocated by genesis",
            Self::DoubleFree => c"pointer already freed",
            Self::InvalidConfiguration => c"invalid configuration",
            Self::DriverUnavailable => c"driver unavailable",
            Self::DriverFailed => c"driver call failed",
            Self::NotSupported => c"not supported",
            Self::ForkedChild => c"not usable in a forked child",
            Self::Internal => c"internal error",
            Self::FileFailed => c"file cannot be written",
            Self::Busy => c"busy",
            Self::LimitReached => c"limit reached",
            Self::OutOfHostMemory => c"out of host memory",
        }
    }
}

/// A failed operation. One word large, so that every call of the library hands its result back in
/// registers.
#[derive(Clone, Debug, PartialEq)]
pub struct Error(Box<Failure>);

/// What failed: the status for the program, the message for a person.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    /// What kind of failure it is.
    pub status: Status,
    /// One line, without a trailing stop.
    pub message: Cow<'static, str>,
    /// The figures, if a device's memory was short.
    pub shortage: Option<Shortage>,
    /// The limit, if one of a part of the program stopped the request.
    pub limit: Option<PartLimit>,
}

/// The result of everything that can fail in the library.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error of kind `status` that reads `message`.
    pub fn new(status: Status, message: impl Into<Cow<'static, str>>) -> Self {
        Self::of(Failure { status, message: message.into(), shortage: None, limit: None })
    }

    #[cold]
    fn of(failure: Failure) -> Self {
        Self(Box::new(failure))
    }

    /// Returns true if a request got no memory: there is none, or a limit stops it.
    pub fn is_shortage(&self) -> bool {
        matches!(self.status, Status::OutOfMemory | Status::LimitReached)
    }

    /// An argument is outside what the call accepts.
    pub fn invalid_argument(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Status::InvalidArgument, message)
    }
}

impl From<Shortage> for Error {
    fn from(shortage: Shortage) -> Self {
        Self::of(Failure {
            status: Status::OutOfMemory,
            message: shortage.to_string().into(),
            shortage: Some(shortage),
            limit: None,
        })
    }
}

impl From<PartLimit> for Error {
    fn from(limit: PartLimit) -> Self {
        Self::of(Failure {
            status: Status::LimitReached,
            message: limit.to_string().into(),
            shortage: None,
            limit: Some(limit),
        })
    }
}

impl Deref for Error {
    type Target = Failure;

    fn deref(&self) -> &Failure {
        &self.0
    }
}

impl DerefMut for Error {
    fn deref_mut(&mut self) -> &mut Failure {
        &mut self.0
    }
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_dense_and_texts_distinct() {
        let mut texts = std::collections::HashSet::new();
        for (number, status) in Status::ALL.into_iter().enumerate() {
            assert_eq!(status as usize, number);
            assert!(texts.insert(status.text()), "{status:?} repeats a text");
        }
    }
}
