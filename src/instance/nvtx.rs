//! NVTX: the ranges and marks that programs make for NVIDIA's tools, as annotations.
//!
//! NVTX is a header. A library compiled with it (PyTorch's, NCCL) reads `NVTX_INJECTION64_PATH` at
//! its first range, loads the library named there, and calls its `InitializeInjectionNvtx2` with a
//! function that returns tables. The tables hold the addresses of the caller's pointers to
//! implementations, which this file sets; a function whose pointer is not set does nothing. If the
//! variable is unset or names another tool, none of this runs. Numbers and layouts are those of
//! NVTX 3 (`nvtxTypes.h`, `nvToolsExt.h`), which never change.
//!
//! | NVTX | annotation |
//! |---|---|
//! | mark, range of a thread (push, pop) in the default domain | its name |
//! | the same in another domain | "domain: name" |
//! | the same in the domain of CUB and Thrust | none: a range of microseconds per algorithm |
//! | range from one thread to another; payload, colour, category | none |
//!
//! All domains share the thread's one stack of ranges, so ranges of two domains that overlap
//! without nesting swap their ends.
//!
//! **Lifetimes.** Domains and registered strings are passed out as pointers and live as long as the
//! process. Equal ones are the same object, so a program that makes them repeatedly does not grow.
//! While the stream of events has no consumer, a range costs two tests.
#![allow(unsafe_code)]

use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::annotations;
use crate::base::lock::{Lock, rank};
use crate::observe::Action;

/// The result of push and pop from a tool that does not count depths.
const NO_PUSH_POP_TRACKING: c_int = -2;
/// The version of NVTX that this file implements.
const NVTX_VERSION: u32 = 3;
/// The name of a range without a message.
const NO_MESSAGE: &str = "(range)";
/// The domain of CUB and Thrust.
const CUB_DOMAIN: &str = "CCCL";

/// Numbers of tables and modules.
const CALLBACKS: u32 = 1;
const VERSION_INFO: u32 = 3;
const MODULE_CORE: c_int = 1;
const MODULE_CORE2: c_int = 5;

/// A pointer to an implementation, as the caller keeps it.
type Slot = *mut *const c_void;
/// Returns the table of that number, or null.
type GetExportTable = Option<unsafe extern "C" fn(table: u32) -> *const c_void>;

/// Writes the slots of a module and their number; returns 0 for a module that it does not have.
type GetSlots = unsafe extern "C" fn(module: c_int, *mut *const Slot, *mut c_uint) -> c_int;

/// Table 1.
#[repr(C)]
struct Callbacks {
    struct_size: usize,
    get_module_function_table: Option<GetSlots>,
}

/// Table 3: takes the version that the tool implements.
#[repr(C)]
struct VersionInfo {
    struct_size: usize,
    version: u32,
    reserved: u32,
    set_injection_version: Option<unsafe extern "C" fn(version: u32)>,
}

/// The beginning of `nvtxEventAttributes_t`, which may be longer.
#[repr(C)]
struct EventAttributes {
    version: u16,
    size: u16,
    category: u32,
    color_type: i32,
    color: u32,
    payload_type: i32,
    reserved: i32,
    payload: u64,
    message_type: i32,
    message: *const c_void,
}

const MESSAGE_ASCII: i32 = 1;
const MESSAGE_UNICODE: i32 = 2;
const MESSAGE_REGISTERED: i32 = 3;

/// `wchar_t` of the systems where NVTX can inject, which excludes Windows.
type WideChar = u32;

/// A domain; its handle points to it.
struct Domain {
    name: Box<str>,
    is_muted: bool,
}

/// A registered string; its handle points to it.
struct Text(Box<str>);

/// The domains and registered strings so far, by name.
#[derive(Default)]
struct Known {
    domains: HashMap<Box<str>, &'static Domain>,
    strings: HashMap<Box<str>, &'static Text>,
}

static KNOWN: Lock<Option<Known>, { rank::LEAF }> = Lock::new(None);

