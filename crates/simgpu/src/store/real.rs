//! The store with real bytes: one sparse memory file per device, mapped where it should show.
//!
//! The whole device address space is one `PROT_NONE` mapping made at the start. Mapping memory
//! replaces a part of it by a shared view of the device's file; unmapping restores `PROT_NONE`.
//! So an address always belongs to this store, and one without access faults at once.
//! Every extent is a fresh part of its file, so no bytes are ever seen twice. When the memory is
//! gone, a hole is punched into the file, so the host holds only what was written and is still
//! alive. Fresh memory therefore reads as zero, which real device memory does not promise.
//!
//! The only unsafe code of the crate, with that of `shared`. Callers (the tables of the machine) guarantee that every
//! range passed to `map`, `protect` and `unmap` lies inside the span and is theirs. It is
//! checked here as well, because a wrong `MAP_FIXED` would destroy foreign memory.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;

use crate::code::{Code, Result};

/// Nominal length of a device's file, in bytes. The file is sparse and never fills.
pub(crate) const FILE_BYTES: u64 = 1 << 60;
/// The default span, in bytes: at least and at most.
const DEFAULT_SPACE_BYTES: std::ops::RangeInclusive<u64> = 1 << 40..=1 << 44;
/// The default span, as a multiple of all devices' memory.
const DEFAULT_SPACE_FACTOR: u64 = 128;
/// Bytes are compared in chunks of this size.
const LOOK_BYTES: u64 = 1 << 16;

/// Where a piece of physical memory lies in its file, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    pub(crate) device: u32,
    /// The device's file, or one of its own.
    pub(crate) file: u32,
    pub(crate) offset_bytes: u64,
    pub(crate) bytes: u64,
}

#[derive(Debug)]
pub(crate) struct RealStore {
    base: u64,
    space_bytes: u64,
    page_bytes: u64,
    devices: usize,
    /// The devices' files; after them those of single pieces of memory. `None`: closed.
    files: Vec<Option<File>>,
}

#[derive(Debug)]
struct File {
    descriptor: OwnedFd,
    next_offset_bytes: u64,
}

impl RealStore {
    pub(crate) fn new(
        devices: usize,
        space_bytes: Option<u64>,
        least_space_bytes: u64,
    ) -> Result<Self> {
        let files =
            (0..devices).map(|_| File::new(FILE_BYTES).map(Some)).collect::<Result<Vec<_>>>()?;
        let (base, space_bytes) = match space_bytes {
            Some(bytes) => (reserve(bytes).ok_or(Code::OUT_OF_MEMORY)?, bytes),
            None => reserve_generously(least_space_bytes)?,
        };
        // SAFETY: sysconf reads a constant of the system and touches no memory of ours.
        let page_bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        let page_bytes = u64::try_from(page_bytes).unwrap_or(4096);
        Ok(Self { base, space_bytes, page_bytes, devices, files })
    }

    pub(crate) fn space(&self) -> (u64, u64) {
        (self.base, self.space_bytes)
    }

    pub(crate) fn page_bytes(&self) -> u64 {
        self.page_bytes
    }

    pub(crate) fn create(&mut self, device: u32, bytes: u64) -> Result<Extent> {
        let file = self.files.get_mut(device as usize).and_then(Option::as_mut);
        let file = file.ok_or(Code::INVALID_DEVICE)?;
        let offset_bytes = file.next_offset_bytes;
        let end = offset_bytes.checked_add(bytes).filter(|&end| end <= FILE_BYTES);
        file.next_offset_bytes = end.ok_or(Code::OUT_OF_MEMORY)?;
        Ok(Extent { device, file: device, offset_bytes, bytes })
    }

    /// Memory in a file of its own, which other processes can have too.
    pub(crate) fn adopt(&mut self, device: u32, bytes: u64, file: OwnedFd) -> Extent {
        self.adopt_part(Extent { device, file: 0, offset_bytes: 0, bytes }, file)
    }

    /// A part of another process's file, as `extent` describes it but for the file.
    pub(crate) fn adopt_part(&mut self, extent: Extent, file: OwnedFd) -> Extent {
        let file = Some(File { descriptor: file, next_offset_bytes: 0 });
        let vacant = (self.devices..self.files.len()).find(|&index| self.files[index].is_none());
        let index = vacant.unwrap_or_else(|| {
            self.files.push(None);
            self.files.len() - 1
        });
        self.files[index] = file;
        Extent { file: index as u32, ..extent }
    }

