//! PyTorch's own exceptions, made and thrown without C++ code.
//!
//! `c10::OutOfMemoryError` derives from `c10::Error` and adds no members, so an object of it is a
//! `c10::Error` with another vtable. Both, and the C++ runtime, are found by their mangled names,
//! starting from PyTorch's object that called, so that no other library's symbols are found.
//!
//! ```text
//! __cxa_allocate_exception → c10::Error(SourceLocation, std::string) → vtable → __cxa_throw
//! ```
//!
//! libstdc++ itself makes, fills and destroys the `std::string`. This file relies on its ABI: a
//! string takes at most [`STRING_WORDS`] words and is passed by reference. Older wheels of PyTorch
//! use the older string of libstdc++, which has other names.
//!
//! An exception passes through Rust frames up to PyTorch's. These frames are this library's, of
//! functions that may unwind, with no `catch_unwind` around them.

use std::ffi::{CStr, c_char, c_void};
use std::mem::{MaybeUninit, transmute};
use std::ptr::NonNull;

use crate::process::Scope;

/// Room for an object of `c10::Error`, in bytes: PyTorch 2.11's takes 152.
const EXCEPTION_BYTES: usize = 1024;
/// The size of libstdc++'s `std::string`, in words.
const STRING_WORDS: usize = 4;
/// The entries of a vtable before the address to which objects point: the offset of the whole
/// object, and the type.
const VTABLE_PROLOGUE: usize = 2;

const FUNCTION: &CStr = c"genesis_malloc";
const FILE: &CStr = c"libgenesis.so";

/// Which exception is thrown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// `c10::OutOfMemoryError`: Python's `torch.OutOfMemoryError`.
    OutOfMemory,
    /// `c10::Error`: Python's `RuntimeError`.
    Error,
}

/// A way to throw, found in the loaded objects.
#[derive(Clone, Copy)]
pub(super) enum Thrower {
    OutOfMemory(OutOfMemory),
    Error(CheckFail),
}

/// `c10::detail::torchCheckFail`, which throws a `c10::Error`.
type CheckFail = unsafe extern "C-unwind" fn(*const c_char, *const c_char, u32, *const c_char) -> !;

type MakeError = unsafe extern "C-unwind" fn(*mut c_void, SourceLocation, *mut CxxString);
type OnString = unsafe extern "C-unwind" fn(*mut CxxString);
type Append = unsafe extern "C-unwind" fn(*mut CxxString, *const c_char, usize) -> *mut CxxString;
type Allocate = unsafe extern "C-unwind" fn(usize) -> *mut c_void;
type Throw = unsafe extern "C-unwind" fn(*mut c_void, *mut c_void, *mut c_void) -> !;

/// libstdc++'s `std::string`.
type CxxString = MaybeUninit<[usize; STRING_WORDS]>;

/// The mangled names that contain a string of libstdc++.
struct StringNames {
    make: &'static CStr,
    append: &'static CStr,
    destroy: &'static CStr,
    make_error: &'static CStr,
}

/// The string since GCC 5, then the one before.
const STRING_NAMES: [StringNames; 2] = [
    StringNames {
        make: c"_ZNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEC1Ev",
        append: c"_ZNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEE6appendEPKcm",
        destroy: c"_ZNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEED1Ev",
        make_error: c"_ZN3c105ErrorC1ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE",
    },
    StringNames {
        make: c"_ZNSsC1Ev",
        append: c"_ZNSs6appendEPKcm",
        destroy: c"_ZNSsD1Ev",
        make_error: c"_ZN3c105ErrorC1ENS_14SourceLocationESs",
    },
];

/// `c10::SourceLocation`.
#[repr(C)]
struct SourceLocation {
    function: *const c_char,
    file: *const c_char,
    line: u32,
}

