//! `genesis`: the command line. Reads the arguments, runs one command, prints its answer.
//!
//! It is a library, so that `examples/package_files.rs` can write the manual and the completions
//! from the same description of the arguments; the program itself is only [`main`].
//!
//! Output goes to standard output in one piece, errors and progress to standard error. The exit
//! status is 0, or 1 if something failed, or 2 if the request cannot be carried out. A reader that
//! closes the pipe early is no error.

mod command;
mod picture;
mod progress;
mod run;
mod top;

use std::io::{ErrorKind, Write};
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};
use command::Answer;
use genesis_replay::{Result, apart};

/// Shows where GPU memory went, replays recorded programs, and finds what is wrong.
#[derive(Debug, Parser)]
#[command(name = "genesis", version, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(command::run::Arguments),
    Replay(command::replay::Arguments),
    Compare(command::compare::Arguments),
    Convert(command::convert::Arguments),
    Timeline(command::timeline::Arguments),
    Report(command::report::Arguments),
    Diff(command::diff::Arguments),
    Plan(command::plan::Arguments),
    Top(command::top::Arguments),
    Options(command::options::Arguments),
    Doctor(command::doctor::Arguments),
    /// Runs one job from standard input, so that replays have processes of their own.
    #[command(name = command::JOB_COMMAND, hide = true)]
    Job,
}

/// The arguments that the program understands, for its manual and its completions.
pub fn arguments() -> clap::Command {
    Arguments::command()
}

/// Runs the program with the arguments of this process, and returns its exit status.
pub fn main() -> ExitCode {
    let answer = match Arguments::parse().command {
        Command::Run(arguments) => return command::run::run(&arguments),
        Command::Replay(arguments) => command::replay::run(&arguments),
        Command::Compare(arguments) => command::compare::run(&arguments),
        Command::Convert(arguments) => command::convert::run(&arguments),
        Command::Timeline(arguments) => command::timeline::run(&arguments),
        Command::Report(arguments) => command::report::run(&arguments),
        Command::Diff(arguments) => command::diff::run(&arguments),
        Command::Plan(arguments) => command::plan::run(&arguments),
        Command::Top(arguments) => command::top::run(&arguments),
        Command::Options(arguments) => command::options::run(&arguments),
        Command::Doctor(arguments) => command::doctor::run(&arguments),
        Command::Job => return written(apart::serve(&mut progress::passes()), false),
    };
    finish(answer)
}

fn finish(answer: Result<Answer>) -> ExitCode {
    match answer {
        Ok(answer) => {
            let mut output = std::io::stdout().lock();
            let result = output.write_all(answer.text.as_bytes()).and_then(|()| output.flush());
            written(result, answer.is_failure)
        }
        Err(error) => {
            eprintln!("genesis: {error}");
            ExitCode::from(if error.is_usage { 2 } else { 1 })
        }
    }
}

fn written(result: std::io::Result<()>, is_failure: bool) -> ExitCode {
    match result {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            eprintln!("genesis: cannot write: {error}");
            ExitCode::FAILURE
        }
        _ => ExitCode::from(u8::from(is_failure)),
    }
}
