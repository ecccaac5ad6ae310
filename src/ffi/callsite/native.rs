//! Native stacks: return addresses, found by the unwinder of the C runtime, and what they are
//! called.
//!
//! **Finding.** `_Unwind_Backtrace` of libgcc reads the unwinding tables, which every object on
//! x86-64 and AArch64 has whether or not it is stripped; frame pointers are not needed. It
//! passes signal frames, ends where there are no tables (generated code, hand-written assembly)
//! and takes no lock but the loader's, for the list of objects, and since glibc 2.35 not even
//! that. Frames of this library are left out: the range of its own addresses is known.
//!
//! **Naming** happens when somebody asks for it, not when a call is made: by DWARF and symbol
//! tables as the `backtrace` crate reads them, inlined functions as frames of their own, else by
//! the shared object and the offset in it. What an address is called is kept. Addresses are
//! named in order, as the crate keeps the tables of a few objects only.
//!
//! **Not done.** An object that was unloaded before its addresses are named leaves them without
//! a name, or with a wrong one where another was loaded there.

use std::collections::HashMap;
use std::ffi::{CStr, c_int, c_void};
use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use genesis_profile::model::Frame;
use once_cell::sync::Lazy;

/// So many frames of a stack are told, from the innermost.
pub(super) const MOST_FRAMES: usize = 32;
/// How many of our own frames may come before them.
const MOST_OWN_FRAMES: usize = 32;

/// Functions of PyTorch and of C++ between an operator and this library: no user looks for them.
const PLUMBING: [&str; 4] =
    ["CUDAPluggableAllocator", "std::_Function_handler<", "genesis_", "genesis::"];

/// The addresses of this library; empty where it is part of the program itself.
static OWN_CODE: Lazy<Range<usize>> = Lazy::new(own_code);
static NAMES: Lazy<Mutex<HashMap<u64, Vec<Frame>>>> = Lazy::new(Mutex::default);

struct Walk<'a> {
    words: &'a mut [u64],
    count: usize,
    own_frames: usize,
    own_code: Range<usize>,
}

/// Writes the return addresses of this thread's stack to `words`, from the innermost outside of
/// this library; says how many there are.
pub(super) fn capture(words: &mut [u64]) -> usize {
    let own_code = OWN_CODE.clone();
    let mut walk = Walk { words, count: 0, own_frames: 0, own_code };
    // SAFETY: `visit` gets back the pointer it expects, during this call only.
    unsafe { _Unwind_Backtrace(visit, (&raw mut walk).cast()) };
    walk.count
}

impl Walk<'_> {
    /// Takes a frame in; says whether to go on.
    fn step(&mut self, return_address: usize) -> bool {
        if return_address == 0 {
            return false;
        }
        if self.count == 0 && self.own_code.contains(&return_address) {
            self.own_frames += 1;
            return self.own_frames < MOST_OWN_FRAMES;
        }
        let Some(word) = self.words.get_mut(self.count) else {
            return false;
        };
        *word = return_address as u64;
        self.count += 1;
        self.count < self.words.len()
    }
}

const GO_ON: c_int = 0;
/// Any other number ends the walk.
const STOP: c_int = 5;

