//! torch_memory_saver's C functions, for programs that were written for its library.
//!
//! A *region* of a thread is a tag, pushed with a backup. Each function that configures the thread
//! changes the tag that is pushed for its region. Pausing and resuming are those of tags; where
//! torch_memory_saver ends the process, these functions return an error's number.
//!
//! They are in no header: torch_memory_saver's own declares none, either.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::Path;

use super::boundary::{self, text, to_c_string};
use super::genesis_stream;
use super::torch::hooks;
use crate::base::{Backup, Error, Result, Status};
use crate::config::Settings;
use crate::heap::Keeping;
use crate::instance;

/// What a thread has configured.
#[derive(Clone, Debug)]
struct Region {
    tag: CString,
    is_on: bool,
    in_memory: bool,
    on_disk: bool,
    /// What `in_memory` means.
    memory: Backup,
    /// Whether a tag is pushed for it.
    is_pushed: bool,
}

thread_local! {
    static REGION: RefCell<Option<Region>> = const { RefCell::new(None) };
}

impl Region {
    /// What a thread begins with, by the environment.
    fn new(settings: &Settings) -> Self {
        let Settings { default_tag, default_backup, saver_backup, .. } = settings;
        let tag = default_tag.as_deref().unwrap_or("default");
        Self {
            tag: to_c_string(tag),
            is_on: default_tag.is_some(),
            in_memory: matches!(default_backup, Backup::Pinned | Backup::Pageable),
            on_disk: *default_backup == Backup::Disk,
            memory: *saver_backup,
            is_pushed: false,
        }
    }

    fn backup(&self) -> Result<Backup> {
        match (self.in_memory, self.on_disk) {
            (true, true) => {
                Err(Error::invalid_argument("a region is backed up in memory or on disk, not both"))
            }
            (true, false) => Ok(self.memory),
            (false, true) => Ok(Backup::Disk),
            (false, false) => Ok(Backup::None),
        }
    }

    /// Pushes the tag of the region in place of the one before. A thread that has left the region
    /// that the environment put it in has no tag.
    fn apply(&mut self) -> Result<()> {
        let heap = instance::heap()?;
        let backup = self.backup()?;
        if std::mem::take(&mut self.is_pushed) {
            heap.end_tag()?;
        }
        let begins_in_region = heap.settings().default_tag.is_some();
        if self.is_on || begins_in_region {
            let tag = if self.is_on { self.tag.to_str().unwrap_or_default() } else { "" };
            heap.begin_tag_with(tag, backup)?;
            self.is_pushed = true;
        }
        Ok(())
    }
}

/// Runs `body` with the calling thread's region.
fn with_region<T>(body: impl FnOnce(&mut Region) -> Result<T>) -> Result<T> {
    let heap = instance::heap()?;
    let run = |region: &RefCell<Option<Region>>| {
        let mut region = region.borrow_mut();
        body(region.get_or_insert_with(|| Region::new(&heap.settings())))
    };
    REGION.try_with(run).map_err(|_| Error::invalid_argument("the thread is ending"))?
}

/// Changes the region of the calling thread.
fn change(body: impl FnOnce(&mut Region) -> Result<()>) {
    let _ = boundary::status(|| {
        with_region(|region| {
            let mut changed = region.clone();
            body(&mut changed)?;
            // Both backups at once are only on the way from one to the other.
            if changed.in_memory && changed.on_disk {
                *region = changed;
                return Ok(());
            }
            if let Err(error) = changed.apply() {
                // Its tag may have been ended: as before, then.
                region.is_pushed = changed.is_pushed;
                region.apply()?;
                return Err(error);
            }
            *region = changed;
            Ok(())
        })
    });
}

fn ask<T>(unknown: T, question: impl FnOnce(&Region) -> T) -> T {
    boundary::call(|| with_region(|region| Ok(question(region)))).unwrap_or(unknown)
}

/// Begins or ends the region of the calling thread.
#[unsafe(no_mangle)]
pub extern "C" fn tms_set_interesting_region(is_interesting_region: bool) {
    change(|region| {
        region.is_on = is_interesting_region;
        Ok(())
    });
}

/// Returns true in a region.
#[unsafe(no_mangle)]
pub extern "C" fn tms_get_interesting_region() -> bool {
    ask(false, |region| region.is_on)
}

/// Sets the tag of the calling thread's region.
///
/// # Safety
/// `tag` is NULL, which changes nothing, or a NUL-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tms_set_current_tag(tag: *const c_char) {
    change(|region| {
        // SAFETY: the caller's contract.
        region.tag = to_c_string(unsafe { text(tag, "tag")? });
        Ok(())
    });
}

/// The tag of the calling thread's region, valid until it changes.
#[unsafe(no_mangle)]
pub extern "C" fn tms_get_current_tag() -> *const c_char {
    ask(c"default".as_ptr(), |region| region.tag.as_ptr())
}

/// Sets whether the region is backed up in host memory.
#[unsafe(no_mangle)]
pub extern "C" fn tms_set_enable_cpu_backup(enable_cpu_backup: bool) {
    change(|region| {
        region.in_memory = enable_cpu_backup;
        Ok(())
    });
}

