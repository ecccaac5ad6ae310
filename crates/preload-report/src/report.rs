//! The reader's side: the file, and its contents when the program has ended.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use crate::calls::{CALLS, fingerprint};
use crate::layout::{Header, Library, MAGIC, MOST_PROCESSES, Mapped, SlotLayout, lay_out};

/// A file for one run of a program; removed when it is dropped.
pub struct Report {
    path: PathBuf,
    file: File,
    header: Mapped<Header>,
}

/// What one process reported. A process that became another program by `exec` is two of these,
/// with the same number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Process {
    /// Its number.
    pub process_id: u32,
    /// Its command line, cut to what there is room for.
    pub command_line: String,
    /// The state of `libgenesis.so`.
    pub library: Library,
    /// The reason why that could not be opened; else empty.
    pub library_error: String,
    /// True if it called CUDA or looked up a function of it.
    pub has_seen_cuda: bool,
    /// Bytes of Genesis's memory that it held at its end, as requested.
    pub live_bytes: u64,
    /// The most bytes that it ever held.
    pub peak_bytes: u64,
    /// All bytes handed out.
    pub total_bytes: u64,
    /// How often Genesis waited for a device so that freed blocks may be used again.
    pub fences: u64,
    /// The calls that were made, by name.
    pub calls: Vec<CallCount>,
}

/// How often a process made one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallCount {
    /// The symbol.
    pub name: &'static str,
    /// Served by Genesis, or watched.
    pub served: u64,
    /// Passed to CUDA.
    pub passed: u64,
    /// Ended with an error of Genesis's own.
    pub refused: u64,
}

impl Report {
    /// Makes the file at `path`, for this user alone; there must be none yet.
    pub fn create(path: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create_new(true).mode(0o600).open(path)?;
        let descriptor = file.as_raw_fd();
        let header = lay_out::<Header>(descriptor, 0).then(|| Mapped::<Header>::new(descriptor, 0));
        let Some(header) = header.flatten() else {
            let error = io::Error::last_os_error();
            let _ = fs::remove_file(path);
            return Err(error);
        };
        header.fingerprint.store(fingerprint(), Relaxed);
        header.magic.store(MAGIC, Relaxed);
        Ok(Self { path: path.to_owned(), file, header })
    }

    /// Where the file is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How many processes reported, also those that [`processes`](Self::processes) leaves out:
    /// beyond [`MOST_PROCESSES`], or without room on the disk.
    pub fn process_count(&self) -> u64 {
        self.header.claimed.load(Relaxed)
    }

    /// How many processes have a preload library of a version with another layout.
    pub fn other_version_count(&self) -> u64 {
        self.header.of_other_versions.load(Relaxed)
    }

    /// What the processes reported, in the order in which they claimed their slots.
    pub fn processes(&self) -> Vec<Process> {
        let count = self.process_count().min(MOST_PROCESSES);
        let slots =
            (0..count).filter_map(|index| Mapped::<SlotLayout>::new(self.file.as_raw_fd(), index));
        // A process may have been killed before it wrote its number.
        slots.map(|slot| read(&slot)).filter(|process| process.process_id != 0).collect()
    }
}

impl Drop for Report {
    fn drop(&mut self) {
        // The user may have removed it already.
        let _ = fs::remove_file(&self.path);
    }
}

fn read(slot: &SlotLayout) -> Process {
    let number = |counter: &AtomicU64| counter.load(Relaxed);
    let calls = CALLS.iter().zip(&slot.calls).map(|(name, counters)| CallCount {
        name,
        served: number(&counters.served),
        passed: number(&counters.passed),
        refused: number(&counters.refused),
    });
    Process {
        process_id: slot.process_id.load(Relaxed),
        command_line: slot.program.get(),
        library: Library::from_number(slot.library.load(Relaxed)),
        library_error: slot.error.get(),
        has_seen_cuda: slot.has_seen_cuda.load(Relaxed) != 0,
        live_bytes: number(&slot.live_bytes),
        peak_bytes: number(&slot.peak_bytes),
        total_bytes: number(&slot.total_bytes),
        fences: number(&slot.fences),
        // Their sum may have no number: the file is whatever was written there.
        calls: calls.filter(|call| (call.served | call.passed | call.refused) != 0).collect(),
    }
}
