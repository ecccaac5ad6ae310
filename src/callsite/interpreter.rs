//! CPython, where a process has one: the functions of its C interface that are used here, looked
//! up in the running program, and where a thread keeps its frames.
//!
//! Nothing is linked and nothing is assumed of the version beyond 3.9: every function here has
//! been exported since then, under one of the names given. What is not found means that there
//! is no interpreter for us.
//!
//! [`Layout`] is the exception: the places of six fields in CPython's own structures, which lead
//! from a thread's state to its frames. They differ between 3.11, 3.12 and 3.13, are fixed
//! within each, and are read from those headers. `python.rs` believes them only after the
//! frames that they led to were compared with those that the functions give. Other versions, and
//! builds without a global lock, are asked by functions alone.

use std::ffi::{CStr, c_char, c_int, c_long, c_uint, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use once_cell::sync::{Lazy, OnceCell};

use crate::process;

/// Any object of Python's, and a thread's state.
pub(super) type Object = *mut c_void;

/// The functions. Those that say nothing else want the global lock held.
#[derive(Debug)]
pub(super) struct Interpreter {
    /// Any thread, no lock.
    pub(super) is_initialized: unsafe extern "C" fn() -> c_int,
    /// Any thread, no lock.
    pub(super) is_finalizing: unsafe extern "C" fn() -> c_int,
    /// This thread's state, or null if Python does not know the thread. No lock.
    pub(super) own_state: unsafe extern "C" fn() -> Object,
    /// The state that holds the global lock, up to 3.11 of whatever thread, later this one's or
    /// null. No lock.
    pub(super) active_state: unsafe extern "C" fn() -> Object,
    /// Waits for the global lock unless it is held.
    pub(super) ensure: unsafe extern "C" fn() -> c_uint,
    pub(super) release: unsafe extern "C" fn(c_uint),
    pub(super) save_thread: unsafe extern "C" fn() -> Object,
    pub(super) restore_thread: unsafe extern "C" fn(Object),
    /// Borrowed; null where no Python code runs.
    pub(super) frame: unsafe extern "C" fn() -> Object,
    /// A new reference, or null.
    pub(super) frame_back: unsafe extern "C" fn(Object) -> Object,
    /// A new reference.
    pub(super) frame_code: unsafe extern "C" fn(Object) -> Object,
    pub(super) frame_line: unsafe extern "C" fn(Object) -> c_int,
    /// From 3.11 on: where in its code a frame is.
    pub(super) frame_place: Option<unsafe extern "C" fn(Object) -> c_int>,
    /// The line of a place in code, both as above.
    pub(super) line_at: unsafe extern "C" fn(Object, c_int) -> c_int,
    pub(super) attribute: unsafe extern "C" fn(Object, *const c_char) -> Object,
    /// The text of a string, owned by it.
    pub(super) text: unsafe extern "C" fn(Object, *mut isize) -> *const c_char,
    pub(super) add_reference: unsafe extern "C" fn(Object),
    pub(super) drop_reference: unsafe extern "C" fn(Object),
    pub(super) take_error: unsafe extern "C" fn(*mut Object, *mut Object, *mut Object),
    pub(super) put_error: unsafe extern "C" fn(Object, Object, Object),
    pub(super) import: unsafe extern "C" fn(*const c_char) -> Object,
    pub(super) new_function: unsafe extern "C" fn(*const Method, Object, Object) -> Object,
    /// Arguments end with a null.
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

// SAFETY: never written to, and the texts are constants.
unsafe impl Sync for Method {}

/// `METH_NOARGS`.
pub(super) const WITHOUT_ARGUMENTS: c_int = 4;

/// Offsets in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    /// In a thread's state: a pointer to the record that `in_record` is of, or the frame itself.
    state: usize,
    in_record: Option<usize>,
    code: usize,
    instruction: usize,
    previous: usize,
    owner: usize,
}

/// A frame that is not of Python code, but marks where C code entered the interpreter.
const OWNED_BY_C_STACK: u8 = 3;

/// Python 3.11, 3.12, 3.13.
const LAYOUTS: [(c_long, Layout); 3] = [
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
];

impl Layout {
    /// Calls `visit` with the code and the place in it of each frame of the thread with this
    /// `state`, from the innermost, until it says no.
    ///
    /// # Safety
    /// `state` is the calling thread's, of a living interpreter with this layout. The thread
    /// need not hold the global lock: only itself changes its frames, and each holds its code.
    #[inline]
    pub(super) unsafe fn walk(self, state: Object, mut visit: impl FnMut(Object, u64) -> bool) {
        /// The field at `offset`.
        unsafe fn field<T: Copy>(of: Object, offset: usize) -> T {
            // SAFETY: the caller's contract; fields are aligned.
            unsafe { of.cast::<u8>().add(offset).cast::<T>().read() }
        }
        // SAFETY: the caller's contract, here and below: what the fields point to is there.
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
            if owner < OWNED_BY_C_STACK && !visit(code, place) {
                return;
            }
            // SAFETY: as above.
            frame = unsafe { field(frame, self.previous) };
        }
    }
}

