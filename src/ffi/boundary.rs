//! Panics stop here, and errors become a status and the thread's last error.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::base::{Error, Result, Status, host_memory};
use crate::config::LogLevel;
use crate::instance;
use crate::process::fork;

/// The last failure of a thread.
struct LastError {
    status: Status,
    message: CString,
}

thread_local! {
    static LAST: RefCell<LastError> =
        RefCell::new(LastError { status: Status::Success, message: CString::default() });
}

/// Runs `body`; an error or a panic becomes the thread's last error and the status returned.
pub(super) fn status(body: impl FnOnce() -> Result<()>) -> Status {
    let _early = fork::early_call();
    match call(body) {
        Ok(()) => Status::Success,
        Err(error) => error.status,
    }
}

/// The same for a call that makes, starts or writes something: it is refused while the host's own
/// memory is short.
pub(super) fn demanding(body: impl FnOnce() -> Result<()>) -> Status {
    status(|| {
        host_memory::require()?;
        body()
    })
}

/// Runs `body`; an error or a panic becomes the thread's last error and is returned.
#[inline]
pub(super) fn call<T>(body: impl FnOnce() -> Result<T>) -> Result<T> {
    // Unwinding releases the locks held. Tests check the structures behind them; ending the host
    // program because of a defect would be worse.
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(fail(error)),
        Err(payload) => Err(fail(defect(&*payload))),
    }
}

#[cold]
fn fail(error: Error) -> Error {
    // A thread that is ending no longer has a last error.
    let _ = LAST.try_with(|last| {
        if let Ok(mut last) = last.try_borrow_mut() {
            last.status = error.status;
            last.message = to_c_string(&error.message);
        }
    });
    // In a forked child the log's lock may be held for ever.
    if error.status == Status::OutOfHostMemory && host_memory::is_news() && !fork::is_child() {
        log(&error);
    }
    error
}

#[cold]
fn defect(payload: &(dyn Any + Send)) -> Error {
    let text = payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message");
    let error = Error::new(Status::Internal, format!("internal error: {text}"));
    log(&error);
    error
}

fn log(error: &Error) {
    // The log's receiver may panic as well.
    let _ = catch_unwind(AssertUnwindSafe(|| instance::log().write(LogLevel::Error, error)));
}

/// The status of the thread's last error.
pub(super) fn last_status() -> Status {
    LAST.try_with(|last| last.borrow().status).unwrap_or(Status::Success)
}

/// The message of the thread's last error, valid until its next failing call.
pub(super) fn last_message() -> *const c_char {
    LAST.try_with(|last| last.borrow().message.as_ptr()).unwrap_or(c"".as_ptr())
}

/// Clears the thread's last error.
pub(super) fn clear_last() {
    let _ = LAST.try_with(|last| {
        *last.borrow_mut() = LastError { status: Status::Success, message: CString::default() };
    });
}

/// `text` up to its first NUL.
pub(super) fn to_c_string(text: &str) -> CString {
    let until_nul = text.split('\0').next().unwrap_or_default();
    CString::new(until_nul).unwrap_or_default()
}

/// The UTF-8 text at `pointer`.
///
/// # Safety
/// `pointer` is null or points to a NUL-terminated string that outlives the result.
pub(super) unsafe fn text<'a>(pointer: *const c_char, what: &str) -> Result<&'a str> {
    if pointer.is_null() {
        return Err(Error::invalid_argument(format!("the {what} is null")));
    }
    // SAFETY: not null, and a string by the caller's contract.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().map_err(|_| Error::invalid_argument(format!("the {what} is not UTF-8")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message() -> String {
        // SAFETY: the thread's own, and no call fails meanwhile.
        unsafe { CStr::from_ptr(last_message()) }.to_string_lossy().into_owned()
    }

    type Panic = fn(i32);

    #[test]
    fn a_panic_is_a_status_and_a_message_whatever_it_carries() {
        clear_last();
        let number = 7;
        let cases: [(Panic, &str); 3] = [
            (|_| panic!("a text"), "internal error: a text"),
            (|number| panic!("the number {number}"), "internal error: the number 7"),
            (|_| std::panic::panic_any([1, 2]), "internal error: no message"),
        ];
        for (panic, expected) in cases {
            let ended = status(|| {
                panic(number);
                Ok(())
            });
            assert_eq!((ended, last_status()), (Status::Internal, Status::Internal));
            assert_eq!(message(), expected);
        }
        assert_eq!(status(|| Ok(())), Status::Success);
        assert_eq!(last_status(), Status::Internal, "a call that succeeds leaves the last error");
        clear_last();
        assert_eq!((last_status(), message()), (Status::Success, String::new()));
    }

    #[test]
    fn messages_end_at_their_first_nul() {
        let error = Error::invalid_argument("before\0behind");
        assert_eq!(status(|| Err(error)), Status::InvalidArgument);
        assert_eq!(message(), "before");
    }
}
