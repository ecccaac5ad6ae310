//! The one instance of the library in a process: its heap, the host heaps, and the files that it
//! writes.
//!
//! | file | what it does |
//! |---|---|
//! | `mod` | the heap of the process, its options, log and stream of events |
//! | `annotations` | the names that a program gives its phases |
//! | `host` | the heaps of host memory |
//! | `host_growth` | the thread that takes host memory beforehand |
//! | `memory` | both as sources of arenas, pools and tiers |
//! | `recording` | the recording of a trace and its file |
//! | `profile` | the profile and its file |
//! | `plan` | the plan of memory to make ready and its file |
//! | `forecast` | whether memory grows from step to step |
//! | `history` | PyTorch's history of calls, beside the profile |
//! | `description` | the heap in the terms of a profile |
//! | `publish` | the files for `genesis top` and Prometheus |
//! | `leaks` | the report of live blocks at exit |
//! | `sharing` | blocks that several processes use |
//! | `neighbours` | the other processes that share the devices |
//! | `nvtx` | NVTX's ranges and marks as annotations |
//!
//! The heap is made by the first call that needs it, from the environment and from options set
//! before. Nothing happens when the library is loaded. Nothing is destroyed at exit: the driver
//! may be gone by then, and the system frees the process's memory anyway. If the heap cannot be
//! made, the error stays: the environment is read once.
//!
//! Every call refuses to run in a forked child (`process::fork`).

mod annotations;
mod description;
mod files;
pub(crate) mod forecast;
pub(crate) mod history;
pub(crate) mod host;
pub(crate) mod host_growth;
mod leaks;
pub(crate) mod memory;
mod neighbours;
mod nvtx;
pub(crate) mod plan;
pub(crate) mod profile;
mod publish;
pub(crate) mod recording;
pub(crate) mod sharing;

use std::sync::Arc;

pub(crate) use annotations::annotate;
use once_cell::race::OnceRef;
use once_cell::sync::{Lazy, OnceCell};

use crate::base::lock::{Lock, rank};
use crate::base::{Result, host_memory};
use crate::config::{self, LogLevel, Settings};
use crate::heap::{Heap, Surroundings};
use crate::observe::{EventStream, Log};
use crate::process::fork;
use crate::{callsite, driver};

static HEAP: OnceCell<Result<Heap>> = OnceCell::new();
/// The same once it is ready, found by one load.
static READY: OnceRef<'static, Heap> = OnceRef::new();
/// The stream of events of the process.
pub(crate) static EVENTS: EventStream = EventStream::new();
static LOG: Lazy<Arc<Log>> = Lazy::new(|| Arc::new(Log::new(LogLevel::Warn)));
/// Options set before the heap was made, in order.
static STAGED: Lock<Vec<(String, String)>, { rank::LEAF }> = Lock::new(Vec::new());
/// So often a forked child tries to take their lock, which threads hold for a moment.
const TRIES_IN_A_CHILD: u32 = 1000;

/// The heap, made if necessary.
#[inline]
pub(crate) fn heap() -> Result<&'static Heap> {
    match READY.get() {
        Some(heap) if !fork::is_child() => Ok(heap),
        _ => heap_slow(),
    }
}

#[cold]
fn heap_slow() -> Result<&'static Heap> {
    fork::refuse_child()?;
    // Before the heap is begun: a child forked while it is being made would wait for ever.
    fork::watch();
    if HEAP.get().is_none() {
        // An error would stay.
        host_memory::require()?;
    }
    let mut messages = Vec::new();
    let mut is_new = false;
    let heap = HEAP.get_or_init(|| {
        is_new = true;
        make(&mut messages)
    });
    if let Ok(heap) = heap {
        // In vain if another thread was faster.
        let _ = READY.set(heap);
    }
    if let (Ok(heap), true) = (heap, is_new) {
        profile::profile_as_set(heap);
        plan::follow(heap);
        publish::follow(heap);
        annotations::pass_on();
    }
    // Only now, because the receiver of a message may call the library.
    for (level, message) in messages {
        LOG.write(level, &message);
    }
    heap.as_ref().map_err(Clone::clone)
}

/// The host's own memory is short: see [`Heap::heed_host_memory`].
fn heed_host_memory() {
    if let Some(heap) = READY.get() {
        heap.heed_host_memory();
    }
    host::heed_host_memory();
}

/// The heap if it has been made; otherwise nothing was allocated.
#[inline]
pub(crate) fn heap_if_made() -> Result<Option<&'static Heap>> {
    fork::refuse_child()?;
    Ok(READY.get())
}

