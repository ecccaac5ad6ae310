//! CPython in this process, if any: the functions of its C interface that are used here, looked up
//! in the running program, and where a thread keeps its frames.
//!
//! Nothing is linked, and any version from 3.9 on works: every function here has been exported
//! since then, under one of the listed names. If one is missing, call sites ignore the interpreter.
//!
//! [`Layout`] is the exception: the offsets of six fields in CPython's own structures, which lead
//! from a thread's state to its frames. They are taken from the headers of 3.11 to 3.15. `python.rs`
//! trusts them only after it has compared their frames with those that the functions return. For
//! other versions, and builds without a global lock, only the functions are used: in such a build
//! each thread runs a copy of the code, which may go before the code does and leave its address to
//! another one.

use std::ffi::{CStr, c_char, c_int, c_long, c_uint, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use once_cell::sync::{Lazy, OnceCell};

use crate::process;

/// Any Python object, and a thread's state.
pub(super) type Object = *mut c_void;

/// The functions. The global lock must be held unless the comment says otherwise.
#[derive(Debug)]
pub(super) struct Interpreter {
    /// Any thread, no lock.
    pub(super) is_initialized: unsafe extern "C" fn() -> c_int,
    /// Any thread, no lock.
    pub(super) is_finalizing: unsafe extern "C" fn() -> c_int,
    /// This thread's state; null if Python does not know the thread. No lock.
    pub(super) own_state: unsafe extern "C" fn() -> Object,
    /// The state that holds the global lock: of any thread up to 3.11; later this thread's or null.
    /// No lock.
    pub(super) active_state: unsafe extern "C" fn() -> Object,
    /// Waits for the global lock unless this thread holds it.
    pub(super) ensure: unsafe extern "C" fn() -> c_uint,
    pub(super) release: unsafe extern "C" fn(c_uint),
    pub(super) save_thread: unsafe extern "C" fn() -> Object,
    pub(super) restore_thread: unsafe extern "C" fn(Object),
    /// Borrowed; null if no Python code runs.
    pub(super) frame: unsafe extern "C" fn() -> Object,
    /// A new reference, or null.
    pub(super) frame_back: unsafe extern "C" fn(Object) -> Object,
    /// A new reference.
    pub(super) frame_code: unsafe extern "C" fn(Object) -> Object,
    pub(super) frame_line: unsafe extern "C" fn(Object) -> c_int,
    /// From 3.11 on: the place in its code at which a frame is.
    pub(super) frame_place: Option<unsafe extern "C" fn(Object) -> c_int>,
    /// The line of a place in code.
    pub(super) line_at: unsafe extern "C" fn(Object, c_int) -> c_int,
    pub(super) attribute: unsafe extern "C" fn(Object, *const c_char) -> Object,
    /// The text of a string, which owns it.
    pub(super) text: unsafe extern "C" fn(Object, *mut isize) -> *const c_char,
    pub(super) add_reference: unsafe extern "C" fn(Object),
    pub(super) drop_reference: unsafe extern "C" fn(Object),
    pub(super) take_error: unsafe extern "C" fn(*mut Object, *mut Object, *mut Object),
    pub(super) put_error: unsafe extern "C" fn(Object, Object, Object),
    pub(super) import: unsafe extern "C" fn(*const c_char) -> Object,
    pub(super) new_function: unsafe extern "C" fn(*const Method, Object, Object) -> Object,
    /// The arguments end with a null.
    pub(super) call: unsafe extern "C" fn(Object, ...) -> Object,
    /// None.
    pub(super) none: Object,
    pub(super) layout: Option<Layout>,
}

// SAFETY: functions and fixed addresses, of a library that is never unloaded.
unsafe impl Send for Interpreter {}
// SAFETY: as above.
unsafe impl Sync for Interpreter {}

/// `PyMethodDef`.
#[repr(C)]
#[derive(Debug)]
pub(super) struct Method {
    pub(super) name: *const c_char,
    pub(super) function: unsafe extern "C" fn(Object, Object) -> Object,
    pub(super) flags: c_int,
    pub(super) documentation: *const c_char,
}

// SAFETY: it is never written, and the texts are constants.
unsafe impl Sync for Method {}

/// `METH_NOARGS`.
pub(super) const WITHOUT_ARGUMENTS: c_int = 4;

/// Offsets in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    /// In a thread's state: a pointer to a record that contains the frame at `in_record`, or to the
    /// frame itself.
    state: usize,
    in_record: Option<usize>,
    code: usize,
    instruction: usize,
    previous: usize,
    owner: usize,
}

/// A frame that is not Python code, from this owner on: it marks where C code entered the interpreter.
const OWNED_BY_C_STACK: u8 = 3;
/// From 3.14 on, bits of the pointer to the code, which tell who owns the reference.
const MARKS: usize = 3;