/// The functions and objects of which a `c10::OutOfMemoryError` is made.
#[derive(Clone, Copy)]
pub(super) struct OutOfMemory {
    make_error: MakeError,
    make_string: OnString,
    append: Append,
    destroy_string: OnString,
    allocate: Allocate,
    throw: Throw,
    vtable: NonNull<*mut c_void>,
    type_info: NonNull<c_void>,
}

impl Thrower {
    /// The way to throw `kind`, or the next best, with the symbols of `scope`.
    pub(super) fn find(scope: &Scope, kind: Kind) -> Option<Self> {
        if kind == Kind::OutOfMemory
            && let Some(found) = OutOfMemory::find(scope)
        {
            return Some(Self::OutOfMemory(found));
        }
        let check_fail = scope.find(c"_ZN3c106detail14torchCheckFailEPKcS2_jS2_")?;
        // SAFETY: the mangled name contains the type.
        Some(Self::Error(unsafe { transmute::<NonNull<c_void>, CheckFail>(check_fail) }))
    }

    /// Throws. No frame up to PyTorch's may have a `catch_unwind`, which aborts the process if it
    /// meets an exception that is not a panic.
    pub(super) fn throw(self, message: &CStr) -> ! {
        match self {
            Self::OutOfMemory(parts) => parts.throw(message),
            // SAFETY: four arguments of the types in its mangled name; it copies the texts.
            Self::Error(check_fail) => unsafe {
                check_fail(FUNCTION.as_ptr(), FILE.as_ptr(), 0, message.as_ptr())
            },
        }
    }
}

impl OutOfMemory {
    fn find(scope: &Scope) -> Option<Self> {
        STRING_NAMES.iter().find_map(|names| Self::find_with(scope, names))
    }

    fn find_with(scope: &Scope, names: &StringNames) -> Option<Self> {
        // SAFETY: each function has the type of its field: those of the C++ runtime by its ABI, the
        // others because a mangled name contains the type. Constructors and destructors take the
        // object first and return nothing.
        unsafe {
            Some(Self {
                make_error: transmute::<NonNull<c_void>, MakeError>(scope.find(names.make_error)?),
                make_string: transmute::<NonNull<c_void>, OnString>(scope.find(names.make)?),
                append: transmute::<NonNull<c_void>, Append>(scope.find(names.append)?),
                destroy_string: transmute::<NonNull<c_void>, OnString>(scope.find(names.destroy)?),
                allocate: transmute::<NonNull<c_void>, Allocate>(
                    scope.find(c"__cxa_allocate_exception")?,
                ),
                throw: transmute::<NonNull<c_void>, Throw>(scope.find(c"__cxa_throw")?),
                vtable: scope.find(c"_ZTVN3c1016OutOfMemoryErrorE")?.cast(),
                type_info: scope.find(c"_ZTIN3c1016OutOfMemoryErrorE")?,
            })
        }
    }

    fn throw(self, message: &CStr) -> ! {
        let at = SourceLocation { function: FUNCTION.as_ptr(), file: FILE.as_ptr(), line: 0 };
        let mut text = CxxString::uninit();
        // SAFETY: the functions have the types of their fields (see `find_with`). The string is
        // made before its use and destroyed after it, and does not move meanwhile; the constructor
        // may take its contents. The exception has room for the object, whose first word is the
        // pointer to its vtable. The first entry there is the complete destructor, because
        // `std::exception`, the base of all, declares it first.
        unsafe {
            let exception = (self.allocate)(EXCEPTION_BYTES);
            (self.make_string)(&raw mut text);
            (self.append)(&raw mut text, message.as_ptr(), message.count_bytes());
            (self.make_error)(exception, at, &raw mut text);
            (self.destroy_string)(&raw mut text);
            let entries = self.vtable.add(VTABLE_PROLOGUE);
            exception.cast::<NonNull<*mut c_void>>().write(entries);
            (self.throw)(exception, self.type_info.as_ptr(), entries.read())
        }
    }
}