/// The log of the process.
pub(crate) fn log() -> &'static Arc<Log> {
    &LOG
}

/// Sets an option: now if the heap exists, else when it is made.
pub(crate) fn set_option(name: &str, value: &str) -> Result<()> {
    if let Some(heap) = heap_if_made()? {
        let mut settings = heap.settings();
        config::set(&mut settings, name, value, true)?;
        leaks::check_change(heap, &settings)?;
        heap.apply(&settings);
        publish::follow(heap);
        callsite::choose(settings.call_sites);
        leaks::watch(&settings);
        return Ok(());
    }
    // The settings of host memory are fixed by its first request.
    config::set(&mut Settings::default(), name, value, host::is_used())?;
    STAGED.lock().push((name.to_owned(), value.to_owned()));
    Ok(())
}

/// The value in force of an option.
pub(crate) fn option(name: &str) -> Result<String> {
    match heap_if_made()? {
        Some(heap) => config::get(&heap.settings(), name),
        None => config::get(&settings()?.0, name),
    }
}

/// The user's settings, for callers that need no device. If there is no heap yet, the log follows
/// them from now on. Writes no message itself, because other threads may wait for the caller.
pub(crate) fn settings_of_process() -> Result<Settings> {
    if let Ok(Some(heap)) = heap_if_made() {
        return Ok(heap.settings());
    }
    if fork::is_child() {
        // Its log is another one: this one may have been half made at the fork.
        return settings().map(|(settings, _)| settings);
    }
    LOG.set_level(Settings::log_level_from_environment());
    let settings = settings().map(|(settings, _)| settings);
    settings.inspect(|settings| LOG.set_level(settings.log))
}

/// What the environment and the options set so far ask for, with warnings.
fn settings() -> Result<(Settings, Vec<String>)> {
    let (mut settings, warnings) = Settings::from_environment()?;
    for (name, value) in &staged()? {
        config::set(&mut settings, name, value, false)?;
    }
    Ok((settings, warnings))
}

/// The options set so far. In a forked child their lock may be held for ever, by a thread that was
/// setting one.
fn staged() -> Result<Vec<(String, String)>> {
    if !fork::is_child() {
        return Ok(STAGED.lock().clone());
    }
    let look = |_| {
        std::thread::yield_now();
        STAGED.try_lock().map(|staged| staged.clone())
    };
    (0..TRIES_IN_A_CHILD).find_map(look).ok_or_else(fork::refused)
}

/// Makes the heap; appends messages about it to `messages`.
fn make(messages: &mut Vec<(LogLevel, String)>) -> Result<Heap> {
    keep_panics_quiet();
    host_memory::on_refusal(heed_host_memory);
    LOG.set_level(Settings::log_level_from_environment());
    let made = settings().and_then(|(settings, warnings)| {
        LOG.set_level(settings.log);
        messages.extend(warnings.into_iter().map(|warning| (LogLevel::Warn, warning)));
        let platform = driver::open(&settings)?;
        messages.extend(platform.notice.clone().map(|notice| (LogLevel::Warn, notice)));
        let (pool_type, backend) = (settings.strategy.pool_type.name(), platform.backend.name());
        let chosen = format!("{pool_type} on {backend}, {} devices", platform.devices.len());
        messages.push((LogLevel::Info, chosen));
        callsite::install(&EVENTS, settings.call_sites);
        leaks::watch(&settings);
        record(&settings, messages);
        let join = Box::new(neighbours::join);
        let own = Surroundings::new(Arc::clone(&LOG));
        let surroundings = Surroundings { events: &EVENTS, join, ..own };
        let heap = Heap::new(platform, &settings, surroundings);
        plan::read(&heap, &settings, messages);
        Ok(heap)
    });
    if let Err(error) = &made {
        messages.push((LogLevel::Error, error.to_string()));
    }
    made
}

/// Starts the recording that the settings ask for; a failure is only a message.
fn record(settings: &Settings, messages: &mut Vec<(LogLevel, String)>) {
    if let Some(path) = &settings.trace
        && let Err(error) = recording::start(&files::own(path, settings), settings, &LOG)
    {
        messages.push((LogLevel::Warn, format!("GENESIS_TRACE: not recording: {error}")));
    }
}

/// The C boundary reports a panic through the log, so the default report on standard error is
/// turned off, except in tests.
fn keep_panics_quiet() {
    #[cfg(not(test))]
    std::panic::set_hook(Box::new(|_| {}));
}
