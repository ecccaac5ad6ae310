//! Python stacks: the frames of the Python code that the calling thread runs.
//!
//! **Fast and slow.** Only the thread itself changes its chain of frames, so it may read the chain
//! without the global lock. A few loads a frame make a key of the places in the code at which the
//! frames are (`interpreter::Layout`), and `KNOWN` maps the key to the site. That suffices for a
//! stack seen before. For a new key, or a version of Python whose layout is unknown, the thread
//! takes the lock and calls the interpreter's functions, which return the code, file, name and line
//! of each frame. Keys are trusted only after both ways have found the same code; each stack that
//! is added is compared again.
//!
//! Code that a key refers to is kept alive for ever, so that no other code gets its address. The
//! sizes of the tables of frames and stacks bound this.
//!
//! **The global lock.** Waiting for it can go wrong in four ways:
//!
//! - *The interpreter is ending.* It would terminate a waiting thread in our frames. A function
//!   registered with `atexit` keeps other threads from waiting and first lets waiting threads
//!   finish. From then on, and while the interpreter finalises, other threads get native stacks.
//! - *The holder waits for us.* No lock of the heap is held here, and none of ours while the
//!   interpreter is called: any call may collect garbage, which frees memory and comes back here.
//!   PyTorch's caching allocator requests segments under a lock of its own, which other threads
//!   want while they hold the global lock; so this caller does not wait for the global lock. Other
//!   callers with such a lock cannot be recognised; they wait only once for each stack.
//! - *In a forked child* the thread that holds it does not exist. A child of a process that has
//!   used the library is refused before call sites are found, and does not wait at exit.
//! - *The thread has no Python.* A thread that Python does not know, or that runs no Python code,
//!   does not wait. (Without a layout the second takes the lock to find out.)
//!
//! Interpreters other than the first of a process are seen as far as `PyGILState` sees them.
//!
//! An error that is being raised in the calling thread is saved and restored.

