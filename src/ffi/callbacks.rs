//! The caller's own functions: asked for memory when it is short, told what the library says.

use std::cell::Cell;
use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;

use super::{boundary, write_required};
use crate::base::{Error, Status};
use crate::config::LogLevel;
use crate::heap::CallbackId;
use crate::instance;

/// Called when memory on `device` is short by about `wanted_bytes`, before the request fails
/// and on its thread; returns whether it has freed anything (not 0). It may call any function
/// of the library, may run on several threads at once, and must not throw. When memory is short
/// for a request of its own, no callback is asked for that one.
#[allow(non_camel_case_types)]
pub type genesis_out_of_memory_callback = Option<
    unsafe extern "C" fn(user_data: *mut c_void, device: c_int, wanted_bytes: usize) -> c_int,
>;

/// Called with each message of the library; the text is good until it returns. It may call any
/// function of the library, may run on several threads at once, and must not throw. It is not
/// called for what a call of its own has to say: that could go on for ever.
#[allow(non_camel_case_types)]
pub type genesis_log_callback =
    Option<unsafe extern "C" fn(user_data: *mut c_void, level: LogLevel, message: *const c_char)>;

/// The caller's pointer, which it has declared good for any thread.
#[derive(Clone, Copy)]
struct UserData(*mut c_void);

// SAFETY: the library only passes the pointer on; the callback's contract, stated at its type,
// makes the caller answer for its use from several threads.
unsafe impl Send for UserData {}
// SAFETY: as above.
unsafe impl Sync for UserData {}

impl UserData {
    fn get(&self) -> *mut c_void {
        self.0
    }
}

/// Registers a callback for when memory is short; callbacks are asked in the order they were
/// registered. Writes its number to `id`.
///
/// # Safety
/// `id` is NULL, which is an error, or points to a writable `uint64_t`; `callback` and
/// `user_data` stay good until the callback is removed and its last call has returned.
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
            // SAFETY: the caller keeps both good, by the contract of this function.
            unsafe { callback(user_data.get(), device.0 as c_int, bytes as usize) != 0 }
        }));
        Ok(asked.0)
    };
    // SAFETY: the caller's contract.
    boundary::status(|| unsafe { write_required(id, add) })
}

/// Removes a callback by its number. A call of it that has begun on another thread finishes.
#[unsafe(no_mangle)]
pub extern "C" fn genesis_out_of_memory_callback_remove(id: u64) -> Status {
    boundary::status(|| {
        if instance::heap()?.remove_out_of_memory_callback(CallbackId(id)) {
            return Ok(());
        }
        Err(Error::invalid_argument(format!("there is no out-of-memory callback {id}")))
    })
}

/// Sends the library's messages to `callback`; NULL: to standard error, as from the start.
///
/// # Safety
/// `callback` and `user_data` stay good until another callback is set and the last call of
/// this one has returned.
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
                // SAFETY: the caller keeps both good, by the contract of this function.
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
    /// `None` when the thread is inside one already, or is ending.
    fn begin() -> Option<Self> {
        let is_nested = IS_TELLING.try_with(|telling| telling.replace(true)).unwrap_or(true);
        // Not `then_some`: its value would be dropped, and so end what the outer one has begun.
        (!is_nested).then(|| Self)
    }
}

impl Drop for Telling {
    fn drop(&mut self) {
        let _ = IS_TELLING.try_with(|telling| telling.set(false));
    }
}