/// The interpreter of this process, if it has one that can be asked.
#[inline]
pub(super) fn get() -> Option<&'static Interpreter> {
    static FOUND: OnceCell<Interpreter> = OnceCell::new();
    /// A search costs microseconds, and an interpreter may be loaded late. A power of two.
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

/// Whether `address` is in the code of the interpreter, be it a library or the program.
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

/// The function of the first of these names that there is.
macro_rules! function {
    ($($name:literal)|+) => {
        // SAFETY: the field that it is assigned to has the type which CPython declares.
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

/// The layout of this version, if it is one that is known.
fn layout() -> Option<Layout> {
    /// Only builds without a global lock have it.
    const FREE_THREADED: &CStr = c"_Py_DecRefShared";
    /// The version and the release in `Py_Version`.
    const MINOR_SHIFT: u32 = 16;
    const RELEASE_SHIFT: u32 = 4;
    /// Not an alpha, a beta or a candidate.
    const FINAL: c_long = 0xF;
    if cfg!(not(target_pointer_width = "64")) || symbol(FREE_THREADED).is_some() {
        return None;
    }
    // SAFETY: an `unsigned long` that is never written to.
    let version = unsafe { symbol(c"Py_Version")?.cast::<c_long>().read() };
    let is_final = version >> RELEASE_SHIFT & 0xF == FINAL;
    let known = LAYOUTS.iter().find(|(minor, _)| *minor == version >> MINOR_SHIFT && is_final);
    known.map(|(_, layout)| *layout)
}

/// A reference of ours to an object of Python's, dropped with the value: the global lock must be
/// held then.
#[derive(Debug)]
pub(super) struct Reference<'a> {
    interpreter: &'a Interpreter,
    object: Object,
}

impl<'a> Reference<'a> {
    /// Takes over a reference that a function has given, or null for a failure.
    pub(super) fn owned(interpreter: &'a Interpreter, object: Object) -> Option<Self> {
        (!object.is_null()).then_some(Self { interpreter, object })
    }

    /// One more to an object that somebody else holds, or null for none.
    ///
    /// # Safety
    /// `object` is null or an object that is there.
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
        // SAFETY: an object that we hold, and a string.
        let value = unsafe { (python.attribute)(self.object, name.as_ptr()) };
        let value = Reference::owned(python, value)?;
        let mut bytes = 0;
        // SAFETY: an object that we hold; what is not a string gives null.
        let text = unsafe { (python.text)(value.object, &mut bytes) };
        if text.is_null() {
            return None;
        }
        // SAFETY: as many bytes as it says, which are the string's for as long as we hold it.
        let text = unsafe { std::slice::from_raw_parts(text.cast::<u8>(), bytes as usize) };
        Some(String::from_utf8_lossy(text).into_owned())
    }
}

impl Drop for Reference<'_> {
    fn drop(&mut self) {
        // SAFETY: a reference of ours, with the lock held as the type asks for.
        unsafe { (self.interpreter.drop_reference)(self.object) };
    }
}

/// The error that Python code of this thread may be about to handle, out of the way of our own
/// calls until the value is dropped. The global lock must be held until then.
pub(super) struct ErrorAside<'a> {
    interpreter: &'a Interpreter,
    error: [Object; 3],
}

impl<'a> ErrorAside<'a> {
    pub(super) fn new(interpreter: &'a Interpreter) -> Self {
        let mut error = [null_mut(); 3];
        let [kind, value, traceback] = &mut error;
        // SAFETY: three places to write to, with the lock held.
        unsafe { (interpreter.take_error)(kind, value, traceback) };
        Self { interpreter, error }
    }
}

impl Drop for ErrorAside<'_> {
    fn drop(&mut self) {
        let [kind, value, traceback] = self.error;
        // SAFETY: what `take_error` gave, given back once; an error of ours goes.
        unsafe { (self.interpreter.put_error)(kind, value, traceback) };
    }
}
