//! What several processes see: files of single pieces of memory, and the notes of a machine.
//!
//! A piece's file has its bytes and then one page, by which another process knows it. The kernel
//! frees it with the last process that has it open or mapped, as a driver does with a shared
//! handle (`common` counts it as long). *Notes* are a table of counters that another process opens through `/proc`, by the
//! numbers in a handle of `cuIpcGetMemHandle` or `cuIpcGetEventHandle`. A cell has three words:
//!
//! | word | of an allocation | of an event |
//! |---|---|---|
//! | 0 | a number never reused; 0: freed | the same |
//! | 1 | – | how often it was recorded |
//! | 2 | – | up to which record its work is complete |
//!
//! Who has an allocation open holds a lock on the byte of the table's file with the cell's number,
//! which the kernel takes from a process that ends, as a driver closes what it had open. Nothing
//! another process writes here is trusted further than a count.
#![allow(unsafe_code)]

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::real::memory_file;
use crate::code::{Code, Result};

/// The first word of the page after a piece of memory, and of a table.
const PIECE: u64 = u64::from_le_bytes(*b"simgpu:p");
const TABLE: u64 = u64::from_le_bytes(*b"simgpu:t");
/// The page after a piece's bytes.
const PAGE_BYTES: u64 = 4096;
/// A table's cells; cell 0 is its head.
pub(crate) const CELLS: u32 = 1 << 16;
/// The cell that says what the table is.
pub(crate) const HEAD: u32 = 0;
const WORDS: usize = 3;
pub(crate) const TABLE_BYTES: u64 = CELLS as u64 * WORDS as u64 * 8;

/// A piece of memory in the file of all machines that can hold it (`common`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Piece {
    /// The file's random number.
    pub(crate) nonce: u64,
    pub(crate) cell: u32,
    /// The holding's: cells are used again.
    pub(crate) number: u64,
}

/// What a piece's file says of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Label {
    pub(crate) device: u32,
    pub(crate) bytes: u64,
    /// Its store has bytes; otherwise only the page is ever written.
    pub(crate) has_bytes: bool,
    /// How it is counted with other machines.
    pub(crate) piece: Option<Piece>,
}

impl Label {
    /// A file with this label.
    pub(crate) fn make_file(&self) -> Result<OwnedFd> {
        let length = self.bytes.checked_add(PAGE_BYTES).ok_or(Code::OUT_OF_MEMORY)?;
        let file = File::from(memory_file(length)?);
        let Piece { nonce, cell, number } = self.piece.unwrap_or_default();
        let (device, has_bytes) = (u64::from(self.device), u64::from(self.has_bytes));
        let words = [PIECE, self.bytes, device, has_bytes, nonce, u64::from(cell), number];
        let page: Vec<u8> = words.into_iter().flat_map(u64::to_le_bytes).collect();
        file.write_all_at(&page, self.bytes).map_err(|_| Code::OUT_OF_MEMORY)?;
        Ok(file.into())
    }

    /// The label of a file; `None`: it has none.
    pub(crate) fn read(file: &OwnedFd) -> Option<Self> {
        let file = File::from(file.try_clone().ok()?);
        let bytes = file.metadata().ok()?.len().checked_sub(PAGE_BYTES)?;
        let mut page = [0; 56];
        file.read_exact_at(&mut page, bytes).ok()?;
        let word = |index: usize| page[index * 8..][..8].try_into().map_or(0, u64::from_le_bytes);
        let is_one = word(0) == PIECE && word(1) == bytes && word(3) <= 1;
        let (device, cell) = (u32::try_from(word(2)).ok()?, u32::try_from(word(5)).ok()?);
        let piece = Piece { nonce: word(4), cell, number: word(6) };
        let piece = (cell != HEAD && cell < CELLS).then_some(piece);
        is_one.then_some(Self { device, bytes, has_bytes: word(3) == 1, piece })
    }
}

