//! `genesis report`: a profile, or a trace, as text.

use std::path::PathBuf;

use clap::Args;
use genesis_profile::text;
use genesis_replay::Result;

use super::{Answer, ProfileArguments, profile};

/// Report what a profile or a trace shows: levels, peaks, biggest holders, sizes
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// A profile (.json), or a trace (.gtr, .gtr.zst) to replay; of several, or of a folder's, the
    /// processes are compared
    #[arg(required = true)]
    inputs: Vec<PathBuf>,
    #[command(flatten)]
    profile: ProfileArguments,
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> Result<Answer> {
    let mut processes = profile::load_all(&arguments.inputs, &arguments.profile)?;
    Ok(match processes.len() {
        1 => text::report(&processes.remove(0).1).into(),
        _ => text::ranks(&processes).into(),
    })
}
