//! Python's frames: those of the code that the calling thread runs.
//!
//! **Twice, at two prices.** A thread's chain of frames is changed by the thread itself only, so
//! it may read it without the global lock: a few loads a frame, to a key made of the places in
//! the code that the frames are at (`interpreter::Layout`). `KNOWN` leads from the key to the
//! site, and that is all for a stack seen before. A key that is new, or a version of Python whose
//! layout is not known, takes the lock and asks the interpreter's functions, which know the code,
//! file, name and line of each frame. The keys are trusted only after both ways have led to the
//! same code, which is compared again for each stack that is added.
//!
//! Code that a key is made of is held for ever, so that no other code can be at its address.
//! That is what bounds it: a table of so many frames, so many stacks.
//!
//! **The global lock** belongs to somebody else, and waiting for it can be wrong in four ways:
//!
//! - The interpreter is ending: a thread that waits then is ended by it, in our frames. A function
//!   registered with `atexit` forbids all other threads any more waiting, and lets those who wait
//!   finish first. They, and all once the interpreter is finalising, are told native stacks.
//! - Somebody holds it while waiting for us. No lock of the heap's is held here, and none of
//!   ours while the interpreter is called: it may collect garbage in any call, and that frees
//!   memory and comes back here. PyTorch's caching allocator asks for segments under a lock of
//!   its own, which others want with the global lock held; so where that is the caller the lock
//!   is not waited for. Other callers that allocate under such a lock we cannot foresee; those
//!   meet it only once for each stack.
//! - A forked child lacks the thread that holds it. A child of a process that has used the
//!   library is refused before call sites are looked for, and has no exit to wait at.
//! - The thread has no Python: one that Python does not know, or in which no Python code runs,
//!   does not wait for it (with a layout; without, the second takes the lock to see).
//!
//! Another interpreter than the first of a process is seen as far as `PyGILState` sees it.
//!
//! An error that is on its way in the calling thread is put aside and back.

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

/// So many frames of a stack are told, from the innermost.
pub(super) const MOST_FRAMES: usize = 64;
/// So many frames are told apart.
const MOST_NUMBERS: usize = 1 << 16;
/// The interpreter's end waits no longer for those who look at a stack.
const PATIENCE: Duration = Duration::from_secs(5);

/// From keys, after the native words if there are any, to sites.
static KNOWN: StackMap = StackMap::new();
static FRAMES: Lazy<Mutex<Frames>> = Lazy::new(Mutex::default);
/// How often keys and functions have led to different code, before they led to the same.
static DOUBTS: AtomicU8 = AtomicU8::new(1);
/// Keys are as good as functions.
const NO_DOUBT: u8 = 0;
/// A frame that is about to begin is seen by one way only: that is rare.
const MOST_DOUBTS: u8 = 8;

/// How many threads wait for the global lock, or hold it, because of us.
pub(super) static WAITING: AtomicUsize = AtomicUsize::new(0);
/// The state of the thread that ends the interpreter, once it has begun to.
static ENDING: AtomicUsize = AtomicUsize::new(0);

/// The frames seen so far.
#[derive(Default)]
struct Frames {
    /// By code, which is held, and place in it.
    places: HashMap<(usize, c_int), u32>,
    /// By code and line.
    lines: HashMap<(usize, c_int), u32>,
    /// By number.
    frames: Vec<Frame>,
}

