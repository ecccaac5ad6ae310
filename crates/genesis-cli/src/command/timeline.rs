//! `genesis timeline`: a profile, or a trace, as a page to look at or in any other form.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use genesis::base::size::Bytes;
use genesis_profile::Form;
use genesis_profile::merge::merge;
use genesis_profile::model::{Levels, Profile};
use genesis_replay::job::trace_name;
use genesis_replay::table::grouped;
use genesis_replay::{Error, Result};

use super::{Answer, ProfileArguments, profile};

/// Draw memory over time into a page for the browser
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// A trace (.gtr, .gtr.zst) to replay, or a profile (.json); several, or a folder's, side by
    /// side
    #[arg(required = true)]
    inputs: Vec<PathBuf>,
    /// Where to write it: .html a page, .json a profile to keep, .trace.json for
    /// ui.perfetto.dev, .txt a report, .prom metrics, .pickle a snapshot for PyTorch's viewer
    /// [default: the input's name with .html, in this folder]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    profile: ProfileArguments,
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> Result<Answer> {
    let output = arguments.output.clone().unwrap_or_else(|| page_of(&arguments.inputs[0]));
    let form = Form::of_path(&output).ok_or_else(|| {
        Error::usage(format!(
            "{}: the name ends in none of .html, .json, .trace.json, .txt, .prom and .pickle",
            output.display()
        ))
    })?;
    let profile = merge(profile::load_all(&arguments.inputs, &arguments.profile)?);
    write(&profile, form, &output)
        .map_err(|error| Error::failed(format!("{}: cannot write: {error}", output.display())))?;
    Ok(format!("{}: {}\n", output.display(), describe(&profile)).into())
}

/// The path of the page: in the current folder, with the input's name.
fn page_of(input: &Path) -> PathBuf {
    let name = trace_name(input);
    PathBuf::from(format!("{}.html", name.strip_suffix(".json").unwrap_or(&name)))
}

/// Writes to another file of the folder first, so that the file at `path` is always complete.
fn write(profile: &Profile, form: Form, path: &Path) -> std::io::Result<()> {
    // A pipe or a device is written to as it is.
    let is_plain = std::fs::metadata(path).map_or(true, |metadata| metadata.is_file());
    let mut beside = path.as_os_str().to_owned();
    if is_plain {
        beside.push(format!(".{}~", std::process::id()));
    }
    let written = File::create(&beside).and_then(|file| {
        let mut file = BufWriter::new(file);
        form.write(profile, &mut file)?;
        file.flush()?;
        if is_plain { std::fs::rename(&beside, path) } else { Ok(()) }
    });
    if written.is_err() && is_plain {
        let _ = std::fs::remove_file(&beside);
    }
    written
}

fn describe(profile: &Profile) -> String {
    let peak = |level: fn(&Levels) -> u64| {
        Bytes(profile.devices.iter().map(|device| level(&device.peak)).sum())
    };
    let events = profile.history.events.len() as u64;
    format!(
        "{} under {}, {} events; live peak {}, reserved peak {}",
        profile.program,
        profile.strategy,
        grouped(events),
        peak(|levels| levels.requested_bytes),
        peak(|levels| levels.reserved_bytes),
    )
}