/// Python 3.11 to 3.15.
const LAYOUTS: [(c_long, Layout); 5] = [
    (
        0x030B,
        Layout {
            state: 56,
            in_record: Some(8),
            code: 32,
            instruction: 56,
            previous: 48,
            owner: 69,
        },
    ),
    (
        0x030C,
        Layout { state: 56, in_record: Some(0), code: 0, instruction: 56, previous: 8, owner: 70 },
    ),
    (
        0x030D,
        Layout { state: 72, in_record: None, code: 0, instruction: 56, previous: 8, owner: 70 },
    ),
    (0x030E, SINCE_3_14),
    (0x030F, SINCE_3_14),
];
const SINCE_3_14: Layout =
    Layout { state: 72, in_record: None, code: 0, instruction: 56, previous: 8, owner: 74 };

impl Layout {
    /// Calls `visit` with the code of each frame of the thread with this `state` and the place in
    /// the code, innermost first, until it returns false.
    ///
    /// # Safety
    /// `state` is the calling thread's, of a living interpreter with this layout. The thread need
    /// not hold the global lock: only the thread changes its frames, and each frame holds its code.
    #[inline]
    pub(super) unsafe fn walk(self, state: Object, mut visit: impl FnMut(Object, u64) -> bool) {
        /// The field at `offset`.
        unsafe fn field<T: Copy>(of: Object, offset: usize) -> T {
            // SAFETY: the caller's contract; fields are aligned.
            unsafe { of.cast::<u8>().add(offset).cast::<T>().read() }
        }
        // SAFETY: the caller's contract, here and below: what the fields point to exists.
        let mut frame: Object = unsafe { field(state, self.state) };
        if let Some(offset) = self.in_record
            && !frame.is_null()
        {
            // SAFETY: as above.
            frame = unsafe { field(frame, offset) };
        }
        while !frame.is_null() {
            // SAFETY: as above.
            let (owner, code, place) = unsafe {
                let owner: u8 = field(frame, self.owner);
                let code: Object = field(frame, self.code);
                let place: u64 = field(frame, self.instruction);
                (owner, code, place)
            };
            let code = code.map_addr(|address| address & !MARKS);
            if owner < OWNED_BY_C_STACK && !visit(code, place) {
                return;
            }
            // SAFETY: as above.
            frame = unsafe { field(frame, self.previous) };
        }
    }
}

/// The interpreter of this process, if it has a usable one.
#[inline]
pub(super) fn get() -> Option<&'static Interpreter> {
    static FOUND: OnceCell<Interpreter> = OnceCell::new();
    /// A search costs microseconds, and an interpreter may be loaded later. A power of two.
    const CALLS_PER_SEARCH: u32 = 4096;
    static CALLS: AtomicU32 = AtomicU32::new(0);
    if let Some(found) = FOUND.get() {
        return Some(found);
    }
    if CALLS.fetch_add(1, Relaxed) & (CALLS_PER_SEARCH - 1) != 0 {
        return None;
    }
    FOUND.get_or_try_init(|| look_up().ok_or(())).ok()
}

/// Returns true if `address` is in the object of the interpreter, a library or the program.
pub(super) fn contains(address: usize) -> bool {
    static OBJECT: Lazy<Option<usize>> = Lazy::new(|| {
        let evaluate = symbol(c"_PyEval_EvalFrameDefault")?;
        process::Object::containing(evaluate as usize).map(|object| object.base())
    });
    let object = || process::Object::containing(address).map(|object| object.base());
    OBJECT.is_some() && object() == *OBJECT
}

fn symbol(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: a string.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}

/// The function with the first of these names that exists.
macro_rules! function {
    ($($name:literal)|+) => {
        // SAFETY: the field to which it is assigned has the type that CPython declares.
        None$(.or_else(|| symbol($name)))+.map(|found| unsafe { std::mem::transmute(found) })
    };
}