/// The site of this thread's Python code, behind `native` words of its native stack, with the
/// rest of `words` to work in. `None`: no Python code runs here, or it cannot be known.
#[inline]
pub(super) fn find(words: &mut [u64], native: usize) -> Option<u32> {
    let python = interpreter::get()?;
    // SAFETY: functions that any thread may call at any time.
    let (state, is_active) = unsafe {
        if (python.is_initialized)() == 0 {
            return None;
        }
        let state = (python.own_state)();
        (state, state == (python.active_state)())
    };
    // Once the interpreter ends, only who holds the lock knows that its state is there.
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

/// Whether the interpreter is being ended by another thread than that with this state.
#[inline]
pub(super) fn is_ended_by_another(state: Object) -> bool {
    let ending = ENDING.load(SeqCst);
    ending != 0 && ending != state as usize
}

/// Writes the key of this thread's frames; gives each code to `visit` and says how many.
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
        // SAFETY: the state of this thread; there is a layout only where it is the interpreter's.
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

/// Finds the site by the interpreter's own functions, and has its key known from now on.
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

/// The frames of a thread: code, which is held, and the place in it.
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
        // SAFETY: the lock is held; a frame that runs is there.
        let mut next = unsafe { Reference::shared(python, (python.frame)()) };
        while let Some(frame) = next
            && let Some(entry) = seen.frames.get_mut(seen.count)
        {
            // SAFETY: a frame that we hold, and the lock.
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

    /// The number of each frame; `None` if there are too many by now.
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
            // Not under the lock: the interpreter may come back here.
            let described = self.describe(*code, *place);
            *number = lock().add(*code as usize, *place, described, || {
                // SAFETY: code that we hold, and the global lock; never dropped.
                unsafe { (self.python.add_reference)(*code) };
            })?;
        }
        Some(numbers)
    }

    fn taken(&self) -> &[(Object, c_int)] {
        &self.frames[..self.count]
    }

    fn describe(&self, code: Object, place: c_int) -> Frame {
        // SAFETY: code that we hold, and the lock.
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
            // SAFETY: a reference that the walk was given, with the lock held.
            unsafe { (self.python.drop_reference)(*code) };
        }
    }
}

impl Frames {
    /// The number of the frame at a place in code, a new one if need be; `hold` is called for
    /// code not seen before.
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

/// What the words of a site's Python part stand for.
pub(super) fn name(words: &[u64]) -> Vec<Frame> {
    if words.is_empty() {
        return Vec::new();
    }
    let known = FRAMES.lock().unwrap_or_else(PoisonError::into_inner);
    words.iter().filter_map(|word| known.frames.get((word & !PYTHON) as usize)).cloned().collect()
}

/// The global lock, held until this is dropped.
struct GlobalLock<'a> {
    python: &'a Interpreter,
    /// What gives it back; `None` if the caller had it.
    ensured: Option<u32>,
}

impl<'a> GlobalLock<'a> {
    /// Waits for the lock, unless this thread has it or the interpreter is ending.
    fn take(python: &'a Interpreter, state: Object, is_active: bool) -> Option<Self> {
        // SAFETY: any thread may ask.
        let is_over = || unsafe { (python.is_initialized)() == 0 || (python.is_finalizing)() != 0 };
        if is_active {
            return (!is_over()).then_some(Self { python, ensured: None });
        }
        // Before the question, as `at_exit` says so before it looks who waits.
        WAITING.fetch_add(1, SeqCst);
        if is_ended_by_another(state) || is_over() {
            WAITING.fetch_sub(1, SeqCst);
            return None;
        }
        // SAFETY: the thread has a state, and the interpreter does not end before we have done.
        let ensured = unsafe { (python.ensure)() };
        Some(Self { python, ensured: Some(ensured) })
    }
}

impl Drop for GlobalLock<'_> {
    fn drop(&mut self) {
        if let Some(ensured) = self.ensured {
            // SAFETY: pairs with the call that gave it, on the same thread.
            unsafe { (self.python.release)(ensured) };
            WAITING.fetch_sub(1, SeqCst);
        }
    }
}

/// Has the interpreter tell us when it ends. With the global lock held.
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
    // SAFETY: the lock is held; each object is held while it is used, and the method is a static
    // of a library that stays loaded. What fails gives null and leaves an error, which goes.
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

/// Called by the interpreter, with the lock held, before it ends.
unsafe extern "C" fn at_exit(_: Object, _: Object) -> Object {
    let Some(python) = interpreter::get() else {
        return null_mut();
    };
    // SAFETY: any thread may ask.
    ENDING.store(unsafe { (python.own_state)() } as usize, SeqCst);
    let deadline = Instant::now() + PATIENCE;
    // In a forked child those who waited are not there.
    while !process::fork::is_child() && WAITING.load(SeqCst) != 0 && Instant::now() < deadline {
        // SAFETY: the lock is held, and is taken again by the same thread.
        unsafe {
            let state = (python.save_thread)();
            sleep(Duration::from_millis(1));
            (python.restore_thread)(state);
        }
    }
    // SAFETY: a constant of the interpreter's, of which the caller gets a reference.
    unsafe { (python.add_reference)(python.none) };
    python.none
}