/// Returns true if it is.
#[unsafe(no_mangle)]
pub extern "C" fn tms_get_enable_cpu_backup() -> bool {
    ask(false, |region| region.in_memory)
}

/// Sets in which host memory: `pinned` or `mmap`; NULL or the empty string: `pinned`.
///
/// # Safety
/// `backend` is NULL or a NUL-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tms_set_cpu_backup_backend(backend: *const c_char) {
    change(|region| {
        // SAFETY: the caller's contract.
        let name = if backend.is_null() { "" } else { unsafe { text(backend, "backend")? } };
        region.memory = match name {
            "" | "pinned" => Backup::Pinned,
            "mmap" => Backup::Pageable,
            _ => return Err(Error::invalid_argument(format!("{name:?} is not pinned or mmap"))),
        };
        Ok(())
    });
}

/// In which host memory.
#[unsafe(no_mangle)]
pub extern "C" fn tms_get_cpu_backup_backend() -> *const c_char {
    let name = |region: &Region| -> &'static CStr {
        if region.memory == Backup::Pageable { c"mmap" } else { c"pinned" }
    };
    ask(c"pinned", name).as_ptr()
}

/// Sets whether the region is backed up on disk.
#[unsafe(no_mangle)]
pub extern "C" fn tms_set_enable_disk_backup(enable_disk_backup: bool) {
    change(|region| {
        region.on_disk = enable_disk_backup;
        Ok(())
    });
}

/// Returns true if it is.
#[unsafe(no_mangle)]
pub extern "C" fn tms_get_enable_disk_backup() -> bool {
    ask(false, |region| region.on_disk)
}

/// Sets the folder of such backups.
///
/// # Safety
/// `dir` is NULL, which changes nothing, or a NUL-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tms_set_disk_backup_dir(dir: *const c_char) {
    let _ = boundary::status(|| {
        // SAFETY: the caller's contract.
        let folder = unsafe { text(dir, "folder")? };
        std::fs::create_dir_all(Path::new(folder)).map_err(|error| {
            Error::new(Status::FileFailed, format!("{folder} cannot be made: {error}"))
        })?;
        instance::set_option("GENESIS_BACKUP_FOLDER", folder)
    });
}

/// From now on requests in regions leave so many bytes of each device free.
#[unsafe(no_mangle)]
pub extern "C" fn set_memory_margin_bytes(value: u64) {
    let _ = boundary::status(|| {
        instance::heap()?.set_tag_margin(value);
        Ok(())
    });
}

/// Sets whether backups in host memory stay after a resume.
#[unsafe(no_mangle)]
pub extern "C" fn tms_set_retain_cpu_backup(retain_cpu_backup: bool) {
    let _ = boundary::status(|| {
        instance::heap()?.set_retains_backups(retain_cpu_backup);
        Ok(())
    });
}

/// Returns true if they do.
#[unsafe(no_mangle)]
pub extern "C" fn tms_get_retain_cpu_backup() -> bool {
    boundary::call(|| Ok(instance::heap()?.retains_backups())).unwrap_or(false)
}

/// Pauses the tag, or all tags if it is NULL or empty. Returns a `genesis_status`. Nothing is to be
/// paused of a tag that was never used.
///
/// # Safety
/// `tag` is NULL or a NUL-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tms_pause(tag: *const c_char) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { of_tag(tag, |tag| instance::heap()?.pause_tags(tag, Keeping::default())) }
}

/// Resumes the tag, or all tags if it is NULL or empty. Returns a `genesis_status`.
///
/// # Safety
/// `tag` is NULL or a NUL-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tms_resume(tag: *const c_char) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { of_tag(tag, |tag| instance::heap()?.resume_tags(tag)) }
}

/// # Safety
/// `tag` is NULL or a NUL-terminated string.
unsafe fn of_tag(tag: *const c_char, body: impl FnOnce(Option<&str>) -> Result<()>) -> c_int {
    let status = boundary::status(|| {
        // SAFETY: the caller's contract.
        let tag = if tag.is_null() { "" } else { unsafe { text(tag, "tag")? } };
        let is_known = tag.is_empty() || instance::heap()?.generation(tag).is_ok();
        if is_known { body((!tag.is_empty()).then_some(tag)) } else { Ok(()) }
    });
    status as c_int
}

/// Where the `size` bytes from `gpu_ptr` on are kept in host memory; NULL: nowhere.
///
/// # Safety
/// Any pointer may be passed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tms_get_cpu_backup_pointer(gpu_ptr: *const u8, size: u64) -> *mut u8 {
    let found = boundary::call(|| instance::heap()?.backup_of(gpu_ptr as u64, size));
    found.ok().flatten().map_or(std::ptr::null_mut(), |address| address as *mut u8)
}

/// `genesis_torch_malloc`, as an allocator of `torch.cuda.MemPool`.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn tms_torch_malloc(
    size: isize,
    device: c_int,
    stream: genesis_stream,
) -> *mut c_void {
    hooks::genesis_torch_malloc(size as usize, device, stream)
}

/// `genesis_torch_free`.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn tms_torch_free(
    ptr: *mut c_void,
    size: isize,
    device: c_int,
    stream: genesis_stream,
) {
    hooks::genesis_torch_free(ptr, size as usize, device, stream);
}
