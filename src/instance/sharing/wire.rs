//! The messages between an importing and an exporting process. Each has a fixed size.
//!
//! | request | answer |
//! |---|---|
//! | import | a description of the memory; then the extents, some in each message |
//! | release | none |
//! | discard | a description of nothing, or a failure |

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use crate::base::{Error, Result, Status};
use crate::driver::SegmentHandle;
use crate::heap::{Incoming, Outgoing, ShareId};
use crate::process::{Line, MOST_FILES};

const REQUEST_BYTES: usize = 32;
const ANSWER_BYTES: usize = 96;
const FILES_BYTES: usize = 8 * (1 + MOST_FILES);
/// More extents than a block can have.
const MOST_EXTENTS: u64 = 1 << 24;

/// What an importing process asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Request {
    /// The memory of a block, by a handle's share, token and size.
    Import(ShareId, u64, u64),
    /// The end of one use of a block.
    Release(ShareId),
    /// The end of a handle.
    Discard(ShareId, u64),
}

impl Request {
    pub(super) fn send(self, line: &Line) -> io::Result<()> {
        let words = match self {
            Self::Import(share, token, bytes) => [1, share, token, bytes],
            Self::Release(share) => [2, share, 0, 0],
            Self::Discard(share, token) => [3, share, token, 0],
        };
        let mut message = [0; REQUEST_BYTES];
        put(&mut message, &words);
        line.send(&message, &[])
    }

    pub(super) fn receive(line: &Line) -> io::Result<Self> {
        let mut message = [0; REQUEST_BYTES];
        line.receive(&mut message)?;
        match get(&message, 0) {
            1 => Ok(Self::Import(get(&message, 1), get(&message, 2), get(&message, 3))),
            2 => Ok(Self::Release(get(&message, 1))),
            3 => Ok(Self::Discard(get(&message, 1), get(&message, 2))),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

/// Sends the answer to a request: memory, nothing, or why there is none.
pub(super) fn send_answer(line: &Line, answer: &Result<Option<Outgoing>>) -> io::Result<()> {
    let mut message = [0; ANSWER_BYTES];
    let words = match answer {
        Ok(None) => [0, 0, 0, 0],
        Ok(Some(Outgoing::Segment { handle, offset_bytes })) => {
            message[32..].copy_from_slice(handle);
            [0, 1, *offset_bytes, 0]
        }
        Ok(Some(Outgoing::Extents { files, offset_bytes })) => {
            [0, 2, *offset_bytes, files.len() as u64]
        }
        Err(error) => [error.status as u64, 0, 0, 0],
    };
    put(&mut message, &words);
    line.send(&message, &[])?;
    let Ok(Some(Outgoing::Extents { files, .. })) = answer else { return Ok(()) };
    for some in files.chunks(MOST_FILES) {
        let mut message = [0; FILES_BYTES];
        let sizes = some.iter().map(|(_, bytes)| *bytes);
        let words: Vec<u64> = std::iter::once(some.len() as u64).chain(sizes).collect();
        put(&mut message, &words);
        let descriptors: Vec<_> = some.iter().map(|(file, _)| file.as_fd()).collect();
        line.send(&message, &descriptors)?;
    }
    Ok(())
}

/// Receives the answer to a request. The outer error is the line's.
pub(super) fn receive_answer(line: &Line) -> io::Result<Result<Option<Incoming>>> {
    let mut message = [0; ANSWER_BYTES];
    line.receive(&mut message)?;
    let [status, kind, offset_bytes, count] = [0, 1, 2, 3].map(|index| get(&message, index));
    if status != 0 {
        let known = Status::ALL.into_iter().find(|known| *known as u64 == status);
        let status = known.unwrap_or(Status::Internal);
        return Ok(Err(Error::new(status, "the exporting process refused")));
    }
    Ok(Ok(match kind {
        0 => None,
        1 => {
            let mut handle: SegmentHandle = [0; 64];
            handle.copy_from_slice(&message[32..]);
            Some(Incoming::Segment { handle, offset_bytes })
        }
        2 if count <= MOST_EXTENTS => {
            Some(Incoming::Extents { files: receive_files(line, count)?, offset_bytes })
        }
        _ => return Err(io::ErrorKind::InvalidData.into()),
    }))
}

fn receive_files(line: &Line, count: u64) -> io::Result<Vec<(OwnedFd, u64)>> {
    let mut files = Vec::new();
    while (files.len() as u64) < count {
        let mut message = [0; FILES_BYTES];
        let some = line.receive(&mut message)?;
        if some.is_empty() || some.len() as u64 != get(&message, 0) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let sizes = (1..).map(|index| get(&message, index));
        files.extend(some.into_iter().zip(sizes));
    }
    Ok(files)
}

fn put(message: &mut [u8], words: &[u64]) {
    for (place, word) in message.chunks_exact_mut(8).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
}

fn get(message: &[u8], index: usize) -> u64 {
    let bytes = message.get(index * 8..index * 8 + 8);
    bytes.and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes)
}