fn look_up() -> Option<Interpreter> {
    Some(Interpreter {
        is_initialized: function!(c"Py_IsInitialized")?,
        is_finalizing: function!(c"Py_IsFinalizing" | c"_Py_IsFinalizing")?,
        own_state: function!(c"PyGILState_GetThisThreadState")?,
        active_state: function!(c"PyThreadState_GetUnchecked" | c"_PyThreadState_UncheckedGet")?,
        ensure: function!(c"PyGILState_Ensure")?,
        release: function!(c"PyGILState_Release")?,
        save_thread: function!(c"PyEval_SaveThread")?,
        restore_thread: function!(c"PyEval_RestoreThread")?,
        frame: function!(c"PyEval_GetFrame")?,
        frame_back: function!(c"PyFrame_GetBack")?,
        frame_code: function!(c"PyFrame_GetCode")?,
        frame_line: function!(c"PyFrame_GetLineNumber")?,
        frame_place: function!(c"PyFrame_GetLasti"),
        line_at: function!(c"PyCode_Addr2Line")?,
        attribute: function!(c"PyObject_GetAttrString")?,
        text: function!(c"PyUnicode_AsUTF8AndSize")?,
        add_reference: function!(c"Py_IncRef")?,
        drop_reference: function!(c"Py_DecRef")?,
        take_error: function!(c"PyErr_Fetch")?,
        put_error: function!(c"PyErr_Restore")?,
        import: function!(c"PyImport_ImportModule")?,
        new_function: function!(c"PyCFunction_NewEx")?,
        call: function!(c"PyObject_CallFunctionObjArgs")?,
        none: symbol(c"_Py_NoneStruct")?,
        layout: layout(),
    })
}

/// The layout of this version, if it is known.
fn layout() -> Option<Layout> {
    /// Only builds without a global lock export it.
    const FREE_THREADED: &CStr = c"_Py_DecRefShared";
    /// The version and the release in `Py_Version`.
    const MINOR_SHIFT: u32 = 16;
    const RELEASE_SHIFT: u32 = 4;
    /// Not an alpha, a beta or a candidate.
    const FINAL: c_long = 0xF;
    if cfg!(not(target_pointer_width = "64")) || symbol(FREE_THREADED).is_some() {
        return None;
    }
    // SAFETY: an `unsigned long` that is never written.
    let version = unsafe { symbol(c"Py_Version")?.cast::<c_long>().read() };
    let is_final = version >> RELEASE_SHIFT & 0xF == FINAL;
    let known = LAYOUTS.iter().find(|(minor, _)| *minor == version >> MINOR_SHIFT && is_final);
    known.map(|(_, layout)| *layout)
}

/// A reference to a Python object, released on drop. The global lock must be held then.
#[derive(Debug)]
pub(super) struct Reference<'a> {
    interpreter: &'a Interpreter,
    object: Object,
}

impl<'a> Reference<'a> {
    /// Owns a reference that a function returned; `None` for null, a failure.
    pub(super) fn owned(interpreter: &'a Interpreter, object: Object) -> Option<Self> {
        (!object.is_null()).then_some(Self { interpreter, object })
    }

    /// A new reference to an object that another holder keeps alive; `None` for null.
    ///
    /// # Safety
    /// `object` is null or an existing object.
    pub(super) unsafe fn shared(interpreter: &'a Interpreter, object: Object) -> Option<Self> {
        if !object.is_null() {
            // SAFETY: the caller's contract.
            unsafe { (interpreter.add_reference)(object) };
        }
        Self::owned(interpreter, object)
    }

    pub(super) fn get(&self) -> Object {
        self.object
    }

    /// The text of the attribute `name`, if it is a string.
    pub(super) fn text_of(&self, name: &CStr) -> Option<String> {
        let python = self.interpreter;
        // SAFETY: an object to which we have a reference, and a string.
        let value = unsafe { (python.attribute)(self.object, name.as_ptr()) };
        let value = Reference::owned(python, value)?;
        let mut bytes = 0;
        // SAFETY: as above; an object that is not a string returns null.
        let text = unsafe { (python.text)(value.object, &mut bytes) };
        if text.is_null() {
            return None;
        }
        // SAFETY: `bytes` bytes, which belong to the string and live as long as our reference.
        let text = unsafe { std::slice::from_raw_parts(text.cast::<u8>(), bytes as usize) };
        Some(String::from_utf8_lossy(text).into_owned())
    }
}

impl Drop for Reference<'_> {
    fn drop(&mut self) {
        // SAFETY: our reference, with the lock held as the type requires.
        unsafe { (self.interpreter.drop_reference)(self.object) };
    }
}

/// Saves the error that is being raised in this thread, if any, and restores it on drop, so that
/// our own calls do not see it. The global lock must be held until then.
pub(super) struct ErrorAside<'a> {
    interpreter: &'a Interpreter,
    error: [Object; 3],
}

impl<'a> ErrorAside<'a> {
    pub(super) fn new(interpreter: &'a Interpreter) -> Self {
        let mut error = [null_mut(); 3];
        let [kind, value, traceback] = &mut error;
        // SAFETY: three writable places, with the lock held.
        unsafe { (interpreter.take_error)(kind, value, traceback) };
        Self { interpreter, error }
    }
}

impl Drop for ErrorAside<'_> {
    fn drop(&mut self) {
        let [kind, value, traceback] = self.error;
        // SAFETY: the result of `take_error`, restored once; it replaces an error of our own.
        unsafe { (self.interpreter.put_error)(kind, value, traceback) };
    }
}
