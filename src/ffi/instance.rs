//! The one heap of the process.
//!
//! It is made by the first call that needs it, from the environment and from options set
//! before; nothing happens when the library is loaded, and nothing is torn down at exit: by
//! then the driver may be gone, and the process's memory goes back anyway. A heap that could
//! not be made stays so: the environment is read once.
//!
//! After `fork` a CUDA driver may not be used. A child that inherits the heap is told by a
//! flag, which every call looks at before it takes a lock that another thread of the parent
//! may have held.

use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};

use once_cell::sync::{Lazy, OnceCell};

use super::{callsite, debug};
use crate::base::lock::{Lock, rank};
use crate::base::{Error, Result, Status};
use crate::config::{self, LogLevel, Settings};
use crate::driver;
use crate::heap::{Heap, Surroundings};
use crate::observe::{EventStream, Log};

static HEAP: OnceCell<Result<Heap>> = OnceCell::new();
/// What the library did, for whoever wants to know.
pub(super) static EVENTS: EventStream = EventStream::new();
static LOG: Lazy<Arc<Log>> = Lazy::new(|| Arc::new(Log::new(LogLevel::Warn)));
/// Options set before the heap was made, in order.
static STAGED: Lock<Vec<(String, String)>, { rank::LEAF }> = Lock::new(Vec::new());
static FORKED: AtomicBool = AtomicBool::new(false);
/// How many forks lie between the process that loaded the library and this one.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// The heap, made if need be.
#[inline]
pub(super) fn heap() -> Result<&'static Heap> {
    match HEAP.get() {
        Some(Ok(heap)) if !FORKED.load(Relaxed) => Ok(heap),
        _ => heap_slow(),
    }
}

#[cold]
fn heap_slow() -> Result<&'static Heap> {
    refuse_forked_child()?;
    // Before the heap is begun: a child forked while it is being made would wait for ever.
    watch_for_fork();
    let mut messages = Vec::new();
    let mut is_new = false;
    let heap = HEAP.get_or_init(|| {
        is_new = true;
        make(&mut messages)
    });
    if let (Ok(heap), true) = (heap, is_new) {
        super::profile::profile_as_set(heap);
        super::publish::follow(heap);
    }
    // Only now: whoever receives them may call the library.
    for (level, message) in messages {
        LOG.write(level, &message);
    }
    heap.as_ref().map_err(Clone::clone)
}

/// The heap if it has been made; nothing was allocated otherwise.
#[inline]
pub(super) fn heap_if_made() -> Result<Option<&'static Heap>> {
    refuse_forked_child()?;
    match HEAP.get() {
        Some(Ok(heap)) => Ok(Some(heap)),
        _ => Ok(None),
    }
}

/// An error in a child of a process that has used the library: locks may be held for ever.
pub(super) fn refuse_forked_child() -> Result<()> {
    if FORKED.load(Relaxed) { Err(forked()) } else { Ok(()) }
}

/// How many forks, of a process that used the library, this one is away from the first.
pub(super) fn forks() -> u32 {
    FORKS.load(Relaxed)
}

/// The log of the process.
pub(super) fn log() -> &'static Arc<Log> {
    &LOG
}

/// Sets an option: at once if the heap is there, else when it is made.
pub(super) fn set_option(name: &str, value: &str) -> Result<()> {
    if let Some(heap) = heap_if_made()? {
        let mut settings = heap.settings();
        config::set(&mut settings, name, value, true)?;
        debug::check_change(heap, &settings)?;
        heap.apply(&settings);
        super::publish::follow(heap);
        callsite::choose(settings.call_sites);
        debug::watch(&settings);
        return Ok(());
    }
    // What host memory is like was settled when the first was asked for.
    config::set(&mut Settings::default(), name, value, super::host::is_used())?;
    STAGED.lock().push((name.to_owned(), value.to_owned()));
    Ok(())
}

/// The value in force of an option.
pub(super) fn option(name: &str) -> Result<String> {
    match heap_if_made()? {
        Some(heap) => config::get(&heap.settings(), name),
        None => config::get(&settings()?.0, name),
    }
}

/// What the user has set, for whoever needs no device; where there is no heap yet, the log keeps to
/// it from now on. It says nothing itself: the caller may have others wait.
pub(super) fn settings_of_process() -> Result<Settings> {
    if let Ok(Some(heap)) = heap_if_made() {
        return Ok(heap.settings());
    }
    LOG.set_level(Settings::log_level_from_environment());
    let settings = settings().map(|(settings, _)| settings);
    settings.inspect(|settings| LOG.set_level(settings.log))
}

/// What the environment and the options set so far ask for, with warnings.
fn settings() -> Result<(Settings, Vec<String>)> {
    let (mut settings, warnings) = Settings::from_environment()?;
    let staged = STAGED.lock().clone();
    for (name, value) in &staged {
        config::set(&mut settings, name, value, false)?;
    }
    Ok((settings, warnings))
}

/// Makes the heap; what there is to say of it goes to `messages`.
fn make(messages: &mut Vec<(LogLevel, String)>) -> Result<Heap> {
    keep_panics_quiet();
    LOG.set_level(Settings::log_level_from_environment());
    let made = settings().and_then(|(settings, warnings)| {
        LOG.set_level(settings.log);
        messages.extend(warnings.into_iter().map(|warning| (LogLevel::Warn, warning)));
        let platform = driver::open(&settings)?;
        messages.extend(platform.notice.clone().map(|notice| (LogLevel::Warn, notice)));
        let (pool_type, backend) = (settings.pool_type.name(), platform.backend.name());
        let chosen = format!("{pool_type} on {backend}, {} devices", platform.devices.len());
        messages.push((LogLevel::Info, chosen));
        callsite::install(settings.call_sites);
        debug::watch(&settings);
        record(&settings, messages);
        let surroundings = Surroundings { events: &EVENTS, ..Surroundings::new(Arc::clone(&LOG)) };
        Ok(Heap::new(platform, &settings, surroundings))
    });
    if let Err(error) = &made {
        messages.push((LogLevel::Error, error.to_string()));
    }
    made
}

/// Starts the recording that the settings ask for; without it everything works as well.
fn record(settings: &Settings, messages: &mut Vec<(LogLevel, String)>) {
    if let Some(path) = &settings.trace
        && let Err(error) = super::trace::start(path, settings, &LOG)
    {
        messages.push((LogLevel::Warn, format!("GENESIS_TRACE: not recording: {error}")));
    }
}

fn forked() -> Error {
    Error::new(
        Status::ForkedChild,
        "this process is a fork of one that used the device; only exec makes it usable again",
    )
}

pub(super) fn watch_for_fork() {
    static IS_WATCHED: AtomicBool = AtomicBool::new(false);
    extern "C" fn in_child() {
        FORKED.store(true, Relaxed);
        FORKS.fetch_add(1, Relaxed);
    }
    if IS_WATCHED.load(Acquire) {
        return;
    }
    // SAFETY: the handler only stores to an atomic, which is safe in a child of any state, and
    // harmless twice when two threads come here at once. Where it cannot be registered, a fork
    // is as unguarded as with any other CUDA library.
    let _ = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    IS_WATCHED.store(true, Release);
}

/// A panic is reported by the boundary, through the log; the default report on standard
/// error would be one too many. Tests want it.
fn keep_panics_quiet() {
    #[cfg(not(test))]
    std::panic::set_hook(Box::new(|_| {}));
}
