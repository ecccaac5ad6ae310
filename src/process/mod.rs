//! The process that the library is loaded in: forks, threads of the library, the process's exit,
//! the shared objects that are loaded, and messages to other processes.
//!
//! | file | what it does |
//! |---|---|
//! | `fork` | tells a forked child from the process that loaded the library |
//! | `lifetime` | starts threads, runs code at exit, keeps the library loaded |
//! | `passing` | messages and file descriptors between processes |
//! | `mail` | messages without a connection |
//! | `watched` | descriptors that forked children close |
//! | `object` | which shared object holds an address, and which symbols it defines |
//!
//! Nothing here knows what the library does.
#![allow(unsafe_code)]

pub(crate) mod fork;
mod lifetime;
mod mail;
mod object;
mod passing;
mod watched;

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsRawFd;

pub(crate) use lifetime::{at_exit, keep_library_loaded, starting_threads};
pub(crate) use mail::{Mailbox, Sender};
pub(crate) use object::{Object, Scope};
pub(crate) use passing::{Door, Line, MOST_FILES};
pub(crate) use watched::Watched;

/// Stands for the process's number in the path of a file.
pub(crate) const NUMBER: &str = "%p";

/// `path` with the process's number in place of each [`NUMBER`].
pub(crate) fn numbered(path: &str) -> String {
    path.replace(NUMBER, &std::process::id().to_string())
}

/// Makes a system call until no signal interrupts it. For calls that do not wait, or for ever.
pub(crate) fn uninterrupted<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// Locks `file` for this process; `WouldBlock` if another process holds the lock, which ends with
/// the file or the process. A file system without locks is no error.
pub(crate) fn lock_file(file: &File) -> io::Result<()> {
    let locked = uninterrupted(|| {
        // SAFETY: the descriptor is open.
        match unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    });
    match locked {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(error),
        _ => Ok(()),
    }
}

/// Bytes that nobody can guess.
pub(crate) fn random_bytes<const COUNT: usize>() -> io::Result<[u8; COUNT]> {
    let mut bytes = [0; COUNT];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// The number of the user that the process runs for.
pub(crate) fn user_id() -> u32 {
    // SAFETY: it has no precondition and cannot fail.
    unsafe { libc::getuid() }
}

/// The program's command line, its arguments separated by spaces.
pub(crate) fn command_line() -> String {
    let arguments = std::fs::read("/proc/self/cmdline").unwrap_or_default();
    let arguments = arguments.split(|byte| *byte == 0).filter(|argument| !argument.is_empty());
    let arguments: Vec<_> = arguments.map(String::from_utf8_lossy).collect();
    arguments.join(" ")
}
