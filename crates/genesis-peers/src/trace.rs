//! The recorded programs, with what a measurement needs to know before it replays them.

use std::path::{Path, PathBuf};

use genesis_replay::gtr;
use genesis_replay::job::trace_name;
use genesis_replay::program::{Kind, Program};
use genesis_replay::varied::varied;

use crate::results::failed;

/// A recorded program.
#[derive(Debug)]
pub(crate) struct Trace {
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    /// The most bytes live at once, as requested.
    pub(crate) live_peak_bytes: u64,
    /// Calls in one pass.
    pub(crate) calls: u64,
    /// True if blocks are used on streams that are not their own.
    pub(crate) records_streams: bool,
}

/// Every trace in `folder`, by name; those named in `only`, if any are.
pub(crate) fn find(folder: &Path, only: &[String]) -> Result<Vec<Trace>, String> {
    let entries = std::fs::read_dir(folder).map_err(|error| failed(folder, &error))?;
    let mut paths: Vec<PathBuf> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| [".gtr", ".gtr.zst"].iter().any(|end| path.to_string_lossy().ends_with(end)))
        .filter(|path| only.is_empty() || only.contains(&trace_name(path)))
        .collect();
    paths.sort();
    if paths.is_empty() || (!only.is_empty() && paths.len() != only.len()) {
        return Err(format!(
            "{}: not all of these are there: {}",
            folder.display(),
            only.join(", ")
        ));
    }
    paths.into_iter().map(read).collect()
}

/// Each of `traces` so many `times` with other sizes, as files in `folder`.
pub(crate) fn vary(traces: &[Trace], times: u64, folder: &Path) -> Result<Vec<Trace>, String> {
    std::fs::create_dir_all(folder).map_err(|error| failed(folder, &error))?;
    let mut all = Vec::new();
    for Trace { name, path, .. } in traces {
        let records = gtr::read_file(path).map_err(|error| failed(path, &error))?;
        for seed in 1..=times {
            let path = folder.join(format!("{name}-{seed}.gtr"));
            gtr::write_file(&path, &varied(&records, seed))
                .map_err(|error| failed(&path, &error))?;
            all.push(read(path)?);
        }
    }
    Ok(all)
}

fn read(path: PathBuf) -> Result<Trace, String> {
    let program = gtr::read_file(&path)
        .and_then(|records| Program::prepare(&records))
        .map_err(|error| failed(&path, &error))?;
    Ok(Trace {
        name: trace_name(&path),
        path,
        live_peak_bytes: program.live_peak_bytes,
        calls: program.calls.len() as u64,
        records_streams: program.count(Kind::RecordStream) > 0,
    })
}
