//! `libgenesis.so`, opened: the functions of its C interface that are used here.
//!
//! There is one heap in a process. Its library is the first of these:
//!
//! 1. one that the program has loaded already, whatever its name,
//! 2. the one that GENESIS_LIBRARY names,
//! 3. the one in this library's folder,
//! 4. the one that the loader finds.
//!
//! Its functions may call the driver, whose functions it finds unchanged (`lookups`), and callbacks
//! of the program's.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use crate::elf::Object;
use crate::environment::variable;
use crate::inside;

/// File names of the library.
const FILE_NAMES: [&str; 2] = ["libgenesis.so", "libgenesis.so.0"];
/// `GENESIS_STATUS_DOUBLE_FREE`.
const DOUBLE_FREE: c_int = 5;
/// `GENESIS_STATUS_OUT_OF_MEMORY`.
const OUT_OF_MEMORY: c_int = 2;
/// `GENESIS_STATUS_LIMIT_REACHED`.
const LIMIT_REACHED: c_int = 14;
/// `GENESIS_STATUS_OUT_OF_HOST_MEMORY`, for which CUDA has no error of its own either.
const OUT_OF_HOST_MEMORY: c_int = 15;
/// `GENESIS_STATUS_SUCCESS`.
const SUCCESS: c_int = 0;

/// A symbol that only the library has.
pub(crate) const MARK: &CStr = c"genesis_malloc";

/// `genesis_block_info`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Block {
    pub(crate) address: u64,
    pub(crate) requested_bytes: usize,
    pub(crate) allocated_bytes: usize,
    pub(crate) stream: usize,
    pub(crate) device: c_int,
}

/// The beginning of `genesis_stats`, which is all that is read here.
#[repr(C)]
struct Stats {
    struct_size: usize,
    requested: [u64; 3],
    allocated: [u64; 3],
}

/// A function for when memory is short: of the pointer that was given with it, the device and the
/// bytes wanted. Returns 0 if it gave nothing back.
pub(crate) type WhenShort = extern "C" fn(*mut c_void, c_int, usize) -> c_int;

/// What Genesis has at an address.
pub(crate) enum Found {
    /// A live block contains it.
    Block(Block),
    /// Memory of Genesis's that is free.
    Free,
    /// Nothing of Genesis's.
    Nothing,
}

/// Why there is no block.
pub(crate) enum Refusal {
    /// Memory is short.
    OutOfMemory,
    /// Another reason, which the driver's own answer tells better.
    Other,
}

macro_rules! functions {
    ($($name:ident = $symbol:literal ($($parameter:ty),*) -> $result:ty;)*) => {
        /// The library's functions.
        pub(crate) struct Genesis {
            $($name: unsafe extern "C" fn($($parameter),*) -> $result,)*
        }

        impl Genesis {
            fn load(object: &Object) -> Result<Self, String> {
                let missing = |symbol: &CStr| {
                    let file = object.name().to_string_lossy();
                    format!("{file} has no {}", symbol.to_string_lossy())
                };
                // SAFETY: the symbol is the function that genesis.h declares under this name,
                // with these parameters.
                Ok(Self { $($name: unsafe {
                    std::mem::transmute::<
                        *mut c_void,
                        unsafe extern "C" fn($($parameter),*) -> $result,
                    >(object.symbol($symbol).ok_or_else(|| missing($symbol))?)
                },)* })
            }
        }
    };
}

functions! {
    malloc = c"genesis_malloc"(usize, c_int, usize) -> u64;
    free = c"genesis_free"(u64, usize, c_int, usize) -> ();
    record_stream = c"genesis_block_record_stream"(u64, usize) -> c_int;
    block_info = c"genesis_block_info_get"(u64, *mut Block) -> c_int;
    memory_info = c"genesis_memory_info_get"(c_int, *mut usize, *mut usize) -> c_int;
    stats = c"genesis_stats_get"(c_int, *mut Stats) -> c_int;
    cache_empty = c"genesis_cache_empty"(c_int) -> c_int;
    peer_enable = c"genesis_peer_access_enable"(c_int, c_int) -> c_int;
    backend = c"genesis_backend_get"(*mut *const c_char) -> c_int;
    last_error = c"genesis_last_error_get"() -> c_int;
    option_get = c"genesis_option_get"(*const c_char, *mut c_char, usize) -> c_int;
    option_set = c"genesis_option_set"(*const c_char, *const c_char) -> c_int;
    stream_forget = c"genesis_stream_forget"(usize) -> c_int;
    capture_begin = c"genesis_capture_begin"(c_int) -> c_int;
    capture_end = c"genesis_capture_end"(c_int) -> c_int;
    callback_add =
        c"genesis_out_of_memory_callback_add"(WhenShort, *mut c_void, *mut u64) -> c_int;
}