use std::collections::HashMap;
use std::ffi::c_int;
use std::ptr::null_mut;
use std::sync::atomic::{
    AtomicBool, AtomicU8, AtomicUsize,
    Ordering::{Relaxed, SeqCst},
};
use std::sync::{Mutex, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use genesis_profile::model::Frame;
use once_cell::sync::Lazy;

use super::interpreter::{self, ErrorAside, Interpreter, Method, Object, Reference};
use super::torch::is_called_by_its_cache;
use super::{PYTHON, SITES};
use crate::base::lock::assert_none_held;
use crate::observe::{OTHERS, StackMap};
use crate::process;

/// The most frames of a stack, innermost first.
pub(super) const MOST_FRAMES: usize = 64;
/// The most different frames.
const MOST_NUMBERS: usize = 1 << 16;
/// The end of the interpreter waits at most this long for threads that read a stack.
const PATIENCE: Duration = Duration::from_secs(5);

/// Maps native words, if any, followed by a key, to a site.
static KNOWN: StackMap = StackMap::new();
static FRAMES: Lazy<Mutex<Frames>> = Lazy::new(Mutex::default);
/// How often keys and functions have found different code before they found the same; 0 once they
/// have.
static DOUBTS: AtomicU8 = AtomicU8::new(1);
/// Keys are trusted.
const NO_DOUBT: u8 = 0;
/// Beyond this many, keys are never used. Rarely one differs, because only one of the two sees a
/// frame that is about to begin.
const MOST_DOUBTS: u8 = 8;

/// The number of threads that wait for the global lock, or hold it, in our code.
pub(super) static WAITING: AtomicUsize = AtomicUsize::new(0);
/// The state of the thread that is ending the interpreter; 0 before.
static ENDING: AtomicUsize = AtomicUsize::new(0);

/// The frames seen so far.
#[derive(Default)]
struct Frames {
    /// By code, which is kept alive, and the place in it.
    places: HashMap<(usize, c_int), u32>,
    /// By code and line.
    lines: HashMap<(usize, c_int), u32>,
    /// By number.
    frames: Vec<Frame>,
}

/// The site of this thread's Python code, after the `native` words of its native stack in `words`;
/// the rest of `words` is scratch space. `None` if no Python code runs here or it cannot be known.
#[inline]
pub(super) fn find(words: &mut [u64], native: usize) -> Option<u32> {
    let python = interpreter::get()?;
    // SAFETY: any thread may call these functions at any time.
    let (state, is_active) = unsafe {
        if (python.is_initialized)() == 0 {
            return None;
        }
        let state = (python.own_state)();
        (state, state == (python.active_state)())
    };
    // Once the interpreter is ending, only the holder of the lock can rely on its state.
    if state.is_null() || (!is_active && is_ended_by_another(state)) {
        return None;
    }
    if DOUBTS.load(Relaxed) == NO_DOUBT {
        let count = native + read(python, state, &mut words[native..], |_, _| {});
        if count == native {
            return None;
        }
        if let Some(site) = KNOWN.find(&words[..count]) {
            return Some(site);
        }
    }
    ask(python, state, is_active, words, native)
}

/// Returns true if another thread than that with this state is ending the interpreter.
#[inline]
pub(super) fn is_ended_by_another(state: Object) -> bool {
    let ending = ENDING.load(SeqCst);
    ending != 0 && ending != state as usize
}

/// Writes the key of this thread's frames, calls `visit` with each code, and returns their number.
#[inline]
fn read(
    python: &Interpreter,
    state: Object,
    words: &mut [u64],
    mut visit: impl FnMut(usize, Object),
) -> usize {
    let mut count = 0;
    if let Some(layout) = python.layout {
        let words = &mut words[..MOST_FRAMES];
        // SAFETY: the state of this thread; a layout exists only if it is the interpreter's.
        unsafe {
            layout.walk(state, |code, place| {
                words[count] = PYTHON | place;
                visit(count, code);
                count += 1;
                count < MOST_FRAMES
            });
        }
    }
    count
}

/// Finds the site by the interpreter's own functions, and stores its key.
#[cold]
#[inline(never)]
fn ask(
    python: &'static Interpreter,
    state: Object,
    is_active: bool,
    words: &mut [u64],
    native: usize,
) -> Option<u32> {
    assert_none_held();
    if !is_active && is_called_by_its_cache() {
        return None;
    }
    let _lock = GlobalLock::take(python, state, is_active)?;
    let _error = ErrorAside::new(python);
    end_with_the_interpreter(python);
    let seen = Seen::of_this_thread(python);
    if seen.count == 0 {
        return None;
    }
    let Some(numbers) = seen.numbers() else {
        return Some(OTHERS);
    };
    for (word, number) in words[native..].iter_mut().zip(&numbers[..seen.count]) {
        *word = PYTHON | u64::from(*number);
    }
    let site = SITES.intern(&words[..native + seen.count]);
    if python.layout.is_none() || DOUBTS.load(Relaxed) > MOST_DOUBTS {
        return Some(site);
    }
    let mut is_same = true;
    let count = read(python, state, &mut words[native..], |at, code| {
        is_same &= at < seen.count && seen.frames[at].0 == code;
    });
    if is_same && count == seen.count {
        DOUBTS.store(NO_DOUBT, Relaxed);
        KNOWN.add(&words[..native + count], |_| site);
    } else if DOUBTS.load(Relaxed) != NO_DOUBT {
        DOUBTS.fetch_add(1, Relaxed);
    }
    Some(site)
}

/// The frames of a thread: code, to which it has references, and the place in it.
struct Seen {
    python: &'static Interpreter,
    frames: [(Object, c_int); MOST_FRAMES],
    count: usize,
}

impl Seen {
    /// With the global lock held.
    fn of_this_thread(python: &'static Interpreter) -> Self {
        let mut seen = Self { python, frames: [(null_mut(), 0); MOST_FRAMES], count: 0 };
        let place_of = python.frame_place.unwrap_or(python.frame_line);
        // SAFETY: the lock is held, and a running frame exists.
        let mut next = unsafe { Reference::shared(python, (python.frame)()) };
        while let Some(frame) = next
            && let Some(entry) = seen.frames.get_mut(seen.count)
        {
            // SAFETY: a frame to which we have a reference, with the lock held.
            let (code, place, back) = unsafe {
                let frame = frame.get();
                ((python.frame_code)(frame), place_of(frame), (python.frame_back)(frame))
            };
            *entry = (code, place);
            seen.count += 1;
            next = Reference::owned(python, back);
        }
        seen
    }

    /// The number of each frame; `None` if the table is full.
    fn numbers(&self) -> Option<[u32; MOST_FRAMES]> {
        const NOT_YET: u32 = u32::MAX;
        let mut numbers = [NOT_YET; MOST_FRAMES];
        let lock = || FRAMES.lock().unwrap_or_else(PoisonError::into_inner);
        {
            let known = lock();
            for (number, (code, place)) in numbers.iter_mut().zip(self.taken()) {
                if let Some(found) = known.places.get(&(*code as usize, *place)) {
                    *number = *found;
                }
            }
        }
        for (number, (code, place)) in numbers.iter_mut().zip(self.taken()) {
            if *number != NOT_YET {
                continue;
            }
            // Without our lock, because the interpreter may come back here.
            let described = self.describe(*code, *place);
            *number = lock().add(*code as usize, *place, described, || {
                // SAFETY: code to which we have a reference, with the lock held; never released.
                unsafe { (self.python.add_reference)(*code) };
            })?;
        }
        Some(numbers)
    }

    fn taken(&self) -> &[(Object, c_int)] {
        &self.frames[..self.count]
    }

    fn describe(&self, code: Object, place: c_int) -> Frame {
        // SAFETY: code to which we have a reference, with the lock held.
        let (code, line) = unsafe {
            let line = match self.python.frame_place {
                Some(_) => (self.python.line_at)(code, place),
                None => place,
            };
            (Reference::shared(self.python, code), line)
        };
        let text = |name| code.as_ref().and_then(|code| code.text_of(name)).unwrap_or_default();
        let (function, file) = (text(c"co_name"), text(c"co_filename"));
        Frame { function, file, line: line.try_into().unwrap_or(0) }
    }
}

impl Drop for Seen {
    fn drop(&mut self) {
        for (code, _) in self.taken() {
            // SAFETY: a reference that the walk received, with the lock held.
            unsafe { (self.python.drop_reference)(*code) };
        }
    }
}

impl Frames {
    /// The number of the frame at a place in code, a new one if necessary; `hold` is called for a
    /// new line of code.
    fn add(&mut self, code: usize, place: c_int, frame: Frame, hold: impl FnOnce()) -> Option<u32> {
        if let Some(number) = self.places.get(&(code, place)) {
            return Some(*number);
        }
        if self.places.len() >= MOST_NUMBERS {
            return None;
        }
        let next = self.frames.len() as u32;
        let number = *self.lines.entry((code, frame.line as c_int)).or_insert(next);
        if number == next {
            self.frames.push(frame);
            hold();
        }
        self.places.insert((code, place), number);
        Some(number)
    }
}

/// The frames of the Python words of a site.
pub(super) fn name(words: &[u64]) -> Vec<Frame> {
    if words.is_empty() {
        return Vec::new();
    }
    let known = FRAMES.lock().unwrap_or_else(PoisonError::into_inner);
    words.iter().filter_map(|word| known.frames.get((word & !PYTHON) as usize)).cloned().collect()
}

/// The global lock, held until this value is dropped.
struct GlobalLock<'a> {
    python: &'a Interpreter,
    /// The value to release it with; `None` if the caller held it.
    ensured: Option<u32>,
}

