//! Locks on single bytes of a file, held by an open file and not by a process or a thread.
//!
//! The kernel ends them when the last copy of the descriptor is closed, as at the end of a process.
//! A forked child has such a copy, which the owner of the file has it close at once.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// Locks the byte at `offset` for this file alone, unless another has it; returns true if it did.
pub(crate) fn try_lock(file: &File, offset: u64) -> io::Result<bool> {
    try_lock_from(file, offset, 1)
}

/// The same for `length` bytes.
pub(crate) fn try_lock_from(file: &File, offset: u64, length: u64) -> io::Result<bool> {
    match control(file, libc::F_OFD_SETLK, libc::F_WRLCK, (offset, length)) {
        Ok(_) => Ok(true),
        Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// Ends the lock of the byte at `offset`.
pub(crate) fn unlock(file: &File, offset: u64) {
    // The kernel has no reason to refuse.
    let _ = control(file, libc::F_OFD_SETLK, libc::F_UNLCK, (offset, 1));
}

/// Returns true if another open file has the byte at `offset` locked.
pub(crate) fn is_locked_elsewhere(file: &File, offset: u64) -> bool {
    let asked = control(file, libc::F_OFD_GETLK, libc::F_WRLCK, (offset, 1));
    asked.is_ok_and(|kind| kind != libc::F_UNLCK)
}

/// Makes one call for `length` bytes from `offset` on; returns the kind that it left.
fn control(
    file: &File,
    command: libc::c_int,
    kind: libc::c_int,
    (offset, length): (u64, u64),
) -> io::Result<libc::c_int> {
    // SAFETY: all zeros are a valid value.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    (lock.l_start, lock.l_len) = (offset as libc::off_t, length as libc::off_t);
    loop {
        // SAFETY: the descriptor is open, and the lock is live.
        if unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut lock) } == 0 {
            return Ok(libc::c_int::from(lock.l_type));
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}