impl Genesis {
    /// Opens the library and has it start on the driver; an error says why that fails.
    pub(crate) fn open() -> Result<Self, String> {
        let own_code = Self::open as *const () as usize;
        let object = match Object::defining_after(own_code, MARK) {
            Some((object, _)) => {
                // Another thread may still be loading it. This waits for the loader, and keeps the
                // program from unloading it.
                object.pin();
                object
            }
            None => load(own_code)?,
        };
        let genesis = Self::load(&object)?;
        let mut backend: *const c_char = c"".as_ptr();
        let _inside = inside::enter();
        // SAFETY: `backend` is writable, and the text good for ever.
        let (status, name) = unsafe {
            let status = (genesis.backend)(&raw mut backend);
            (status, CStr::from_ptr(backend))
        };
        match status {
            SUCCESS if name == c"cuda" => {
                genesis.trust_announcements();
                Ok(genesis)
            }
            SUCCESS => Err(format!("GENESIS_BACKEND is {}", name.to_string_lossy())),
            _ => Err("libgenesis.so does not start".to_owned()),
        }
    }

    /// From now on `function` is called when memory is short. If it cannot be registered, some
    /// requests fail that need not.
    pub(crate) fn when_short(&self, function: WhenShort) {
        let mut id = 0;
        // SAFETY: the function lives as long as the process, and `id` is writable.
        let _ = unsafe { (self.callback_add)(function, std::ptr::null_mut(), &raw mut id) };
    }

    /// Streams are known by their handles, if the user leaves the choice: Genesis is told of the
    /// end of every stream (`streams`), so it need not ask the driver which one a handle names.
    fn trust_announcements(&self) {
        const OPTION: &CStr = c"GENESIS_STREAM_IDS";
        let mut value = [0; 16];
        // SAFETY: NUL-terminated texts, and `value` has so many bytes. If the option cannot be set
        // any more, Genesis asks the driver each time.
        unsafe {
            let status = (self.option_get)(OPTION.as_ptr(), value.as_mut_ptr(), value.len());
            if status == SUCCESS && CStr::from_ptr(value.as_ptr()) == c"auto" {
                (self.option_set)(OPTION.as_ptr(), c"off".as_ptr());
            }
        }
    }

    /// A block of `bytes` for use on `stream`.
    #[inline]
    pub(crate) fn allocate(
        &self,
        bytes: usize,
        device: c_int,
        stream: usize,
    ) -> Result<u64, Refusal> {
        let _inside = inside::enter();
        // SAFETY: any arguments are allowed.
        unsafe {
            match (self.malloc)(bytes, device, stream) {
                0 => match (self.last_error)() {
                    OUT_OF_MEMORY | LIMIT_REACHED | OUT_OF_HOST_MEMORY => Err(Refusal::OutOfMemory),
                    _ => Err(Refusal::Other),
                },
                address => Ok(address),
            }
        }
    }

    /// Frees a block in the order of its own stream.
    #[inline]
    pub(crate) fn free(&self, address: u64) {
        let _inside = inside::enter();
        // SAFETY: any arguments are allowed.
        unsafe { (self.free)(address, 0, 0, 0) };
    }

    /// [`Self::free`] of several blocks.
    pub(crate) fn free_all(&self, addresses: &[u64]) {
        let _inside = inside::enter();
        for &address in addresses {
            // SAFETY: any arguments are allowed.
            unsafe { (self.free)(address, 0, 0, 0) };
        }
    }

    /// Frees the block at `address` in the order of `stream`; returns true if it is freed. One
    /// handle may name several streams, of several threads or devices: Genesis knows whether it is
    /// the block's own.
    pub(crate) fn free_on(&self, address: u64, stream: usize) -> bool {
        let _inside = inside::enter();
        // SAFETY: any arguments are allowed.
        unsafe {
            if (self.record_stream)(address, stream) != SUCCESS {
                return false;
            }
            (self.free)(address, 0, 0, 0);
        }
        true
    }