/// A descriptor of another process, if it is open there and is of a file of `bytes`.
pub(crate) fn open_of_process(process: u32, descriptor: i32, bytes: u64) -> Option<OwnedFd> {
    let path = format!("/proc/{process}/fd/{descriptor}");
    // A handle may hold any number: only what looks like a file of ours is opened.
    let metadata = std::fs::metadata(&path).ok()?;
    if !metadata.is_file() || metadata.len() != bytes {
        return None;
    }
    let file = OpenOptions::new().read(true).write(true).open(path).ok()?;
    (file.metadata().ok()?.len() == bytes).then(|| file.into())
}

/// A table of counters in memory that processes share.
#[derive(Debug)]
pub(crate) struct Table {
    words: NonNull<AtomicU64>,
    file: OwnedFd,
}

// SAFETY: the words are atomics in a mapping that lives as long as the table.
unsafe impl Send for Table {}
// SAFETY: as for `Send`.
unsafe impl Sync for Table {}

impl Table {
    /// The table in a file of [`TABLE_BYTES`].
    pub(crate) fn map(file: OwnedFd) -> Result<Self> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let (length, raw) = (TABLE_BYTES as usize, file.as_raw_fd());
        // SAFETY: a new mapping, at an address the kernel chooses, replaces nothing.
        let mapped =
            unsafe { libc::mmap(ptr::null_mut(), length, access, libc::MAP_SHARED, raw, 0) };
        let words = NonNull::new(mapped.cast()).filter(|_| mapped != libc::MAP_FAILED);
        Ok(Self { words: words.ok_or(Code::OUT_OF_MEMORY)?, file })
    }

    /// The table of another process that has the number `nonce`.
    pub(crate) fn open(process: u32, descriptor: i32, nonce: u64) -> Option<Self> {
        let table = Self::map(open_of_process(process, descriptor, TABLE_BYTES)?).ok()?;
        (table.is_made() && table.nonce() == nonce).then_some(table)
    }

    /// Makes a table of a file of zeros.
    pub(crate) fn make(&self, nonce: u64) {
        self.word(HEAD, 1).store(nonce, Ordering::Relaxed);
        self.word(HEAD, 0).store(TABLE, Ordering::Release);
    }

    pub(crate) fn is_made(&self) -> bool {
        self.word(HEAD, 0).load(Ordering::Acquire) == TABLE
    }

    /// The number that tells the table from others.
    pub(crate) fn nonce(&self) -> u64 {
        self.word(HEAD, 1).load(Ordering::Acquire)
    }

    /// Locks a cell's byte of the file, beside others that do.
    pub(crate) fn lock(&self, cell: u32) -> Result<()> {
        self.set_lock(libc::F_OFD_SETLK, libc::F_RDLCK, cell)
    }

    /// Locks the byte of the head, alone; waits for others.
    pub(crate) fn lock_head(&self) -> Result<()> {
        self.set_lock(libc::F_OFD_SETLKW, libc::F_WRLCK, HEAD)
    }

    /// Ends the lock of a cell's byte.
    pub(crate) fn unlock(&self, cell: u32) {
        // The kernel has no reason to refuse.
        let _ = self.set_lock(libc::F_OFD_SETLK, libc::F_UNLCK, cell);
    }

    fn set_lock(&self, command: libc::c_int, kind: libc::c_int, cell: u32) -> Result<()> {
        self.control(command, &mut byte_lock(kind, cell)).map_err(|_| Code::OUT_OF_MEMORY)
    }

    /// Returns true if another table of the same file has locked the cell's byte.
    pub(crate) fn is_locked_elsewhere(&self, cell: u32) -> bool {
        let mut lock = byte_lock(libc::F_WRLCK, cell);
        let asked = self.control(libc::F_OFD_GETLK, &mut lock);
        asked.is_ok() && i32::from(lock.l_type) != libc::F_UNLCK
    }

    /// Sets a lock or asks for one, until no signal interrupts it.
    fn control(&self, command: libc::c_int, lock: &mut libc::flock) -> io::Result<()> {
        loop {
            // SAFETY: the descriptor is open, and the lock is live.
            if unsafe { libc::fcntl(self.file.as_raw_fd(), command, &raw mut *lock) } == 0 {
                return Ok(());
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
    }

    pub(crate) fn word(&self, cell: u32, word: usize) -> &AtomicU64 {
        let index = (cell % CELLS) as usize * WORDS + word % WORDS;
        // SAFETY: the index is within the mapping, whose length no process changes: it is sized
        // before it is shared. All processes use its words as atomics.
        unsafe { self.words.add(index).as_ref() }
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        // SAFETY: mapped by `map` with this length, and unmapped only here.
        unsafe { libc::munmap(self.words.as_ptr().cast(), TABLE_BYTES as usize) };
    }
}

/// A lock on one byte of a table's file.
fn byte_lock(kind: libc::c_int, cell: u32) -> libc::flock {
    // SAFETY: all zeros are a valid value.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    (lock.l_start, lock.l_len) = (libc::off_t::from(cell), 1);
    lock
}

/// One cell of a table, which had the number `number` when it was noted or opened.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    table: Arc<Table>,
    cell: u32,
    number: u64,
}

