//! Profiles and snapshots: what was seen of the program's memory, written to a file.
//!
//! The profiler itself is `observe::Profiler`, the forms are `genesis_profile`'s. Here the two and
//! the heap meet: what events do not tell (names, the address space, call sites) is filled in.

use std::collections::HashMap;
use std::ffi::c_char;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use genesis_profile::{Form, model};

use super::instance::EVENTS;
use super::{boundary, callsite, instance, process};
use crate::base::size::SizeClass;
use crate::base::{Error, Result, Status};
use crate::config::LogLevel;
use crate::heap::{Heap, Part, PartState, Region};
use crate::observe::Profiler;

static PROFILER: Profiler = Profiler::new();

/// A process that ends waits for its profile no longer than this.
const PATIENCE_AT_EXIT: Duration = Duration::from_secs(5);

/// Begins to profile: levels over time, what is allocated by size and by call site
/// (`GENESIS_CALL_SITES`), and the latest `GENESIS_PROFILE_EVENTS` events. What an earlier profile
/// has seen is dropped. Blocks that are live now are known but for where and when they were
/// allocated.
///
/// `GENESIS_STATUS_INVALID_ARGUMENT` while a profile is being made.
#[unsafe(no_mangle)]
pub extern "C" fn genesis_profile_start() -> Status {
    boundary::status(|| start(instance::heap()?))
}

/// Ends the profile. What was seen can still be written.
/// `GENESIS_STATUS_INVALID_ARGUMENT` if none is being made.
#[unsafe(no_mangle)]
pub extern "C" fn genesis_profile_stop() -> Status {
    boundary::status(|| {
        instance::refuse_forked_child()?;
        PROFILER.stop(None)
    })
}

/// Writes the profile, as it is now or was when it ended, to the file at `path`, in the form that
/// the name ends in: ".html" a page to look at, ".json" to keep and for other programs,
/// ".trace.json" for ui.perfetto.dev, ".txt" a report. "%p" in the name stands for the process's
/// number. The file is made or replaced as a whole.
///
/// `GENESIS_STATUS_INVALID_ARGUMENT` if no profile was begun or the name ends in nothing known,
/// `GENESIS_STATUS_FILE_FAILED` if the file cannot be written.
///
/// # Safety
/// `path` is NULL, which is an error, or a NUL-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_profile_write(path: *const c_char) -> Status {
    boundary::status(|| {
        // SAFETY: the caller's contract.
        let path = unsafe { boundary::text(path, "path") }?;
        instance::refuse_forked_child()?;
        write_profile(path)
    })
}

/// Writes what every device holds now to the file at `path` in PyTorch's form, for
/// `torch.cuda._memory_viz` and pytorch.org/memory_viz: segments, blocks and, while a profile is
/// being made, its events and call sites. The name ends in ".pickle" or in ".json".
///
/// Fails as `genesis_profile_write` does.
///
/// # Safety
/// `path` is NULL, which is an error, or a NUL-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genesis_snapshot_write(path: *const c_char) -> Status {
    boundary::status(|| {
        // SAFETY: the caller's contract.
        let path = process::numbered(unsafe { boundary::text(path, "path") }?);
        let heap = instance::heap()?;
        let form = match Form::of_path(Path::new(&path)) {
            Some(Form::SnapshotPickle) => Form::SnapshotPickle,
            Some(Form::Json | Form::SnapshotJson) => Form::SnapshotJson,
            _ => {
                let message = format!("{path}: a snapshot's name ends in .pickle or .json");
                return Err(Error::invalid_argument(message));
            }
        };
        let seen = match PROFILER.is_on() {
            true => PROFILER.describe()?,
            false => model::Profile { format: model::FORMAT.to_owned(), ..Default::default() },
        };
        write(&complete(seen, heap), form, &path)
    })
}

/// Begins a profile of the whole run, written to `path` when the process ends.
pub(super) fn profile_whole_run(path: &str, heap: &Heap) -> Result<()> {
    form_of(path)?;
    process::at_exit(|| {
        let stopped = PROFILER.stop(Some(PATIENCE_AT_EXIT));
        let Ok(Some(heap)) = instance::heap_if_made() else { return };
        let settings = heap.settings();
        // Where the program has stopped and written it itself, so be it.
        if let (Ok(()), Some(path)) = (stopped, &settings.profile)
            && let Err(error) = write_profile(path)
        {
            heap.log().write(LogLevel::Warn, &format_args!("GENESIS_PROFILE: {error}"));
        }
    });
    start(heap)
}