    /// The program is about to destroy `stream`.
    pub(crate) fn forget_stream(&self, stream: usize) {
        let _inside = inside::enter();
        // SAFETY: any argument is allowed, also a stream that Genesis does not know.
        unsafe { (self.stream_forget)(stream) };
    }

    /// Until [`Self::end_capture`] Genesis waits for nothing on `device` (-1: on any). Returns true
    /// if it complies.
    pub(crate) fn begin_capture(&self, device: c_int) -> bool {
        let _inside = inside::enter();
        // SAFETY: any argument is allowed.
        unsafe { (self.capture_begin)(device) == SUCCESS }
    }

    /// Ends what [`Self::begin_capture`] began.
    pub(crate) fn end_capture(&self, device: c_int) {
        let _inside = inside::enter();
        // SAFETY: any argument is allowed.
        unsafe { (self.capture_end)(device) };
    }

    /// What Genesis has at `address`; slow unless a live block begins there.
    #[inline]
    pub(crate) fn look_up(&self, address: u64) -> Found {
        let mut block = MaybeUninit::uninit();
        // SAFETY: `block` is writable, and written on success.
        unsafe {
            match (self.block_info)(address, block.as_mut_ptr()) {
                SUCCESS => Found::Block(block.assume_init()),
                DOUBLE_FREE => Found::Free,
                _ => Found::Nothing,
            }
        }
    }

    /// Free and total bytes of a device, cached ones among the free.
    pub(crate) fn memory_info(&self, device: c_int) -> Option<(usize, usize)> {
        let _inside = inside::enter();
        let (mut free, mut total) = (0, 0);
        // SAFETY: both are writable.
        let status = unsafe { (self.memory_info)(device, &raw mut free, &raw mut total) };
        (status == SUCCESS).then_some((free, total))
    }

    /// The bytes of all live blocks of a device; 0 if Genesis does not say.
    pub(crate) fn live_bytes(&self, device: c_int) -> u64 {
        let struct_size = size_of::<Stats>();
        let mut stats = Stats { struct_size, requested: [0; 3], allocated: [0; 3] };
        // SAFETY: as many bytes are written as `struct_size` says.
        unsafe { (self.stats)(device, &raw mut stats) };
        stats.allocated[0]
    }

    /// From now on device `peer` may use all memory of `device`. Returns false if the driver itself
    /// allocates the memory, and so decides about access.
    pub(crate) fn enable_peer(&self, device: c_int, peer: c_int) -> bool {
        let _inside = inside::enter();
        // SAFETY: any arguments are allowed.
        unsafe { (self.peer_enable)(device, peer) == SUCCESS }
    }

    /// Gives everything cached on `device` back to the driver, as far as it takes it.
    pub(crate) fn empty_cache(&self, device: c_int) {
        let _inside = inside::enter();
        // SAFETY: any argument is allowed.
        unsafe { (self.cache_empty)(device) };
    }
}

/// Has the loader open the library; the error is the loader's text.
fn load(own_code: usize) -> Result<Object, String> {
    let named = variable(c"GENESIS_LIBRARY").filter(|path| !path.is_empty());
    let candidates: Vec<CString> = match named {
        Some(path) => vec![path.to_owned()],
        None => beside(own_code)
            .chain(FILE_NAMES.iter().filter_map(|name| CString::new(*name).ok()))
            .collect(),
    };
    let mut reason = String::new();
    for path in candidates {
        // SAFETY: a NUL-terminated path. The library does nothing when it is loaded.
        unsafe {
            if !libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL).is_null() {
                let found = Object::defining_after(own_code, MARK);
                return found
                    .map(|(object, _)| object)
                    .ok_or_else(|| format!("{} is not Genesis", path.to_string_lossy()));
            }
            let text = libc::dlerror();
            if !text.is_null() {
                reason = CStr::from_ptr(text).to_string_lossy().into_owned();
            }
        }
    }
    Err(reason)
}

/// The library's files in the folder of this library.
fn beside(own_code: usize) -> impl Iterator<Item = CString> {
    let own = Object::containing(own_code).map(|object| object.name().to_owned());
    let folder = own.and_then(|own| {
        let path = Path::new(std::ffi::OsStr::from_bytes(own.to_bytes()));
        path.parent().map(Path::to_owned)
    });
    folder.into_iter().flat_map(|folder| FILE_NAMES.map(|name| folder.join(name))).filter_map(
        |path| path.is_file().then(|| CString::new(path.as_os_str().as_bytes()).ok())?,
    )
}
