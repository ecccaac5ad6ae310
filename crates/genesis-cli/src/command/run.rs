//! `genesis run`: an unmodified program on Genesis's memory.
//!
//! The program is started with `libgenesis_preload.so` before all other libraries and with the
//! file of `preload-report` named in its environment. This process waits for it and passes on
//! signals (`run/child.rs`). At the end it reads the file and reports what was intercepted
//! (`run/account.rs`). Nothing is written to standard output, which is the program's.
//!
//! The exit status is the program's own, or 128 + n if signal n ended it. As with `env`, it is 127
//! if there is no such program, 126 if it cannot be started, and 125 if this command fails.

use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use genesis::config::Settings;
use genesis::observe::publication::FOLDERS;
use genesis_replay::{Error, Result, library};
use preload_report::{PATH_VARIABLE, Report};

use crate::run::{account, child};

/// The file name of the preload library.
const FILE_NAME: &str = "libgenesis_preload.so";
/// The environment variable with its path.
const LIBRARY_VARIABLE: &str = "GENESIS_PRELOAD_LIBRARY";
/// The libraries that the dynamic loader loads before all others.
const PRELOAD_VARIABLE: &str = "LD_PRELOAD";
/// Separators of the names in that list, which no name can contain.
const SEPARATORS: [u8; 6] = [b':', b' ', b'\t', b'\n', 0x0b, 0x0c];

/// The exit status when this command fails itself.
const FAILED: u8 = 125;
const CANNOT_START: u8 = 126;
const NOT_FOUND: u8 = 127;

/// Run an unmodified program with Genesis's memory
///
/// Device memory that the program asks CUDA for comes from Genesis, in the program and in those
/// that it starts. At the end standard error has what was intercepted in each process, or why
/// nothing was. The exit status is the program's own; 128 + n if signal n ended it; 127 if there
/// is no such program, 126 if it cannot be started, and 125 if this command fails.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The strategy, as GENESIS_POOL_TYPE
    #[arg(long, value_name = "NAME")]
    pool_type: Option<String>,
    /// Set an option of `genesis options`; may be given several times
    #[arg(long = "option", value_name = "NAME=VALUE", value_parser = name_and_value)]
    options: Vec<(String, String)>,
    /// Profile the run into this file, as GENESIS_PROFILE; %p is the process's number
    #[arg(long, value_name = "FILE")]
    profile: Option<String>,
    /// Do not report what was intercepted
    #[arg(long, short)]
    quiet: bool,
    /// The program and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "PROGRAM"
    )]
    program: Vec<OsString>,
}

fn name_and_value(text: &str) -> std::result::Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) => Ok((name.to_owned(), value.to_owned())),
        None => Err("not of the form NAME=VALUE".to_owned()),
    }
}

/// Runs the command, and returns the exit status.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    match start(arguments) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("genesis: {error}");
            ExitCode::from(FAILED)
        }
    }
}

fn start(arguments: &Arguments) -> Result<u8> {
    let settings = settings(arguments)?;
    let Some((program, rest)) = arguments.program.split_first() else {
        return Err(Error::usage("no program to run"));
    };
    let mut command = Command::new(program);
    command.args(rest).envs(settings).env(PRELOAD_VARIABLE, preload(&locate()?)?);
    let report = if arguments.quiet { None } else { new_report() };
    match &report {
        Some(report) => command.env(variable(), report.path()),
        // An outer `genesis run` may report it then.
        None => &mut command,
    };
    let status = match child::run(&mut command) {
        Ok(status) => status,
        Err(error) => {
            let is_missing = error.kind() == ErrorKind::NotFound;
            eprintln!("genesis: {}: {error}", program.to_string_lossy());
            return Ok(if is_missing { NOT_FOUND } else { CANNOT_START });
        }
    };
    if let Some(report) = report {
        eprint!("{}", account::describe(&report, program, status));
    }
    Ok(exit_code(status))
}

/// The settings for the program's environment; an error if the library would refuse one, or does
/// not know it.
fn settings(arguments: &Arguments) -> Result<Vec<(String, String)>> {
    let mut settings = arguments.options.clone();
    let named =
        [("GENESIS_POOL_TYPE", &arguments.pool_type), ("GENESIS_PROFILE", &arguments.profile)];
    for (name, value) in named {
        settings.extend(value.clone().map(|value| (name.to_owned(), value)));
    }
    let own = settings.iter().map(|(name, value)| (name.into(), value.into()));
    match Settings::from_variables(own) {
        Ok((_, warnings)) if warnings.is_empty() => {}
        Ok((_, warnings)) => return Err(Error::usage(warnings.join("; "))),
        Err(error) => return Err(Error::usage(error.message.clone())),
    }
    if let Some((name, _)) = settings.iter().find(|(name, _)| !name.starts_with("GENESIS_")) {
        return Err(Error::usage(format!("{name} is not an option; `genesis options` lists them")));
    }
    super::check(&settings)?;
    Ok(settings)
}

/// The path of the preload library; absolute, because programs may run in other folders.
fn locate() -> Result<PathBuf> {
    let named = std::env::var_os(LIBRARY_VARIABLE).filter(|path| !path.is_empty());
    let path = match named.map(PathBuf::from) {
        Some(path) if path.is_file() => path,
        Some(path) => {
            return Err(Error::usage(format!("{}: there is no such library", path.display())));
        }
        None => library::beside_program(FILE_NAME)?.ok_or_else(|| {
            Error::usage(format!(
                "{FILE_NAME} is not beside this program: build it with `cargo build --release -p \
                 genesis-preload`, or say where it is with {LIBRARY_VARIABLE}"
            ))
        })?,
    };
    path.canonicalize().map_err(|error| Error::failed(format!("{}: {error}", path.display())))
}

/// The libraries to load first: the preload library, then those named in the environment.
fn preload(library: &Path) -> Result<OsString> {
    if library.as_os_str().as_encoded_bytes().iter().any(|byte| SEPARATORS.contains(byte)) {
        return Err(Error::usage(format!(
            "{}: {PRELOAD_VARIABLE} cannot name a library with a space or a colon in its path",
            library.display()
        )));
    }
    let mut all = library.as_os_str().to_owned();
    if let Some(others) = std::env::var_os(PRELOAD_VARIABLE).filter(|others| !others.is_empty()) {
        all.push(":");
        all.push(others);
    }
    Ok(all)
}

/// A new file for the processes to report in. The program also runs without one.
fn new_report() -> Option<Report> {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let name = format!("genesis-run-{}-{}", std::process::id(), since_1970.as_nanos());
    let mut paths = FOLDERS.iter().map(|folder| Path::new(folder).join(&name));
    let report = paths.find_map(|path| Report::create(&path).ok());
    if report.is_none() {
        eprintln!(
            "genesis run: neither {} nor {} can be written to: what is intercepted is not told",
            FOLDERS[0], FOLDERS[1]
        );
    }
    report
}

fn variable() -> &'static OsStr {
    // It is ASCII.
    OsStr::new(PATH_VARIABLE.to_str().unwrap_or_default())
}

fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(FAILED)
}
