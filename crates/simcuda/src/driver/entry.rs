//! `cuGetProcAddress`: functions by name and version.
//!
//! A name without a suffix means the newest variant in the caller's version of CUDA. Nearly all
//! variants are older than any version in use today, so the newest one here is right; a table has
//! the exceptions.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;
use std::sync::OnceLock;

use simgpu::Code;

use crate::answer::put_if;
use crate::code;
use crate::log;

/// `CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM`.
const PER_THREAD_DEFAULT_STREAM: u64 = 2;

/// Names whose meaning changed with a version of CUDA that today's programs may still request:
/// the name, the version of the change, the symbol before it and from it on.
const CHANGED: [(&str, c_int, &CStr, &CStr); 5] = [
    ("cuCtxCreate", 12_050, c"cuCtxCreate_v3", c"cuCtxCreate_v4"),
    ("cuStreamGetCaptureInfo", 12_030, c"cuStreamGetCaptureInfo_v2", c"cuStreamGetCaptureInfo_v3"),
    ("cuGraphInstantiate", 12_000, c"cuGraphInstantiate_v2", c"cuGraphInstantiateWithFlags"),
    ("cuMemAdvise", 13_000, c"cuMemAdvise", c"cuMemAdvise_v2"),
    ("cuMemPrefetchAsync", 13_000, c"cuMemPrefetchAsync", c"cuMemPrefetchAsync_v2"),
];

/// The result of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lookup {
    /// The function's address.
    Found(*mut c_void),
    /// There is none; standard error has its name.
    Absent,
}

/// The driver's function `name` as a program of CUDA `version` means it.
pub(crate) fn look_up(name: &CStr, version: c_int, flags: u64) -> Lookup {
    let text = name.to_string_lossy();
    let found = if flags & PER_THREAD_DEFAULT_STREAM != 0 {
        ptr::null_mut()
    } else if let Some((_, change, before, after)) = CHANGED.iter().find(|row| row.0 == text) {
        own_symbol(if version < *change { before } else { after })
    } else {
        let variants = ["_v4", "_v3", "_v2", ""].map(|suffix| format!("{text}{suffix}"));
        let symbols = variants.into_iter().filter_map(|variant| CString::new(variant).ok());
        let addresses = symbols.map(|symbol| own_symbol(&symbol));
        addresses.into_iter().find(|address| !address.is_null()).unwrap_or(ptr::null_mut())
    };
    if found.is_null() {
        log::missing(&text);
        return Lookup::Absent;
    }
    Lookup::Found(found)
}

/// The address of a symbol of this library; null if it has none.
fn own_symbol(symbol: &CStr) -> *mut c_void {
    static SELF: OnceLock<usize> = OnceLock::new();
    let handle = *SELF.get_or_init(|| {
        // SAFETY: an all-zero `Dl_info` is valid, a variable of ours is an address inside this
        // library (an exported function may be another library's, preloaded before), and the name
        // found is NUL-terminated. The library is loaded already, so opening it again by the name
        // it was loaded under only counts.
        unsafe {
            let mut place: libc::Dl_info = std::mem::zeroed();
            let inside = (&raw const SELF).cast();
            if libc::dladdr(inside, &mut place) == 0 || place.dli_fname.is_null() {
                return 0;
            }
            libc::dlopen(place.dli_fname, libc::RTLD_NOW | libc::RTLD_NOLOAD) as usize
        }
    });
    if handle == 0 {
        return ptr::null_mut();
    }
    // SAFETY: the handle is this library's own and stays valid.
    unsafe { libc::dlsym(handle as *mut c_void, symbol.as_ptr()) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGetProcAddress_v2(
    name: *const c_char,
    function: *mut *mut c_void,
    version: c_int,
    flags: u64,
    status: *mut c_int,
) -> c_int {
    const FOUND: c_int = 0;
    const SYMBOL_NOT_FOUND: c_int = 1;
    if name.is_null() || function.is_null() {
        return Code::INVALID_VALUE.0;
    }
    // SAFETY: see the head of `driver`; valid before `cuInit`, so without `call::driver`.
    unsafe {
        match look_up(CStr::from_ptr(name), version, flags) {
            Lookup::Found(address) => {
                function.write(address);
                put_if(status, FOUND);
                0
            }
            Lookup::Absent => {
                function.write(ptr::null_mut());
                put_if(status, SYMBOL_NOT_FOUND);
                if status.is_null() { code::NOT_FOUND.0 } else { 0 }
            }
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGetProcAddress(
    name: *const c_char,
    function: *mut *mut c_void,
    version: c_int,
    flags: u64,
) -> c_int {
    // SAFETY: the same function, which before CUDA 12 had no status.
    unsafe { cuGetProcAddress_v2(name, function, version, flags, ptr::null_mut()) }
}

/// Tables of functions between CUDA's own libraries, by an identifier; none is public, and there is
/// none here. NVRTC asks for one and compiles without it, but does not bear that this function is
/// missing.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuGetExportTable(table: *mut *const c_void, _id: *const [u8; 16]) -> c_int {
    // SAFETY: null, or the caller's place for a table.
    unsafe { put_if(table, ptr::null()) };
    Code::INVALID_VALUE.0
}
