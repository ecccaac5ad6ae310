//! `genesis report`: a profile, or a trace, as text.

use std::path::PathBuf;

use clap::Args;
use genesis_profile::text;
use genesis_replay::Result;

use super::{Answer, ProfileArguments, profile};

/// Report what a profile or a trace shows: levels, peaks, biggest holders, sizes
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// A profile (.json), or a trace (.gtr, .gtr.zst) to replay
    input: PathBuf,
    #[command(flatten)]
    profile: ProfileArguments,
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> Result<Answer> {
    let profile = profile::load(&arguments.input, &arguments.profile)?;
    Ok(text::report(&profile).into())
}