    /// The file in which `extent` lies, and whether it has it to itself.
    pub(crate) fn file_of(&self, extent: Extent) -> Option<(&OwnedFd, bool)> {
        let file = self.files.get(extent.file as usize)?.as_ref()?;
        Some((&file.descriptor, extent.file as usize >= self.devices))
    }

    pub(crate) fn destroy(&mut self, extent: Extent) {
        if extent.file as usize >= self.devices {
            // The kernel frees the bytes with the last process that has the file.
            self.files[extent.file as usize] = None;
            return;
        }
        let Some(Some(file)) = self.files.get(extent.file as usize) else { return };
        // SAFETY: the descriptor is open and ours. The extent has no mapping left, so nothing
        // reads the bytes that vanish. A failure only keeps host memory until the file closes.
        unsafe {
            libc::fallocate(
                file.descriptor.as_raw_fd(),
                libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE,
                extent.offset_bytes as libc::off_t,
                extent.bytes as libc::off_t,
            );
        }
    }

    pub(crate) fn map(&mut self, address: u64, extent: Extent, accessible: bool) -> Result<()> {
        let place = self.place(address, extent.bytes)?;
        let file = self.files.get(extent.file as usize).and_then(Option::as_ref);
        let file = file.ok_or(Code::INVALID_DEVICE)?;
        // SAFETY: the range lies in our span and the tables hold nothing there, so MAP_FIXED
        // replaces only address space without memory.
        let mapped = unsafe {
            libc::mmap(
                place,
                extent.bytes as usize,
                protection(accessible),
                libc::MAP_SHARED | libc::MAP_FIXED | libc::MAP_NORESERVE,
                file.descriptor.as_raw_fd(),
                extent.offset_bytes as libc::off_t,
            )
        };
        if mapped == libc::MAP_FAILED { Err(Code::OUT_OF_MEMORY) } else { Ok(()) }
    }

    pub(crate) fn protect(&mut self, address: u64, bytes: u64, accessible: bool) -> Result<()> {
        let place = self.place(address, bytes)?;
        // SAFETY: the range lies in our span, where only device memory is ever mapped; no Rust
        // reference points into it.
        let result = unsafe { libc::mprotect(place, bytes as usize, protection(accessible)) };
        if result == 0 { Ok(()) } else { Err(Code::OUT_OF_MEMORY) }
    }

    pub(crate) fn unmap(&mut self, address: u64, bytes: u64) -> Result<()> {
        let place = self.place(address, bytes)?;
        // SAFETY: the range lies in our span, and the tables drop what is mapped there. No Rust
        // reference points into it.
        let mapped = unsafe {
            libc::mmap(place, bytes as usize, libc::PROT_NONE, ANONYMOUS | libc::MAP_FIXED, -1, 0)
        };
        if mapped == libc::MAP_FAILED { Err(Code::OUT_OF_MEMORY) } else { Ok(()) }
    }

    pub(crate) fn copy(&self, to: u64, from: u64, bytes: u64) {
        // SAFETY: one range lies in our span, is mapped and accessible; the other is memory of
        // `host_allocate` that is not freed. The tables checked both and hold the machine's
        // lock, without which neither can go. Only raw pointers point there; a program that
        // writes there at the same time has a race of its own, on plain bytes.
        unsafe { ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, bytes as usize) };
    }

    pub(crate) fn fill(&self, address: u64, bytes: u64, value: u8) {
        // SAFETY: the range lies in our span, is mapped and accessible. The tables checked that
        // under the machine's lock, without which it cannot go; see `copy`.
        unsafe { ptr::write_bytes(address as *mut u8, value, bytes as usize) };
    }

    pub(crate) fn find_other(&self, address: u64, bytes: u64, value: u8) -> Option<u64> {
        let mut chunk = vec![0; LOOK_BYTES.min(bytes) as usize];
        for start in (0..bytes).step_by(LOOK_BYTES as usize) {
            let length = LOOK_BYTES.min(bytes - start) as usize;
            // SAFETY: as in `fill`; the chunk is ours and has room for the bytes.
            unsafe {
                ptr::copy_nonoverlapping((address + start) as *const u8, chunk.as_mut_ptr(), length)
            };
            if let Some(offset) = chunk[..length].iter().position(|&byte| byte != value) {
                return Some(start + offset as u64);
            }
        }
        None
    }

    /// `address` as a pointer, if the range is whole pages inside the span.
    fn place(&self, address: u64, bytes: u64) -> Result<*mut c_void> {
        let offset = address.checked_sub(self.base).ok_or(Code::INVALID_VALUE)?;
        let inside = offset.checked_add(bytes).is_some_and(|end| end <= self.space_bytes);
        let whole_pages = offset % self.page_bytes == 0 && bytes.is_multiple_of(self.page_bytes);
        if inside && whole_pages && bytes > 0 {
            Ok(address as *mut c_void)
        } else {
            Err(Code::INVALID_VALUE)
        }
    }
}

