//! Calls that may block, and what the calling thread lets go of meanwhile.
//!
//! A wait for a device is a wait for work, and that work may need something which the waiting
//! thread holds for its caller, such as an interpreter's lock: a host function in a stream that
//! runs Python. A caller that holds such a thing and may let go of it wraps its call in
//! [`letting_go`]; every call that may block goes through [`blocking`]. In a process that has such
//! callers, that costs one look at a thread's variable per blocking call.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::lock::assert_none_held;
use super::sync::thread_local;

/// Calls its argument once, with something let go of.
pub type LetGo = fn(&mut dyn FnMut());

/// Whether there ever was such a caller.
static IS_USED: AtomicBool = AtomicBool::new(false);

thread_local! {
    static LET_GO: Cell<Option<LetGo>> = const { Cell::new(None) };
}

/// What this thread let go of before; restored on drop.
struct Before(Option<LetGo>);

impl Before {
    fn set(let_go: Option<LetGo>) -> Self {
        // A thread that is ending has nothing to let go of.
        Self(LET_GO.try_with(|current| current.replace(let_go)).unwrap_or(None))
    }
}

impl Drop for Before {
    fn drop(&mut self) {
        let _ = LET_GO.try_with(|current| current.set(self.0));
    }
}

/// Runs `act`; every call in it that may block is made by `let_go`.
pub fn letting_go<T>(let_go: LetGo, act: impl FnOnce() -> T) -> T {
    IS_USED.store(true, Relaxed);
    let _before = Before::set(Some(let_go));
    act()
}

/// Makes a call that may block. The thread holds no lock of the library's.
pub fn blocking<T>(call: impl FnOnce() -> T) -> T {
    assert_none_held();
    if !IS_USED.load(Relaxed) {
        return call();
    }
    let let_go = LET_GO.try_with(Cell::get).unwrap_or(None);
    let Some(let_go) = let_go else { return call() };
    // Nested calls let go of nothing more.
    let _before = Before::set(None);
    let (mut call, mut answer) = (Some(call), None);
    let_go(&mut || answer = call.take().map(|call| call()));
    match (answer, call) {
        (Some(answer), _) => answer,
        (None, Some(call)) => call(),
        (None, None) => unreachable!("a call that was made has answered"),
    }
}

#[cfg(test)]
mod tests {
    use std::thread_local;

    use super::*;

    thread_local! {
        static COUNT: Cell<u32> = const { Cell::new(0) };
    }

    fn count(call: &mut dyn FnMut()) {
        COUNT.set(COUNT.get() + 1);
        call();
    }

    #[test]
    fn only_a_wrapped_call_lets_go_and_once() {
        assert_eq!(blocking(|| 1), 1);
        assert_eq!(COUNT.get(), 0);
        let answer = letting_go(count, || {
            let inner = blocking(|| blocking(|| 2));
            inner + blocking(|| 3)
        });
        assert_eq!((answer, COUNT.get()), (5, 2));
        blocking(|| ());
        assert_eq!(COUNT.get(), 2);
    }
}
