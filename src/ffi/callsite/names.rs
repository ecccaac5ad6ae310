//! What native addresses are called: functions, files and lines.
//!
//! By DWARF and symbol tables as the `backtrace` crate reads them, inlined functions as frames of
//! their own, else by the shared object and the offset in it. C++ functions are told without
//! their parameters, which are longer than all the rest. What an address is called is kept.
//! Addresses are named in order, as the crate keeps the tables of a few objects only.
//!
//! **Not done.** An object that was unloaded before its addresses are named leaves them without
//! a name, or with a wrong one where another was loaded there.

use std::collections::HashMap;
use std::ffi::{CStr, c_void};
use std::mem::MaybeUninit;
use std::sync::{Mutex, PoisonError};

use backtrace::SymbolName;
use cpp_demangle::DemangleOptions;
use genesis_profile::model::Frame;
use once_cell::sync::Lazy;

/// Functions of PyTorch, of C++ and of ours between an operator and a block: no user looks for
/// them.
const PLUMBING: [&str; 5] = [
    "CUDAPluggableAllocator",
    "std::_Function_handler<",
    "genesis_",
    "genesis::",
    "at::detail::empty_",
];
/// Functions by which PyTorch finds an operator, anywhere on the way.
const DISPATCH: [&str; 2] = ["c10::impl::wrap_kernel_functor", "::redispatch"];

static NAMES: Lazy<Mutex<HashMap<u64, Vec<Frame>>>> = Lazy::new(Mutex::default);

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
    let is_one_of =
        |frame: &Frame, parts: &[&str]| parts.iter().any(|part| frame.function.contains(part));
    let of_stack = |stack: &&[u64]| {
        let frames = stack.iter().filter_map(|address| names.get(address)).flatten();
        let frames = frames.skip_while(|frame| is_one_of(frame, &PLUMBING));
        frames.filter(|frame| !is_one_of(frame, &DISPATCH)).cloned().collect()
    };
    stacks.iter().map(of_stack).collect()
}

/// The functions that the code at `address` is of: more than one where some are inlined.
fn name_one(address: usize) -> Vec<Frame> {
    let mut frames = Vec::new();
    backtrace::resolve(address as *mut c_void, |symbol| {
        let file = symbol.filename().map(|file| file.display().to_string());
        frames.push(Frame {
            function: symbol.name().map(|name| readable(&name)).unwrap_or_default(),
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

/// A function's name as its programmer would write it.
fn readable(name: &SymbolName<'_>) -> String {
    let options = DemangleOptions::new().no_params().no_return_type();
    // Rust's names, which may look the same, are the crate's own business.
    let plain = format!("{name:#}");
    let is_still_mangled = plain.starts_with("_Z");
    let of_cpp = || cpp_demangle::Symbol::new(name.as_bytes()).ok();
    let demangled = is_still_mangled.then(of_cpp).flatten();
    demangled.and_then(|name| name.demangle_with_options(&options).ok()).unwrap_or(plain)
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
