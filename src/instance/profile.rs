//! The profile of the process: `observe::Profiler`, completed by what the heap knows, in a file.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::time::Duration;

use genesis_profile::{Form, model};

use super::{EVENTS, description, files, heap, heap_if_made};
use crate::base::{Error, Result, Status};
use crate::callsite;
use crate::config::LogLevel;
use crate::heap::Heap;
use crate::observe::{Keeping, Profiler};
use crate::process::{self, fork};

static PROFILER: Profiler = Profiler::new();

/// An exiting process waits at most this long for its profile.
const PATIENCE_AT_EXIT: Duration = Duration::from_secs(5);

/// Begins the profile that the settings ask for; a failure is only a warning.
pub(super) fn profile_as_set(heap: &Heap) {
    if let Some(path) = heap.settings().profile
        && let Err(error) = profile_whole_run(&path, heap)
    {
        let message = format!("GENESIS_PROFILE: not profiling: {error}");
        heap.log().write(LogLevel::Warn, &message);
    }
}

/// Begins a profile of the whole run, written to `path` when the process ends.
fn profile_whole_run(path: &str, heap: &Heap) -> Result<()> {
    form_of(path)?;
    process::at_exit(|| {
        let stopped = PROFILER.stop(Some(PATIENCE_AT_EXIT));
        let Ok(Some(heap)) = heap_if_made() else { return };
        let settings = heap.settings();
        // It fails if the program has stopped the profile, and then writes it itself.
        if let (Ok(()), Some(path)) = (stopped, &settings.profile)
            && let Err(error) = write_profile(&files::own(path, &settings))
        {
            heap.log().write(LogLevel::Warn, &format_args!("GENESIS_PROFILE: {error}"));
        }
    });
    start(heap)
}

/// Begins a profile.
pub(crate) fn start(heap: &Heap) -> Result<()> {
    let history_events = heap.settings().profile_events as usize;
    let keeping = Keeping { history_events, has_sites: true, ..Keeping::default() };
    process::starting_threads(|| PROFILER.start(&EVENTS, keeping, heap))
}

fn form_of(path: &str) -> Result<Form> {
    Form::of_path(Path::new(path)).ok_or_else(|| {
        let endings = ".html, .json, .trace.json, .txt, .prom or .pickle";
        Error::invalid_argument(format!("{path}: a profile's name ends in {endings}"))
    })
}

/// Ends the profile.
pub(crate) fn stop() -> Result<()> {
    fork::refuse_child()?;
    PROFILER.stop(None)
}

/// Writes the profile to `path`, in the form that its name ends in.
pub(crate) fn write_profile(path: &str) -> Result<()> {
    fork::refuse_child()?;
    let form = form_of(path)?;
    let heap = heap()?;
    write(&description::complete(PROFILER.describe()?, heap), form, &process::numbered(path))
}

/// Writes to `path`: replaces a file, or writes to a device or a pipe.
fn write(profile: &model::Profile, form: Form, path: &str) -> Result<()> {
    let is_plain = std::fs::metadata(path).map_or(true, |metadata| metadata.is_file());
    let written = if is_plain {
        files::remove_left(Path::new(path));
        files::replace(Path::new(path), files::FOR_ALL, |file| form.write(profile, file))
    } else {
        File::create(path).and_then(|file| {
            let mut file = BufWriter::new(file);
            form.write(profile, &mut file)?;
            file.flush()
        })
    };
    written.map_err(|error| Error::new(Status::FileFailed, format!("{path}: {error}")))
}

/// Writes the present memory of every device to `path` in PyTorch's form.
pub(crate) fn write_snapshot(path: &str) -> Result<()> {
    let seen = if PROFILER.is_on() { PROFILER.describe()? } else { nothing_seen() };
    write_snapshot_of(seen, path)
}

/// A profile of no events.
pub(super) fn nothing_seen() -> model::Profile {
    model::Profile { format: model::FORMAT.to_owned(), ..Default::default() }
}

/// Writes the present memory of every device, and the events in `seen`, to `path` in PyTorch's
/// form.
pub(super) fn write_snapshot_of(seen: model::Profile, path: &str) -> Result<()> {
    let path = process::numbered(path);
    let heap = heap()?;
    let form = match Form::of_path(Path::new(&path)) {
        Some(Form::SnapshotPickle) => Form::SnapshotPickle,
        Some(Form::Json | Form::SnapshotJson) => Form::SnapshotJson,
        _ => {
            let message = format!("{path}: a snapshot's name ends in .pickle or .json");
            return Err(Error::invalid_argument(message));
        }
    };
    write(&description::complete(seen, heap), form, &path)
}

/// The `most_sites` call sites that hold most, with their counts; empty if no profile is being
/// made.
pub(super) fn biggest_sites(most_sites: usize) -> (Vec<model::Site>, Vec<model::SiteSummary>) {
    let mut sites = vec![model::Site::default()];
    let mut summaries = Vec::new();
    for (site, (number, counts)) in (1..).zip(PROFILER.biggest_sites(most_sites)) {
        sites.push(callsite::site(number));
        summaries.push(model::SiteSummary { site, counts });
    }
    (sites, summaries)
}