impl<'a> GlobalLock<'a> {
    /// Waits for the lock, unless this thread holds it or the interpreter is ending.
    fn take(python: &'a Interpreter, state: Object, is_active: bool) -> Option<Self> {
        // SAFETY: any thread may call them.
        let is_over = || unsafe { (python.is_initialized)() == 0 || (python.is_finalizing)() != 0 };
        if is_active {
            return (!is_over()).then_some(Self { python, ensured: None });
        }
        // Count first, then look: `at_exit` sets `ENDING` first and then reads the count.
        WAITING.fetch_add(1, SeqCst);
        if is_ended_by_another(state) || is_over() {
            WAITING.fetch_sub(1, SeqCst);
            return None;
        }
        // SAFETY: the thread has a state, and the interpreter does not end before we are done.
        let ensured = unsafe { (python.ensure)() };
        Some(Self { python, ensured: Some(ensured) })
    }
}

impl Drop for GlobalLock<'_> {
    fn drop(&mut self) {
        if let Some(ensured) = self.ensured {
            // SAFETY: pairs with the call that returned it, on the same thread.
            unsafe { (self.python.release)(ensured) };
            WAITING.fetch_sub(1, SeqCst);
        }
    }
}

/// Has the interpreter call [`at_exit`] when it ends. The global lock is held.
pub(super) fn end_with_the_interpreter(python: &Interpreter) {
    static IS_REGISTERED: AtomicBool = AtomicBool::new(false);
    static AT_EXIT: Method = Method {
        name: c"genesis_call_sites_end".as_ptr(),
        function: at_exit,
        flags: interpreter::WITHOUT_ARGUMENTS,
        documentation: std::ptr::null(),
    };
    if IS_REGISTERED.swap(true, SeqCst) {
        return;
    }
    process::keep_library_loaded();
    // SAFETY: the lock is held; there is a reference to each object while it is used, and the
    // method is a static of a library that stays loaded. A failure returns null and leaves an
    // error, which the caller's `ErrorAside` drops.
    unsafe {
        let module = Reference::owned(python, (python.import)(c"atexit".as_ptr()));
        let register = module.and_then(|module| {
            let name = c"register".as_ptr();
            Reference::owned(python, (python.attribute)(module.get(), name))
        });
        let function = (python.new_function)(&AT_EXIT, null_mut(), null_mut());
        if let (Some(register), Some(function)) = (register, Reference::owned(python, function)) {
            let end: Object = null_mut();
            let called = (python.call)(register.get(), function.get(), end);
            drop(Reference::owned(python, called));
        }
    }
}

/// The interpreter calls it before it ends, with the lock held.
unsafe extern "C" fn at_exit(_: Object, _: Object) -> Object {
    let Some(python) = interpreter::get() else {
        return null_mut();
    };
    // SAFETY: any thread may call it.
    ENDING.store(unsafe { (python.own_state)() } as usize, SeqCst);
    let deadline = Instant::now() + PATIENCE;
    // In a forked child the waiting threads do not exist.
    while !process::fork::is_child() && WAITING.load(SeqCst) != 0 && Instant::now() < deadline {
        // SAFETY: the lock is held, and the same thread takes it again.
        unsafe {
            let state = (python.save_thread)();
            sleep(Duration::from_millis(1));
            (python.restore_thread)(state);
        }
    }
    // SAFETY: a constant of the interpreter; the caller gets a reference to it.
    unsafe { (python.add_reference)(python.none) };
    python.none
}
