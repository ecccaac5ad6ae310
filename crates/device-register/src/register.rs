//! The file, its entries, and who is alive.
//!
//! Each entry has two bytes that its process locks: one when it chooses the entry, before it writes
//! there; the other once the entry is written. Readers look at the second, so that they never take
//! what a dead process left for what its successor holds. The kernel ends both at once.
//!
//! | bytes locked | by | how long |
//! |---|---|---|
//! | `CHOSEN` + entry | its process | as long as it lives |
//! | `WRITTEN` + entry | its process | the same, but later |
//! | `SUMS` | who decides by the sum of all entries | a few microseconds |
//! | all of them | who removes a file that nobody uses | the same |
//!
//! `SUMS` makes sums exact. Nobody waits for it longer than [`PATIENCE`]: if a process was stopped
//! while it had the lock, sums may be off by what two processes charge at once.
//!
//! A file is made whole before it gets its name. It is refused, with a reason, if it is no file,
//! belongs to another user, may be written by others, is not a register, or is of another version
//! that somebody still uses.

use std::fmt;
use std::fs::{File, Metadata, OpenOptions, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::card::{Card, Head, VERSION};
use crate::entry::{ENTRY_BYTES, Entry};
use crate::locks::{is_locked_elsewhere, try_lock, try_lock_from, unlock};

/// Where registers are.
pub const FOLDER: &str = "/dev/shm";
/// The most processes that share a device.
pub const MOST_ENTRIES: u32 = 256;

/// Bytes of the file that are locked; they need not exist.
const CHOSEN: u64 = 0;
const WRITTEN: u64 = 1 << 16;
const SUMS: u64 = 1 << 17;
const ALL: u64 = 1 << 18;
/// How long a process waits for another one's sum.
const PATIENCE: Duration = Duration::from_millis(10);
/// The time between two looks.
const PAUSE: Duration = Duration::from_micros(20);
/// An entry that is being written is read so often.
const READS: usize = 16;
/// How long a process tries to join while others remove the file. One of them may not run for some
/// milliseconds; one that takes longer was stopped.
const JOINING: Duration = Duration::from_secs(1);

/// A process's place in a register, until it is dropped.
#[derive(Debug)]
pub struct Register {
    path: PathBuf,
    file: File,
    own: u32,
}

/// Why there is no register.
#[derive(Debug)]
pub enum Refused {
    /// It is no file, is another user's, or others may write to it.
    NotSafe,
    /// It is a file of something else, or for another device.
    Foreign,
    /// Processes with another version of Genesis use it.
    OtherVersion(u32),
    /// All entries are in use.
    Full,
    /// The system says no.
    System(io::Error),
}

impl fmt::Display for Refused {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotSafe => formatter
                .write_str("it is not a file that this user alone has; remove it if it is yours"),
            Self::Foreign => {
                formatter.write_str("it is not a register of this device; remove it if it is yours")
            }
            Self::OtherVersion(version) => write!(
                formatter,
                "processes with another version of Genesis use it (its layout is {version}, this \
                 one's {VERSION})"
            ),
            Self::Full => write!(formatter, "{MOST_ENTRIES} processes use it already"),
            Self::System(error) => error.fmt(formatter),
        }
    }
}

impl std::error::Error for Refused {}

impl From<io::Error> for Refused {
    fn from(error: io::Error) -> Self {
        match error.raw_os_error() {
            // A link, a folder, a socket; another user's.
            Some(libc::ELOOP | libc::EISDIR | libc::ENXIO | libc::EACCES | libc::EPERM) => {
                Self::NotSafe
            }
            _ => Self::System(error),
        }
    }
}

impl Register {
    /// Joins those who share the device of `card` with the file at `path`, which is made if it is
    /// not there, and writes `entry`.
    pub fn join(path: &Path, card: &Card, entry: &Entry) -> Result<Self, Refused> {
        let deadline = Instant::now() + JOINING;
        let mut is_last = false;
        while !is_last {
            // At least once, however late this process runs.
            is_last = Instant::now() >= deadline;
            let file = open_or_make(path, card)?;
            match check(&file) {
                Ok(found) if found.uuid == card.uuid => {}
                Ok(_) => return Err(Refused::Foreign),
                Err(Refused::OtherVersion(_)) if remove_if_unused(&file, path) => continue,
                Err(refused) => return Err(refused),
            }
            let Some(own) = choose(&file)? else {
                if entries(&file)?.len() == MOST_ENTRIES as usize {
                    return Err(Refused::Full);
                }
                // Another process is just removing the file.
                std::thread::sleep(PAUSE);
                continue;
            };
            let register = Self { path: path.to_owned(), file, own };
            if !is_at(path, &register.file) {
                continue;
            }
            register.write(entry)?;
            if !try_lock(&register.file, WRITTEN + u64::from(own))? {
                return Err(Refused::Foreign);
            }
            return Ok(register);
        }
        Err(Refused::System(io::ErrorKind::ResourceBusy.into()))
    }

    /// The descriptor of the file. A forked child has to close its copy.
    pub fn descriptor(&self) -> i32 {
        self.file.as_raw_fd()
    }

    /// Removes the file if nobody else uses it; the own entry ends with this value all the same.
    pub fn remove_if_alone(&self) -> bool {
        remove_if_unused(&self.file, &self.path)
    }

    /// Writes the own entry.
    pub fn write(&self, entry: &Entry) -> io::Result<()> {
        self.file.write_all_at(&entry.encode(), offset(self.own))
    }

    /// The entries of the other living processes.
    pub fn others(&self) -> io::Result<Vec<Entry>> {
        entries(&self.file)
    }