impl Cell {
    /// The cell of another process's table; `None` if it stands for something else by now.
    pub(crate) fn open(table: Arc<Table>, cell: u32, number: u64) -> Option<Self> {
        let cell = (cell > 0 && cell < CELLS).then_some(Self { table, cell, number })?;
        cell.is_valid().then_some(cell)
    }

    /// Returns true if what it stands for still exists.
    pub(crate) fn is_valid(&self) -> bool {
        self.number != 0 && self.word(0).load(Ordering::Acquire) == self.number
    }

    /// Counts as open, until the table of this cell is dropped.
    pub(crate) fn hold_open(&self) -> Result<()> {
        self.table.lock(self.cell)
    }

    /// Returns true if another process has it open.
    pub(crate) fn is_open_elsewhere(&self) -> bool {
        self.table.is_locked_elsewhere(self.cell)
    }

    pub(crate) fn place(&self) -> (u32, u64) {
        (self.cell, self.number)
    }

    /// The first of its counters.
    pub(crate) fn first(&self) -> &AtomicU64 {
        self.word(1)
    }

    /// The second of its counters.
    pub(crate) fn second(&self) -> &AtomicU64 {
        self.word(2)
    }

    fn word(&self, word: usize) -> &AtomicU64 {
        self.table.word(self.cell, word)
    }
}

/// A number that no other table has.
pub(crate) fn random_number() -> Result<u64> {
    let mut bytes = [0; 8];
    let random = File::open("/dev/urandom");
    let read = random.and_then(|mut file| io::Read::read_exact(&mut file, &mut bytes));
    read.map_err(|_| Code::OUT_OF_MEMORY)?;
    Ok(u64::from_le_bytes(bytes))
}

/// The notes that a machine keeps for other processes.
#[derive(Debug)]
pub(crate) struct Notes {
    table: Arc<Table>,
    vacant: Vec<u32>,
    next_cell: u32,
    last_number: u64,
}

impl Notes {
    pub(crate) fn new() -> Result<Self> {
        let table = Arc::new(Table::map(memory_file(TABLE_BYTES)?)?);
        table.make(random_number()?);
        Ok(Self { table, vacant: Vec::new(), next_cell: 1, last_number: 0 })
    }

    /// How another process finds the table: a descriptor and a number.
    pub(crate) fn place(&self) -> (i32, u64) {
        (self.table.file.as_raw_fd(), self.table.nonce())
    }

    /// A cell with counters of 0.
    pub(crate) fn add(&mut self) -> Result<Cell> {
        let cell = match self.vacant.pop() {
            Some(cell) => cell,
            None if self.next_cell < CELLS => {
                self.next_cell += 1;
                self.next_cell - 1
            }
            None => return Err(Code::OUT_OF_MEMORY),
        };
        self.last_number += 1;
        let cell = Cell { table: Arc::clone(&self.table), cell, number: self.last_number };
        cell.first().store(0, Ordering::Relaxed);
        cell.second().store(0, Ordering::Relaxed);
        cell.word(0).store(cell.number, Ordering::Release);
        Ok(cell)
    }

    /// What a cell stands for is gone.
    pub(crate) fn remove(&mut self, cell: &Cell) {
        cell.word(0).store(0, Ordering::Release);
        self.vacant.push(cell.cell);
    }
}