extern "C" fn visit(context: *mut c_void, walk: *mut c_void) -> c_int {
    // SAFETY: the pointer that `capture` passed, to a value that nobody else uses meanwhile.
    let walk = unsafe { &mut *walk.cast::<Walk<'_>>() };
    let mut is_signal_frame = 0;
    // SAFETY: the context of this frame, as the unwinder passed it, and a place for an `int`.
    let address = unsafe { _Unwind_GetIPInfo(context, &mut is_signal_frame) };
    // In all but signal frames the address is that after the call: the one before is within it.
    let within = if is_signal_frame == 0 { address.saturating_sub(1) } else { address };
    if walk.step(within) { GO_ON } else { STOP }
}

unsafe extern "C" {
    /// Calls the function for each frame, from the innermost, until it returns other than 0.
    fn _Unwind_Backtrace(
        visit: extern "C" fn(*mut c_void, *mut c_void) -> c_int,
        data: *mut c_void,
    ) -> c_int;
    /// The address that the frame's next instruction is at, and whether that is where a signal
    /// came instead of behind a call.
    fn _Unwind_GetIPInfo(context: *mut c_void, is_before: *mut c_int) -> usize;
}

/// The frames of each of `stacks`, from the innermost. Takes milliseconds and more.
pub(super) fn name(stacks: &[&[u64]]) -> Vec<Vec<Frame>> {
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    let mut unnamed: Vec<u64> =
        stacks.iter().copied().flatten().copied().filter(|at| !names.contains_key(at)).collect();
    if !unnamed.is_empty() {
        unnamed.sort_unstable();
        unnamed.dedup();
        // What was loaded since then is looked at again.
        backtrace::clear_symbol_cache();
        for address in unnamed {
            names.insert(address, name_one(address as usize));
        }
    }
    let of_stack = |stack: &&[u64]| {
        let frames = stack.iter().filter_map(|address| names.get(address)).flatten().cloned();
        frames.skip_while(is_plumbing).collect()
    };
    stacks.iter().map(of_stack).collect()
}

fn is_plumbing(frame: &Frame) -> bool {
    PLUMBING.iter().any(|part| frame.function.contains(part))
}

/// The functions that the code at `address` is of: more than one where some are inlined.
fn name_one(address: usize) -> Vec<Frame> {
    let mut frames = Vec::new();
    backtrace::resolve(address as *mut c_void, |symbol| {
        let file = symbol.filename().map(|file| file.display().to_string());
        frames.push(Frame {
            function: symbol.name().map(|name| format!("{name:#}")).unwrap_or_default(),
            file: file.unwrap_or_default(),
            line: symbol.lineno().unwrap_or(0),
        });
    });
    let object = object(address);
    if frames.iter().all(|frame| frame.function.is_empty() && frame.file.is_empty()) {
        let offset = object.as_ref().map_or(address, |(_, base)| address - base);
        frames = vec![Frame { function: format!("0x{offset:x}"), ..Frame::default() }];
    }
    for frame in &mut frames {
        if frame.file.is_empty() {
            frame.file = object.as_ref().map(|(file, _)| file.clone()).unwrap_or_default();
        }
    }
    frames
}

/// The path of the object that `address` is in, and where it is loaded.
pub(super) fn object(address: usize) -> Option<(String, usize)> {
    let mut info = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: any address may be asked for, and the output is writable; the name in it is the
    // loader's, and is read at once.
    unsafe {
        if libc::dladdr(address as *const c_void, info.as_mut_ptr()) == 0 {
            return None;
        }
        let info = info.assume_init();
        let name = (!info.dli_fname.is_null()).then(|| CStr::from_ptr(info.dli_fname))?;
        Some((name.to_string_lossy().into_owned(), info.dli_fbase as usize))
    }
}

/// Where the object with this very code lies, unless it is the program itself, in which other
/// code is the user's.
fn own_code() -> Range<usize> {
    struct Search {
        own: usize,
        found: Range<usize>,
    }
    unsafe extern "C" fn look(
        info: *mut libc::dl_phdr_info,
        _: libc::size_t,
        search: *mut c_void,
    ) -> c_int {
        // SAFETY: the loader passes a valid entry, and the pointer that `own_code` gave it.
        let (info, search) = unsafe { (&*info, &mut *search.cast::<Search>()) };
        // SAFETY: the loader's string; the program's is empty.
        let is_program = info.dlpi_name.is_null() || unsafe { *info.dlpi_name } == 0;
        if is_program || info.dlpi_phdr.is_null() {
            return 0;
        }
        // SAFETY: as many headers as the entry says.
        let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
        for header in headers.iter().filter(|header| header.p_type == libc::PT_LOAD) {
            let start = (info.dlpi_addr as usize).wrapping_add(header.p_vaddr as usize);
            let segment = start..start.wrapping_add(header.p_memsz as usize);
            if segment.contains(&search.own) {
                search.found = segment;
                return 1;
            }
        }
        0
    }
    let mut search = Search { own: own_code as fn() -> Range<usize> as usize, found: 0..0 };
    // SAFETY: `look` gets back the pointer it expects, during this call only.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut search).cast()) };
    search.found
}
