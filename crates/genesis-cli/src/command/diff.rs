//! `genesis diff`: what grew between two profiles.

use std::path::PathBuf;

use clap::Args;
use genesis_profile::text;
use genesis_replay::Result;

use super::{Answer, ProfileArguments, profile};

/// Show what grew from one profile to another: by device, call site and size
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The profile (.json) before, or a trace (.gtr, .gtr.zst) to replay
    before: PathBuf,
    /// The one after
    after: PathBuf,
    #[command(flatten)]
    profile: ProfileArguments,
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> Result<Answer> {
    let before = profile::load(&arguments.before, &arguments.profile)?;
    let after = profile::load(&arguments.after, &arguments.profile)?;
    Ok(text::diff(&before, &after).into())
}