    /// Runs `act` while no other process does; after [`PATIENCE`] all the same.
    pub fn exclusively<T>(&self, act: impl FnOnce() -> T) -> T {
        let deadline = Instant::now() + PATIENCE;
        let mut is_locked = false;
        while !is_locked {
            match try_lock(&self.file, SUMS) {
                Ok(true) => is_locked = true,
                Ok(false) if Instant::now() < deadline => std::thread::sleep(PAUSE),
                Ok(false) | Err(_) => break,
            }
        }
        let value = act();
        if is_locked {
            unlock(&self.file, SUMS);
        }
        value
    }
}

/// The device of the register at `path`, and the entries of its living processes.
pub fn read(path: &Path) -> Result<(Card, Vec<Entry>), Refused> {
    let file = options().read(true).open(path)?;
    let card = check(&file)?;
    Ok((card, entries(&file)?))
}

/// The entries of living processes, except that of this open file.
fn entries(file: &File) -> io::Result<Vec<Entry>> {
    let mut bytes = vec![0; (MOST_ENTRIES as usize) * ENTRY_BYTES];
    let length = read_at_most(file, &mut bytes)?;
    let whole = bytes[..length].chunks_exact(ENTRY_BYTES);
    let written = (0..).zip(whole).filter(|(_, bytes)| bytes.iter().any(|&byte| byte != 0));
    let living = written.filter(|(number, _)| is_written(file, *number));
    Ok(living.filter_map(|(number, _)| read_entry(file, number)).collect())
}

/// Reads what there is behind the head.
fn read_at_most(file: &File, bytes: &mut [u8]) -> io::Result<usize> {
    let mut length = 0;
    while length < bytes.len() {
        match file.read_at(&mut bytes[length..], (ENTRY_BYTES + length) as u64) {
            Ok(0) => break,
            Ok(count) => length += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(length)
}

/// The entry of a living process. One that cannot be read is not a register's.
fn read_entry(file: &File, number: u32) -> Option<Entry> {
    (0..READS).find_map(|_| {
        let mut bytes = [0; ENTRY_BYTES];
        file.read_exact_at(&mut bytes, offset(number)).ok()?;
        Entry::decode(&bytes)
    })
}

fn is_written(file: &File, number: u32) -> bool {
    is_locked_elsewhere(file, WRITTEN + u64::from(number))
}

fn offset(number: u32) -> u64 {
    (u64::from(number) + 1) * ENTRY_BYTES as u64
}

/// How a register is opened: never through a link, and never waiting for a pipe's other end.
fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC);
    options
}

fn open_or_make(path: &Path, card: &Card) -> Result<File, Refused> {
    loop {
        match options().read(true).write(true).open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => make(path, card)?,
            opened => return Ok(opened?),
        }
    }
}

/// Makes the file, whole from the start, unless another process is faster.
fn make(path: &Path, card: &Card) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600).custom_flags(libc::O_TMPFILE | libc::O_CLOEXEC);
    let file = options.open(folder)?;
    // The process may have forbidden even its own user's rights.
    file.set_permissions(Permissions::from_mode(0o600))?;
    file.write_all_at(&card.head(), 0)?;
    let nameless = std::ffi::CString::new(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    let named = std::ffi::CString::new(path.as_os_str().as_bytes())?;
    let here = libc::AT_FDCWD;
    // SAFETY: both are strings, and the descriptor is open.
    let linked = unsafe {
        libc::linkat(here, nameless.as_ptr(), here, named.as_ptr(), libc::AT_SYMLINK_FOLLOW)
    };
    match io::Error::last_os_error() {
        error if linked != 0 && error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// The device of the register in `file`, or why it is none.
fn check(file: &File) -> Result<Card, Refused> {
    let metadata = file.metadata()?;
    if !is_safe(&metadata) {
        return Err(Refused::NotSafe);
    }
    let mut head = [0; ENTRY_BYTES];
    match file.read_exact_at(&mut head, 0) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Err(Refused::Foreign),
        read => read?,
    }
    match Head::of(&head) {
        Head::Ours(card) => Ok(card),
        Head::Other(version) => Err(Refused::OtherVersion(version)),
        Head::Foreign => Err(Refused::Foreign),
    }
}

/// Returns true if only this user can have written to the file.
fn is_safe(metadata: &Metadata) -> bool {
    // SAFETY: it has no precondition and cannot fail.
    let user_id = unsafe { libc::geteuid() };
    metadata.is_file() && metadata.uid() == user_id && metadata.mode() & 0o077 == 0
}

/// Chooses an entry that no living process has; `None` if there is none.
fn choose(file: &File) -> io::Result<Option<u32>> {
    for number in 0..MOST_ENTRIES {
        if try_lock(file, CHOSEN + u64::from(number))? {
            return Ok(Some(number));
        }
    }
    Ok(None)
}

/// Removes the register at `path`, unless somebody uses it; returns true if it did.
pub fn remove_unused(path: &Path) -> bool {
    let opened = options().read(true).write(true).open(path);
    opened.is_ok_and(|file| check(&file).is_ok() && remove_if_unused(&file, path))
}

/// The same for a register that is open.
fn remove_if_unused(file: &File, path: &Path) -> bool {
    // Whoever opens the file now finds every entry taken, and later that it has no name.
    try_lock_from(file, 0, ALL).unwrap_or(false)
        && is_at(path, file)
        && std::fs::remove_file(path).is_ok()
}

/// Returns true if `path` still names the file.
fn is_at(path: &Path, file: &File) -> bool {
    let identity = |metadata: &Metadata| (metadata.dev(), metadata.ino());
    match (path.symlink_metadata(), file.metadata()) {
        (Ok(named), Ok(opened)) => identity(&named) == identity(&opened),
        _ => false,
    }
}
