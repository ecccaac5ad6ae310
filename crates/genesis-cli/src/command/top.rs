//! `genesis top`: what a running process holds, while it runs.

use std::io::IsTerminal;
use std::path::Path;
use std::time::{Duration, Instant};

use clap::Args;
use genesis::observe::publication::INTERVAL;
use genesis_replay::{Error, Result};

use super::Answer;
use crate::top::{self, App, Course, Found};

/// Show what a running process holds, while it runs
///
/// The process must have GENESIS_TOP=on in its environment, or set it with genesis_option_set.
/// Processes that share a device (GENESIS_SHARE) are shown with it in any case.
/// Its biggest call sites are shown while it makes a profile. On a terminal the view is live and
/// ends with q; elsewhere it is printed once.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The process's number [default: the only process, or one chosen from a list]
    #[arg(value_name = "PROCESS")]
    process_id: Option<u32>,
    /// Print one view instead of a live one
    #[arg(long)]
    once: bool,
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> Result<Answer> {
    let mut found = match arguments.process_id {
        Some(process_id) => vec![top::find(process_id).ok_or_else(|| silent(process_id))?],
        None => top::find_all(),
    };
    let shared = if arguments.process_id.is_none() { top::find_shared() } else { Vec::new() };
    let is_live =
        !arguments.once && std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
    match found.len() {
        0 if shared.is_empty() => Err(Error::usage(
            "no process says what it holds: run one with GENESIS_TOP=on in its environment",
        )),
        _ if is_live => {
            let shown = top::show(App::new(found, shared));
            shown.map_err(|error| Error::failed(format!("the terminal failed: {error}")))?;
            Ok(String::new().into())
        }
        0 => Ok(top::describe_shared(&shared).into()),
        1 if shared.is_empty() => Ok(top::describe(&follow(found.swap_remove(0))).into()),
        _ if shared.is_empty() => Ok(top::list(&found).into()),
        _ => Ok(format!("{}\n{}", top::list(&found), top::describe_shared(&shared)).into()),
    }
}

fn silent(process_id: u32) -> Error {
    Error::usage(if Path::new(&format!("/proc/{process_id}")).exists() {
        format!(
            "process {process_id} does not say what it holds: it needs GENESIS_TOP=on in its \
             environment, and to have allocated"
        )
    } else {
        format!("there is no process {process_id}")
    })
}

/// Two readings of a process, so that there are rates; one if no second one comes in time.
fn follow(found: Found) -> Course {
    let process_id = found.process_id();
    let mut course = Course::default();
    course.add(found.profile);
    let deadline = Instant::now() + 2 * INTERVAL;
    while Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(50));
        if top::find(process_id).is_some_and(|found| course.add(found.profile)) {
            break;
        }
    }
    course
}