/// NVTX calls it in the library that `NVTX_INJECTION64_PATH` names. The caller's ranges and marks
/// are annotations from now on. Returns 1, or 0 for an unknown version of NVTX.
///
/// # Safety
/// Called by NVTX 3, with its `nvtxGetExportTable`.
#[allow(non_snake_case)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn InitializeInjectionNvtx2(get_export_table: GetExportTable) -> c_int {
    let Some(get) = get_export_table else { return 0 };
    // SAFETY: NVTX returns null or a table of that number, which lives as long as its code.
    let (callbacks, version) = unsafe {
        let version = get(VERSION_INFO).cast::<VersionInfo>().as_ref();
        (get(CALLBACKS).cast::<Callbacks>().as_ref(), version)
    };
    let table = callbacks.filter(|table| table.struct_size >= size_of::<Callbacks>());
    let Some(slots_of) = table.and_then(|table| table.get_module_function_table) else { return 0 };
    let is_whole = |table: &&VersionInfo| table.struct_size >= size_of::<VersionInfo>();
    if let Some(tell) = version.filter(is_whole).and_then(|table| table.set_injection_version) {
        // SAFETY: NVTX provides the function for this call.
        unsafe { tell(NVTX_VERSION) };
    }
    let modules = [(MODULE_CORE, &CORE[..]), (MODULE_CORE2, &CORE2[..])];
    let mut has_any = false;
    for (module, functions) in modules {
        let (mut slots, mut size) = (std::ptr::null(), 0);
        // SAFETY: both outputs are writable.
        if unsafe { slots_of(module, &mut slots, &mut size) } == 0 || slots.is_null() {
            continue;
        }
        for &(number, Function(function)) in functions.iter().filter(|(number, _)| *number < size) {
            // SAFETY: NVTX's table has `size` slots, each null or a pointer reserved for the
            // function of that number. No other thread reads it before we return.
            unsafe {
                let slot = *slots.add(number as usize);
                if !slot.is_null() {
                    slot.write(function);
                    has_any = true;
                }
            }
        }
    }
    c_int::from(has_any)
}

/// A function of any type, as NVTX's slots have it.
struct Function(*const c_void);

// SAFETY: functions may be called by any thread.
unsafe impl Sync for Function {}

/// Our functions of the module CORE, by number.
static CORE: [(c_uint, Function); 7] = [
    (1, Function(mark_ex as *const c_void)),
    (2, Function(mark_ascii as *const c_void)),
    (3, Function(mark_wide as *const c_void)),
    (8, Function(range_push_ex as *const c_void)),
    (9, Function(range_push_ascii as *const c_void)),
    (10, Function(range_push_wide as *const c_void)),
    (11, Function(range_pop as *const c_void)),
];

/// Our functions of the module CORE2, which take a domain.
static CORE2: [(c_uint, Function); 7] = [
    (1, Function(domain_mark_ex as *const c_void)),
    (4, Function(domain_range_push_ex as *const c_void)),
    (5, Function(domain_range_pop as *const c_void)),
    (10, Function(domain_register_string_ascii as *const c_void)),
    (11, Function(domain_register_string_wide as *const c_void)),
    (12, Function(domain_create_ascii as *const c_void)),
    (13, Function(domain_create_wide as *const c_void)),
];

// The functions that NVTX calls. NVTX's contract: strings are null or NUL-terminated, attributes
// are null or contain their size, and handles come from this file.

unsafe extern "C" fn mark_ex(attributes: *const EventAttributes) {
    // SAFETY: NVTX's contract.
    unsafe { domain_mark_ex(std::ptr::null(), attributes) }
}

unsafe extern "C" fn mark_ascii(message: *const c_char) {
    // SAFETY: NVTX's contract.
    annotate(Action::Mark, || Some(unsafe { ascii(message) }));
}

unsafe extern "C" fn mark_wide(message: *const WideChar) {
    // SAFETY: NVTX's contract.
    annotate(Action::Mark, || Some(unsafe { wide(message) }));
}

unsafe extern "C" fn range_push_ex(attributes: *const EventAttributes) -> c_int {
    // SAFETY: NVTX's contract.
    unsafe { domain_range_push_ex(std::ptr::null(), attributes) }
}

unsafe extern "C" fn range_push_ascii(message: *const c_char) -> c_int {
    // SAFETY: NVTX's contract.
    annotate(Action::RangePush, || Some(unsafe { ascii(message) }));
    NO_PUSH_POP_TRACKING
}

unsafe extern "C" fn range_push_wide(message: *const WideChar) -> c_int {
    // SAFETY: NVTX's contract.
    annotate(Action::RangePush, || Some(unsafe { wide(message) }));
    NO_PUSH_POP_TRACKING
}

unsafe extern "C" fn range_pop() -> c_int {
    // SAFETY: the default domain.
    unsafe { domain_range_pop(std::ptr::null()) }
}

unsafe extern "C" fn domain_mark_ex(domain: *const Domain, attributes: *const EventAttributes) {
    // SAFETY: NVTX's contract.
    annotate(Action::Mark, || unsafe { name(domain, attributes) });
}

unsafe extern "C" fn domain_range_push_ex(
    domain: *const Domain,
    attributes: *const EventAttributes,
) -> c_int {
    // SAFETY: NVTX's contract.
    annotate(Action::RangePush, || unsafe { name(domain, attributes) });
    NO_PUSH_POP_TRACKING
}

unsafe extern "C" fn domain_range_pop(domain: *const Domain) -> c_int {
    // SAFETY: NVTX's contract.
    let is_muted = unsafe { domain.as_ref() }.is_some_and(|domain| domain.is_muted);
    annotate(Action::RangePop, || (!is_muted).then(String::new));
    NO_PUSH_POP_TRACKING
}