fn start(heap: &Heap) -> Result<()> {
    let history_events = heap.settings().profile_events as usize;
    process::starting_threads(|| PROFILER.start(&EVENTS, history_events, heap))
}

fn form_of(path: &str) -> Result<Form> {
    Form::of_path(Path::new(path)).ok_or_else(|| {
        let endings = ".html, .json, .trace.json, .txt, .prom or .pickle";
        Error::invalid_argument(format!("{path}: a profile's name ends in {endings}"))
    })
}

fn write_profile(path: &str) -> Result<()> {
    let form = form_of(path)?;
    let heap = instance::heap()?;
    write(&complete(PROFILER.describe()?, heap), form, &process::numbered(path))
}

/// Writes to a file beside it first: what is there is never half of something.
fn write(profile: &model::Profile, form: Form, path: &str) -> Result<()> {
    let failed = |error| Error::new(Status::FileFailed, format!("{path}: {error}"));
    let is_plain = std::fs::metadata(path).map_or(true, |metadata| metadata.is_file());
    let mut beside = PathBuf::from(path);
    if is_plain {
        beside.as_mut_os_string().push(format!(".{}~", std::process::id()));
    }
    let written = File::create(&beside).and_then(|file| {
        let mut file = BufWriter::new(file);
        form.write(profile, &mut file)?;
        file.flush()
    });
    let moved = match is_plain {
        true => written.and_then(|()| std::fs::rename(&beside, path)),
        false => written,
    };
    moved.map_err(|error| {
        if is_plain {
            let _ = std::fs::remove_file(&beside);
        }
        failed(error)
    })
}

/// Fills in what events do not tell.
fn complete(mut profile: model::Profile, heap: &Heap) -> model::Profile {
    let settings = heap.settings();
    profile.genesis_version = env!("CARGO_PKG_VERSION").to_owned();
    profile.program = command_line();
    profile.process_id = std::process::id();
    profile.strategy = settings.pool_type.name().to_owned();
    profile.backend = heap.backend().name().to_owned();
    profile.sites = callsite::sites();
    describe_devices(&mut profile, heap);
    let mut filling = Filling::new(&mut profile);
    let segments: Vec<_> = heap.regions().iter().map(|region| filling.segment(region)).collect();
    profile.segments = segments;
    profile
}

/// The call sites that hold most, at most `most_sites` of them, with what was counted there; empty
/// where no profile is being made.
pub(super) fn biggest_sites(most_sites: usize) -> (Vec<model::Site>, Vec<model::SiteSummary>) {
    let mut sites = vec![model::Site::default()];
    let mut summaries = Vec::new();
    for (site, (number, counts)) in (1..).zip(PROFILER.biggest_sites(most_sites)) {
        sites.push(callsite::site(number));
        summaries.push(model::SiteSummary { site, counts });
    }
    (sites, summaries)
}

pub(super) fn command_line() -> String {
    let arguments = std::fs::read("/proc/self/cmdline").unwrap_or_default();
    let arguments = arguments.split(|byte| *byte == 0).filter(|argument| !argument.is_empty());
    let arguments: Vec<_> = arguments.map(String::from_utf8_lossy).collect();
    arguments.join(" ")
}

fn describe_devices(profile: &mut model::Profile, heap: &Heap) {
    for described in heap.devices_in_use() {
        let ordinal = described.ordinal.0;
        let statistics = &described.statistics;
        let known = profile.devices.iter().position(|device| device.ordinal == ordinal);
        let index = known.unwrap_or_else(|| {
            let level = |choose: fn(crate::base::Gauge) -> u64| model::Levels {
                requested_bytes: choose(statistics.requested_bytes),
                allocated_bytes: choose(statistics.allocated_bytes),
                active_bytes: choose(statistics.active_bytes),
                reserved_bytes: choose(statistics.reserved_bytes),
            };
            let (now, peak) = (level(|gauge| gauge.current), level(|gauge| gauge.peak));
            profile.devices.push(model::Device { ordinal, now, peak, ..Default::default() });
            profile.history.start.push(now);
            profile.devices.len() - 1
        });
        let device = &mut profile.devices[index];
        device.name = described.name;
        device.total_bytes = described.total_bytes;
        device.usable_bytes = described.usable_bytes;
        device.fragmentation_index = statistics.fragmentation_index();
        if profile.strategy != described.pool_type.name() {
            // A device without virtual memory management has another.
            profile.strategy = described.pool_type.name().to_owned();
        }
    }
}

