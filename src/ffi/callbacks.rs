//! Callbacks: for memory when it is short, and for the library's messages.

use std::cell::Cell;
use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;

use super::{boundary, write_required};
use crate::base::{Error, Status};
use crate::config::LogLevel;
use crate::heap::{CallbackId, Compaction, CompactionCallback};
use crate::instance;

/// Called when memory on `device` is short by about `wanted_bytes`, before the request fails and on
/// its thread. Returns a value other than 0 if it has freed anything. It may call any function of
/// the library, may run on several threads at once, and must not throw. If memory is short for a
/// request of its own, no callback is called. While another thread is in one, a request that finds
/// too little waits for that thread, for at most a second.
#[allow(non_camel_case_types)]
pub type genesis_out_of_memory_callback = Option<
    unsafe extern "C" fn(user_data: *mut c_void, device: c_int, wanted_bytes: usize) -> c_int,
>;

/// Called with each message of the library; the text is valid until it returns. It may call any
/// function of the library, may run on several threads at once, and must not throw. It is not
/// called for messages of its own calls, which could go on for ever.
#[allow(non_camel_case_types)]
pub type genesis_log_callback =
    Option<unsafe extern "C" fn(user_data: *mut c_void, level: LogLevel, message: *const c_char)>;

/// The caller's pointer, which any thread may use by the callback's contract.
#[derive(Clone, Copy)]
pub(super) struct UserData(pub(super) *mut c_void);

// SAFETY: the library only passes the pointer on. The callback's contract, stated at its type,
// makes the caller responsible for its use from several threads.
unsafe impl Send for UserData {}
// SAFETY: as above.
unsafe impl Sync for UserData {}

impl UserData {
    pub(super) fn get(&self) -> *mut c_void {
        self.0
    }
}

/// Registers a callback for short memory and writes its number to `id`. Callbacks are called in the
/// order of registration.
///
/// # Safety
/// `id` is NULL, which is an error, or points to a writable `uint64_t`; `callback` and `user_data`
/// stay valid until the callback is removed and its last call has returned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_out_of_memory_callback_add(
    callback: genesis_out_of_memory_callback,
    user_data: *mut c_void,
    id: *mut u64,
) -> Status {
    let add = || {
        let callback = callback.ok_or(Error::invalid_argument("the callback is null"))?;
        let user_data = UserData(user_data);
        let asked = instance::heap()?.add_out_of_memory_callback(Arc::new(move |device, bytes| {
            // SAFETY: the caller keeps both valid, by the contract of this function.
            unsafe { callback(user_data.get(), device.0 as c_int, bytes as usize) != 0 }
        }));
        Ok(asked.0)
    };
    // SAFETY: the caller's contract.
    boundary::demanding(|| unsafe { write_required(id, add) })
}

/// Removes a callback by its number. A call of it that runs on another thread finishes.
#[unsafe(no_mangle)]
pub extern "C" fn genesis_out_of_memory_callback_remove(id: u64) -> Status {
    boundary::status(|| {
        if instance::heap()?.remove_out_of_memory_callback(CallbackId(id)) {
            return Ok(());
        }
        Err(Error::invalid_argument(format!("there is no out-of-memory callback {id}")))
    })
}

/// What the fragmentation watch did (GENESIS_COMPACT_ABOVE), in bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CompactionDone {
    /// Held before.
    pub reserved_bytes: u64,
    /// Free of it: neither live nor pending.
    pub free_bytes: u64,
    /// Returned to the driver.
    pub released_bytes: u64,
}

/// Called after the fragmentation watch has returned memory of `device`, on the thread whose request
/// missed. `compaction` is valid until it returns. It may call any function of the library, may run
/// on several threads at once, and must not throw.
#[allow(non_camel_case_types)]
pub type genesis_compaction_callback = Option<
    unsafe extern "C" fn(user_data: *mut c_void, device: c_int, compaction: *const CompactionDone),
>;

/// Has `callback` called for each compaction, in place of the one before; NULL: none.
///
/// # Safety
/// `callback` and `user_data` stay valid until another callback is set and the last call of this
/// one has returned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_compaction_callback_set(
    callback: genesis_compaction_callback,
    user_data: *mut c_void,
) -> Status {
    let user_data = UserData(user_data);
    boundary::status(|| {
        instance::heap()?.set_compaction_callback(callback.map(|callback| -> CompactionCallback {
            Arc::new(move |device, done| {
                let Compaction { reserved_bytes, free_bytes, released_bytes } = *done;
                let done = CompactionDone { reserved_bytes, free_bytes, released_bytes };
                // SAFETY: the caller keeps both valid, by the contract of this function.
                unsafe { callback(user_data.get(), device.0 as c_int, &raw const done) };
            })
        }));
        Ok(())
    })
}

/// Sends the library's messages to `callback`; NULL sends them to standard error, the default.
///
/// # Safety
/// `callback` and `user_data` stay valid until another callback is set and the last call of this
/// one has returned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_log_callback_set(
    callback: genesis_log_callback,
    user_data: *mut c_void,
) -> Status {
    let user_data = UserData(user_data);
    boundary::status(|| {
        crate::process::fork::refuse_child()?;
        instance::log().set_sink(callback.map(|callback| -> crate::observe::Sink {
            Arc::new(move |level, line| {
                let Some(_telling) = Telling::begin() else { return };
                let message = boundary::to_c_string(line);
                // SAFETY: the caller keeps both valid, by the contract of this function.
                unsafe { callback(user_data.get(), level, message.as_ptr()) };
            })
        }));
        Ok(())
    })
}

thread_local! {
    static IS_TELLING: Cell<bool> = const { Cell::new(false) };
}

/// While it lives, its thread is inside a log callback.
struct Telling;

impl Telling {
    /// `None` if the thread is inside one already, or is ending.
    fn begin() -> Option<Self> {
        let is_nested = IS_TELLING.try_with(|telling| telling.replace(true)).unwrap_or(true);
        // Not `then_some`: dropping its value would end the outer one.
        (!is_nested).then(|| Self)
    }
}

impl Drop for Telling {
    fn drop(&mut self) {
        let _ = IS_TELLING.try_with(|telling| telling.set(false));
    }
}
