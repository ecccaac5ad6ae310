//! `genesis convert`: a recorded program in another form.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use genesis_replay::gtr::{self, Action};
use genesis_replay::table::grouped;
use genesis_replay::{Error, Result, rmm_log};

use super::Answer;

/// Write a recorded program in another form: RMM's log as a trace, a trace as RMM's log
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// A trace of format GTR1, or a log of RMM's (CSV)
    input: PathBuf,
    /// What to write; its ending is the form: .csv a log of RMM's, .gtr or .gtr.zst a trace
    output: PathBuf,
    /// For a log: the device, if the trace is of several
    #[arg(long, value_name = "N")]
    device: Option<u8>,
}

/// What can be written.
enum Form {
    Trace,
    Log,
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> Result<Answer> {
    let Arguments { input, output, device } = arguments;
    let form = form_of(output)?;
    let recovered = gtr::recover_file(input)?;
    let records = &recovered.records;
    let requests = records.iter().filter(|record| record.action == Action::Allocate);
    let (written, count) = match form {
        Form::Trace => (gtr::write_file(output, records), requests.count()),
        Form::Log => {
            let device = device.map_or_else(|| rmm_log::only_device(records), Ok)?;
            let count = requests.filter(|record| record.device == device).count();
            (write_log(output, records, device), count)
        }
    };
    written.map_err(|error| Error::failed(format!("{}: {error}", output.display())))?;
    let mut text = format!("{}: {} requests\n", output.display(), grouped(count as u64));
    if let Some(damage) = &recovered.damage {
        text += &format!("converted to where the input is damaged only: {damage}\n");
    }
    Ok(Answer { text, is_failure: false })
}

fn form_of(output: &Path) -> Result<Form> {
    let name = output.file_name().unwrap_or_default().to_string_lossy();
    match name {
        name if name.ends_with(".csv") => Ok(Form::Log),
        name if name.ends_with(".gtr") || name.ends_with(".gtr.zst") => Ok(Form::Trace),
        name => Err(Error::usage(format!("{name}: what to write ends in .csv, .gtr or .gtr.zst"))),
    }
}

fn write_log(output: &Path, records: &[gtr::Record], device: u8) -> std::io::Result<()> {
    let mut file = BufWriter::new(File::create(output)?);
    rmm_log::write(&mut file, records, device)?;
    file.flush()
}
