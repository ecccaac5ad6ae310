//! `genesis options`: the option table, with the values in force.

use clap::Args;
use genesis::config::{Settings, describe, markdown_page};
use genesis_replay::{Error, Result};

use super::Answer;

/// List every option, its value in force and what it means
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Print the page docs/options.md, in Markdown, with defaults instead of values in force
    #[arg(long)]
    markdown: bool,
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> Result<Answer> {
    if arguments.markdown {
        return Ok(markdown_page().into());
    }
    let (settings, warnings) =
        Settings::from_environment().map_err(|error| Error::usage(error.message.clone()))?;
    for warning in warnings {
        eprintln!("genesis: warning: {warning}");
    }
    let mut text = String::new();
    describe(&settings, &mut text).map_err(|error| Error::failed(error.to_string()))?;
    Ok(text.into())
}