/// What it takes to describe the address space.
struct Filling<'a> {
    profile: &'a mut model::Profile,
    streams: HashMap<(u32, u64), u32>,
    /// Live blocks that events have told of, by address.
    live: HashMap<u64, usize>,
    tags: HashMap<String, u32>,
}

impl<'a> Filling<'a> {
    fn new(profile: &'a mut model::Profile) -> Self {
        let streams = (0..).zip(&profile.streams);
        let streams = streams.map(|(n, stream)| ((stream.device, stream.key), n)).collect();
        let live = profile.live.iter().enumerate().map(|(n, block)| (block.address, n)).collect();
        Self { profile, streams, live, tags: HashMap::new() }
    }

    fn stream(&mut self, device: u32, key: u64) -> u32 {
        *self.streams.entry((device, key)).or_insert_with(|| {
            let stream = model::Stream { device, key, ..Default::default() };
            self.profile.streams.push(stream);
            self.profile.streams.len() as u32 - 1
        })
    }

    fn tag(&mut self, name: &str) -> u32 {
        if let Some(&number) = self.tags.get(name) {
            return number;
        }
        let names = &mut self.profile.names;
        let known = names.iter().position(|known| known == name);
        let number = known.unwrap_or_else(|| {
            names.push(name.to_owned());
            names.len() - 1
        });
        self.tags.insert(name.to_owned(), number as u32);
        number as u32
    }

    fn segment(&mut self, region: &Region) -> model::Segment {
        let device = region.device.0;
        let stream = self.stream(device, region.stream.0);
        let tag = region.tag.as_deref().map(|name| self.tag(name));
        let blocks: Vec<_> = region
            .parts
            .iter()
            .map(|part| {
                let site = match part.state.is_live() {
                    true => self.live_block(part, device, stream, tag),
                    false => 0,
                };
                model::Block {
                    address: part.address,
                    bytes: part.bytes,
                    requested_bytes: part.requested_bytes,
                    state: state_of(part.state),
                    site,
                }
            })
            .collect();
        model::Segment {
            device,
            stream,
            address: region.parts[0].address,
            bytes: region.parts.iter().map(|part| part.bytes).sum(),
            is_private: region.is_private,
            is_small: region.class == SizeClass::Small,
            blocks,
        }
    }

    /// Where the live block was allocated; it is known from now on, and of its tag.
    fn live_block(&mut self, part: &Part, device: u32, stream: u32, tag: Option<u32>) -> u32 {
        let live = &mut self.profile.live;
        let index = *self.live.entry(part.address).or_insert_with(|| {
            live.push(model::LiveBlock {
                device,
                stream,
                address: part.address,
                requested_bytes: part.requested_bytes,
                block_bytes: part.bytes,
                ..Default::default()
            });
            live.len() - 1
        });
        live[index].tag = tag;
        live[index].site
    }
}

fn state_of(state: PartState) -> model::BlockState {
    match state {
        PartState::Live => model::BlockState::Live,
        PartState::Pending => model::BlockState::Pending,
        PartState::Free => model::BlockState::Free,
        PartState::Paused => model::BlockState::Paused,
        PartState::Unmapped => model::BlockState::Unmapped,
    }
}

/// Begins the profile that the settings ask for; without it everything works as well.
pub(super) fn profile_as_set(heap: &Heap) {
    if let Some(path) = heap.settings().profile
        && let Err(error) = profile_whole_run(&path, heap)
    {
        let message = format!("GENESIS_PROFILE: not profiling: {error}");
        heap.log().write(LogLevel::Warn, &message);
    }
}
