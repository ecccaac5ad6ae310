//! The CUDA driver's code on simcuda: a `libcuda` without a GPU, with real bytes.
//!
//! The library is the one that cargo has built for this test, of a dev-dependency; one of its kind
//! lives in the process, and the cases take turns on it.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::OnceLock;

use genesis::driver::cuda;

use crate::subject::Subject;

/// The library's settings, set before it starts.
const SETTINGS: [(&CStr, &CStr); 3] =
    [(c"SIMCUDA_DEVICES", c"2"), (c"SIMCUDA_MEMORY", c"1GiB"), (c"SIMCUDA_STORE", c"bytes")];
/// What must be 0 when a case has ended.
const ALIVE: [&CStr; 7] = [
    c"used_bytes",
    c"allocations",
    c"handles",
    c"mappings",
    c"reservations",
    c"events",
    c"host_allocations",
];

/// The first of two devices of 1 GiB. Afterwards the machine must be consistent, without
/// violations and empty.
pub(crate) fn subject() -> Subject {
    let library = library();
    let mut devices = cuda::open_library(&library.path).unwrap().devices.into_iter();
    let (driver, peer) = (devices.next().unwrap(), devices.next());
    let epilogue = Box::new(|| library.check());
    let (device_bytes, is_strict, host_bytes) = (true, true, true);
    Subject { driver, peer, device_bytes, is_strict, host_bytes, epilogue }
}

/// The loaded library and what it exports for tests.
struct Library {
    path: CString,
    count_violations: unsafe extern "C" fn() -> i64,
    census: unsafe extern "C" fn(*const c_char) -> i64,
    validate: unsafe extern "C" fn() -> *const c_char,
}

impl Library {
    fn check(&self) {
        // SAFETY: the functions are those of `simcuda`'s `control`, and names are strings.
        unsafe {
            let verdict = (self.validate)();
            let complaint = (!verdict.is_null()).then(|| CStr::from_ptr(verdict));
            assert_eq!(complaint, None);
            assert_eq!((self.count_violations)(), 0);
            for what in ALIVE {
                assert_eq!((self.census)(what.as_ptr()), 0, "{what:?}");
            }
        }
    }
}

fn library() -> &'static Library {
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let path = std::env::current_exe().unwrap().with_file_name("libsimcuda.so");
        let path = CString::new(path.into_os_string().into_encoded_bytes()).unwrap();
        // SAFETY: the path is NUL-terminated, and the library runs nothing when it is loaded.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
        assert!(!handle.is_null(), "{path:?} cannot be loaded");
        let find = |name: &CStr| -> *mut c_void {
            // SAFETY: the handle is a loaded library's.
            let found = unsafe { libc::dlsym(handle, name.as_ptr()) };
            assert!(!found.is_null(), "{name:?} is not there");
            found
        };
        // SAFETY: the symbols are functions of these types; see `control` in `simcuda`.
        unsafe {
            let set: unsafe extern "C" fn(*const c_char, *const c_char) -> c_int =
                std::mem::transmute(find(c"simcuda_set"));
            for (name, value) in SETTINGS {
                assert_eq!(set(name.as_ptr(), value.as_ptr()), 0, "{name:?}");
            }
            Library {
                path,
                count_violations: std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> i64>(
                    find(c"simcuda_check"),
                ),
                census: std::mem::transmute::<
                    *mut c_void,
                    unsafe extern "C" fn(*const std::ffi::c_char) -> i64,
                >(find(c"simcuda_census")),
                validate: std::mem::transmute::<
                    *mut c_void,
                    unsafe extern "C" fn() -> *const std::ffi::c_char,
                >(find(c"simcuda_validate")),
            }
        }
    })
}
