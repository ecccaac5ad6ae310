//! Pages of the process's memory, mapped from the system: what backups of device memory lie in, and
//! pinned memory consists of.
//!
//! A fresh page has no memory behind it until it is touched. Touching is most of what page-locking
//! costs, so several threads do it: 8 GiB take 2.7 s in one (`cuMemHostAlloc`) and 0.9 s in 32.
#![allow(unsafe_code)]

use std::fs::File;
use std::io::{Error, Result};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::ptr::null_mut;
use std::thread;

use super::numa::Node;

/// The system's page; pages of 64 KiB consist of whole ones.
const PAGE_BYTES: u64 = 4096;
/// At most so many threads touch pages.
const MOST_THREADS: usize = 32;
/// A thread is worth starting for this many bytes.
const BYTES_OF_A_THREAD: u64 = 32 << 20;

/// Pages of this process alone, readable and writable, zero at first; unmapped when dropped.
#[derive(Debug)]
pub struct Pages {
    address: u64,
    bytes: u64,
}

impl Pages {
    /// Maps at least `bytes` (not 0), which get their memory of `node` if that has it. Fails for more
    /// than the machine's memory: the system would end the process when they are touched.
    pub fn map(bytes: u64, node: Option<Node>) -> Result<Self> {
        let bytes = bytes.next_multiple_of(PAGE_BYTES);
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a mapping at an address of the system's choice touches no other memory.
        let start = unsafe { libc::mmap(null_mut(), bytes as usize, protection, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(Error::last_os_error());
        }
        // Huge pages are touched and locked faster; without them it works, too.
        // SAFETY: the mapping is ours.
        unsafe { libc::madvise(start, bytes as usize, libc::MADV_HUGEPAGE) };
        // A child would get copies, and the locked pages are for the device to write.
        // SAFETY: the mapping is ours.
        unsafe { libc::madvise(start, bytes as usize, libc::MADV_DONTFORK) };
        if let Some(node) = node {
            node.prefer(start as u64, bytes);
        }
        Ok(Self { address: start as u64, bytes })
    }

    /// The first byte.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// The size, in bytes: whole pages.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Writes the bytes at `range` to `file` at `offset`.
    pub fn write_to(&self, range: Range<u64>, file: &File, offset: u64) -> Result<()> {
        let (start, length) = self.part(&range);
        // SAFETY: a part of the mapping, which the caller lets nobody write to meanwhile.
        let bytes = unsafe { std::slice::from_raw_parts(start, length) };
        file.write_all_at(bytes, offset)
    }

    /// Reads the bytes at `range` from `file` at `offset`.
    pub fn read_from(&self, range: Range<u64>, file: &File, offset: u64) -> Result<()> {
        let (start, length) = self.part(&range);
        // SAFETY: a part of the mapping, which the caller lets nobody use meanwhile.
        let bytes = unsafe { std::slice::from_raw_parts_mut(start, length) };
        file.read_exact_at(bytes, offset)
    }

    fn part(&self, range: &Range<u64>) -> (*mut u8, usize) {
        assert!(range.start <= range.end && range.end <= self.bytes, "outside of the pages");
        ((self.address + range.start) as *mut u8, (range.end - range.start) as usize)
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nobody uses it any more.
        unsafe { libc::munmap(self.address as *mut libc::c_void, self.bytes as usize) };
    }
}

/// Gives every page of `[address, address + bytes)`, which are whole ones, its memory.
pub(super) fn touch(address: u64, bytes: u64) {
    let most = thread::available_parallelism().map_or(1, |count| count.get().min(MOST_THREADS));
    let threads = (bytes / BYTES_OF_A_THREAD).clamp(1, most as u64);
    let part_bytes = (bytes / threads).next_multiple_of(PAGE_BYTES);
    let parts = (0..threads).map(|part| {
        let start = (part * part_bytes).min(bytes);
        address + start..address + (start + part_bytes).min(bytes)
    });
    thread::scope(|scope| {
        for part in parts {
            // Where no thread can be started, the driver touches the pages.
            let _ = thread::Builder::new().spawn_scoped(scope, move || populate(&part));
        }
    });
}

/// Touches pages without changing what is in them.
fn populate(range: &Range<u64>) {
    for page in range.clone().step_by(PAGE_BYTES as usize) {
        let byte = page as *mut u8;
        // SAFETY: a page of the caller's, which nobody uses meanwhile.
        unsafe { byte.write_volatile(byte.read_volatile()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_zero_and_keep_what_is_written() {
        let pages = Pages::map(3 * PAGE_BYTES - 1, None).unwrap();
        assert_eq!((pages.bytes(), pages.address() % PAGE_BYTES), (3 * PAGE_BYTES, 0));
        touch(pages.address(), pages.bytes());
        let folder = std::env::temp_dir();
        let path = folder.join(format!("genesis_pages_{}", std::process::id()));
        let options = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        options.write_all_at(&[7; 100], 5000).unwrap();
        pages.read_from(PAGE_BYTES..PAGE_BYTES + 100, &options, 5000).unwrap();
        touch(pages.address(), pages.bytes());
        pages.write_to(PAGE_BYTES - 1..PAGE_BYTES + 101, &options, 0).unwrap();
        let mut seen = [1; 102];
        options.read_exact_at(&mut seen, 0).unwrap();
        assert_eq!((seen[0], seen[1], seen[100], seen[101]), (0, 7, 7, 0));
    }

    #[test]
    fn more_than_the_machine_has_is_refused() {
        let always_allowed = std::fs::read_to_string("/proc/sys/vm/overcommit_memory").unwrap();
        if always_allowed.trim() != "1" {
            Pages::map(1 << 46, None).unwrap_err();
        }
    }

    #[test]
    fn many_threads_touch_every_page() {
        let pages = Pages::map(5 * BYTES_OF_A_THREAD / 2, None).unwrap();
        touch(pages.address(), pages.bytes());
        let mut resident = vec![0u8; (pages.bytes() / PAGE_BYTES) as usize];
        let start = pages.address() as *mut libc::c_void;
        // SAFETY: the mapping is live, and there is a byte for each page.
        let status =
            unsafe { libc::mincore(start, pages.bytes() as usize, resident.as_mut_ptr().cast()) };
        assert_eq!(status, 0);
        assert!(resident.iter().all(|page| page & 1 == 1));
    }
}