/// `bytes` of real host memory, as an address.
pub(crate) fn host_allocate(bytes: u64) -> Option<u64> {
    let access = protection(true);
    let bytes = usize::try_from(bytes).ok()?;
    // SAFETY: a new anonymous mapping, at an address the kernel chooses, replaces nothing.
    let mapped = unsafe { libc::mmap(ptr::null_mut(), bytes, access, ANONYMOUS, -1, 0) };
    (mapped != libc::MAP_FAILED).then_some(mapped as u64)
}

/// Frees what [`host_allocate`] returned, with the same size.
pub(crate) fn host_free(address: u64, bytes: u64) {
    // SAFETY: the tables pass exactly what host_allocate returned, once.
    unsafe { libc::munmap(address as *mut c_void, bytes as usize) };
}

impl Drop for RealStore {
    fn drop(&mut self) {
        // SAFETY: the span was mapped by `reserve` with this size and is unmapped only here.
        unsafe { libc::munmap(self.base as *mut c_void, self.space_bytes as usize) };
    }
}

impl File {
    fn new(bytes: u64) -> Result<Self> {
        Ok(Self { descriptor: memory_file(bytes)?, next_offset_bytes: 0 })
    }
}

/// A sparse file of `bytes` in memory, without a name.
pub(crate) fn memory_file(bytes: u64) -> Result<OwnedFd> {
    // SAFETY: the name is a NUL-terminated constant.
    let raw = unsafe { libc::memfd_create(c"simgpu".as_ptr(), libc::MFD_CLOEXEC) };
    if raw < 0 {
        return Err(Code::OUT_OF_MEMORY);
    }
    // SAFETY: the descriptor was opened just now and has no other owner.
    let descriptor = unsafe { OwnedFd::from_raw_fd(raw) };
    // A sparse file takes no memory for its length.
    let file = std::fs::File::from(descriptor);
    file.set_len(bytes).map_err(|_| Code::OUT_OF_MEMORY)?;
    Ok(file.into())
}

const ANONYMOUS: libc::c_int = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;

const fn protection(accessible: bool) -> libc::c_int {
    if accessible { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_NONE }
}

/// A span of the default size, or smaller where the host's limits require it.
fn reserve_generously(least_bytes: u64) -> Result<(u64, u64)> {
    let wanted = least_bytes.saturating_mul(DEFAULT_SPACE_FACTOR);
    let (least, most) = (*DEFAULT_SPACE_BYTES.start(), *DEFAULT_SPACE_BYTES.end());
    let mut bytes = wanted.clamp(least, most).max(least_bytes);
    loop {
        if let Some(base) = reserve(bytes) {
            return Ok((base, bytes));
        }
        bytes = (bytes / 2) & !(SPAN_ALIGNMENT_BYTES - 1);
        if bytes < least_bytes || bytes == 0 {
            return Err(Code::OUT_OF_MEMORY);
        }
    }
}

/// Spans start at a multiple of this, so that granules are aligned within huge pages.
const SPAN_ALIGNMENT_BYTES: u64 = 2 << 20;

/// `bytes` of address space without memory, aligned, or `None`.
fn reserve(bytes: u64) -> Option<u64> {
    let padded = bytes.checked_add(SPAN_ALIGNMENT_BYTES)?;
    let length = usize::try_from(padded).ok()?;
    // SAFETY: a new mapping, at an address the kernel chooses, replaces nothing.
    let mapped = unsafe { libc::mmap(ptr::null_mut(), length, libc::PROT_NONE, ANONYMOUS, -1, 0) };
    if mapped == libc::MAP_FAILED {
        return None;
    }
    let start = mapped as u64;
    let base = start.next_multiple_of(SPAN_ALIGNMENT_BYTES);
    let (head, tail) = (base - start, SPAN_ALIGNMENT_BYTES - (base - start));
    // SAFETY: head and tail are the parts of the fresh mapping outside the aligned span.
    unsafe {
        if head > 0 {
            libc::munmap(mapped, head as usize);
        }
        if tail > 0 {
            libc::munmap((base + bytes) as *mut c_void, tail as usize);
        }
    }
    Some(base)
}