unsafe extern "C" fn domain_register_string_ascii(
    _domain: *const Domain,
    text: *const c_char,
) -> *const Text {
    // SAFETY: NVTX's contract.
    guarded(|| registered(&unsafe { ascii(text) }))
}

unsafe extern "C" fn domain_register_string_wide(
    _domain: *const Domain,
    text: *const WideChar,
) -> *const Text {
    // SAFETY: NVTX's contract.
    guarded(|| registered(&unsafe { wide(text) }))
}

unsafe extern "C" fn domain_create_ascii(name: *const c_char) -> *const Domain {
    // SAFETY: NVTX's contract.
    guarded(|| domain(&unsafe { ascii(name) }))
}

unsafe extern "C" fn domain_create_wide(name: *const WideChar) -> *const Domain {
    // SAFETY: NVTX's contract.
    guarded(|| domain(&unsafe { wide(name) }))
}

/// Notes an annotation if `name` returns a name and it may be heard. Failures
/// are ignored: NVTX has no errors, and a profile without a range is still valid.
fn annotate(action: Action, name: impl FnOnce() -> Option<String>) {
    if annotations::are_wanted() {
        let _ = catch_unwind(AssertUnwindSafe(|| {
            name().map(|name| {
                annotations::annotate(action, (action != Action::RangePop).then_some(&*name))
            })
        }));
    }
}

/// A pointer to the result of `body`; null, which NVTX takes for none, if it panics.
fn guarded<T: 'static>(body: impl FnOnce() -> &'static T) -> *const T {
    catch_unwind(AssertUnwindSafe(body)).map_or(std::ptr::null(), std::ptr::from_ref)
}

/// The domain of that name.
fn domain(name: &str) -> &'static Domain {
    let mut known = KNOWN.lock();
    let domains = &mut known.get_or_insert_default().domains;
    domains.entry(name.into()).or_insert_with(|| {
        Box::leak(Box::new(Domain { name: name.into(), is_muted: name == CUB_DOMAIN }))
    })
}

/// The registered string of that text.
fn registered(text: &str) -> &'static Text {
    let mut known = KNOWN.lock();
    let strings = &mut known.get_or_insert_default().strings;
    strings.entry(text.into()).or_insert_with(|| Box::leak(Box::new(Text(text.into()))))
}

/// The name of a range or mark; `None` if its domain is muted.
///
/// # Safety
/// NVTX's contract for both.
unsafe fn name(domain: *const Domain, attributes: *const EventAttributes) -> Option<String> {
    // SAFETY: null, which is the default domain, or a handle from here.
    let domain = unsafe { domain.as_ref() };
    if domain.is_some_and(|domain| domain.is_muted) {
        return None;
    }
    // SAFETY: null or attributes.
    let message = unsafe { message(attributes) };
    Some(match domain {
        Some(domain) => format!("{}: {message}", domain.name),
        None => message,
    })
}

/// The message of `attributes`.
///
/// # Safety
/// `attributes` is null or points to as many bytes as it says.
unsafe fn message(attributes: *const EventAttributes) -> String {
    // SAFETY: attributes of any version begin with the version and the size.
    let is_whole = !attributes.is_null()
        && usize::from(unsafe { (*attributes).size }) >= size_of::<EventAttributes>();
    if !is_whole {
        return NO_MESSAGE.to_owned();
    }
    // SAFETY: they are long enough.
    let attributes = unsafe { &*attributes };
    // SAFETY: the type says what the message points to, unless it is null.
    unsafe {
        match attributes.message_type {
            MESSAGE_ASCII => ascii(attributes.message.cast()),
            MESSAGE_UNICODE => wide(attributes.message.cast()),
            MESSAGE_REGISTERED => {
                let text = attributes.message.cast::<Text>().as_ref();
                text.map_or(NO_MESSAGE, |text| &text.0).to_owned()
            }
            _ => NO_MESSAGE.to_owned(),
        }
    }
}

/// # Safety
/// `text` is null or a NUL-terminated string.
unsafe fn ascii(text: *const c_char) -> String {
    if text.is_null() {
        return NO_MESSAGE.to_owned();
    }
    // SAFETY: a string, by the caller's contract.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// # Safety
/// `text` is null or a NUL-terminated string of wide characters.
unsafe fn wide(text: *const WideChar) -> String {
    if text.is_null() {
        return NO_MESSAGE.to_owned();
    }
    let mut name = String::new();
    let mut at = text;
    // SAFETY: not past the NUL.
    while let character @ 1.. = unsafe { *at } {
        name.push(char::from_u32(character).unwrap_or(char::REPLACEMENT_CHARACTER));
        // SAFETY: as above.
        at = unsafe { at.add(1) };
    }
    name
}
