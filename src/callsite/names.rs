//! Names of native addresses: functions, files and lines.
//!
//! The `backtrace` crate reads DWARF and symbol tables; an inlined function is a frame of its own.
//! An address without a symbol is named by its shared object and the offset in it. C++ functions
//! are named without their parameters, which are longer than all the rest. Names are kept.
//! Addresses are named in ascending order, because the crate keeps the tables of only a few
//! objects.
//!
//! **Not done.** If an object is unloaded before its addresses are named, they get no name, or a
//! wrong one if another object was loaded there.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Mutex, PoisonError};

use backtrace::SymbolName;
use cpp_demangle::DemangleOptions;
use genesis_profile::model::Frame;
use once_cell::sync::Lazy;

use crate::process::Object;

/// Functions of PyTorch, C++ and this library between an operator and a block: of no interest to
/// users.
const PLUMBING: [&str; 5] = [
    "CUDAPluggableAllocator",
    "std::_Function_handler<",
    "genesis_",
    "genesis::",
    "at::detail::empty_",
];
/// Functions by which PyTorch dispatches to an operator, anywhere in the stack.
const DISPATCH: [&str; 2] = ["c10::impl::wrap_kernel_functor", "::redispatch"];

static NAMES: Lazy<Mutex<HashMap<u64, Vec<Frame>>>> = Lazy::new(Mutex::default);

/// The frames of each of `stacks`, innermost first. Takes milliseconds or more.
pub(super) fn name(stacks: &[&[u64]]) -> Vec<Vec<Frame>> {
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    let mut unnamed: Vec<u64> =
        stacks.iter().copied().flatten().copied().filter(|at| !names.contains_key(at)).collect();
    if !unnamed.is_empty() {
        unnamed.sort_unstable();
        unnamed.dedup();
        // Has the crate look for objects loaded since.
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

/// The functions that the code at `address` belongs to: several if some are inlined.
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
    let object = Object::containing(address);
    if frames.iter().all(|frame| frame.function.is_empty() && frame.file.is_empty()) {
        let offset = object.map_or(address, |object| address - object.base());
        frames = vec![Frame { function: format!("0x{offset:x}"), ..Frame::default() }];
    }
    let path = object.map(|object| object.path().to_string_lossy().into_owned());
    for frame in frames.iter_mut().filter(|frame| frame.file.is_empty()) {
        frame.file = path.clone().unwrap_or_default();
    }
    frames
}

/// A function's name as a programmer writes it.
fn readable(name: &SymbolName<'_>) -> String {
    let options = DemangleOptions::new().no_params().no_return_type();
    // The crate demangles Rust's names, some of which also begin with `_Z`.
    let plain = format!("{name:#}");
    let is_still_mangled = plain.starts_with("_Z");
    let of_cpp = || cpp_demangle::Symbol::new(name.as_bytes()).ok();
    let demangled = is_still_mangled.then(of_cpp).flatten();
    demangled.and_then(|name| name.demangle_with_options(&options).ok()).unwrap_or(plain)
}
