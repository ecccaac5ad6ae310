//! The program `genesis`: all of it is in this package's library.

use std::process::ExitCode;

fn main() -> ExitCode {
    genesis_cli::main()
}
