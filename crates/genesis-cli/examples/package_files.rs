//! Writes the files of a package of `genesis` other than the program: manual pages and completions.
//!
//! ```sh
//! cargo run --package genesis-cli --example package_files -- FOLDER
//! ```
//!
//! makes `FOLDER/share/man/man1`, one page for the program and one for each command, and the
//! completions of bash, zsh and fish where each shell looks for them under a prefix. Both come
//! from the description of the arguments that the program itself reads; the first page also has
//! the option table. An example, so that the program carries neither generator.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};
use genesis::config::OPTIONS;

const PROGRAM: &str = "genesis";

fn main() -> io::Result<()> {
    let folder = std::env::args_os().nth(1).ok_or_else(|| io::Error::other("which folder?"))?;
    let share = Path::new(&folder).join("share");
    manual(&share.join("man/man1"))?;
    for (shell, place) in [
        (Shell::Bash, "bash-completion/completions/genesis"),
        (Shell::Zsh, "zsh/site-functions/_genesis"),
        (Shell::Fish, "fish/vendor_completions.d/genesis.fish"),
    ] {
        let file = &mut created(&share.join(place))?;
        clap_complete::generate(shell, &mut genesis_cli::arguments(), PROGRAM, file);
    }
    Ok(())
}

fn created(path: &Path) -> io::Result<File> {
    fs::create_dir_all(path.parent().unwrap_or(path))?;
    File::create(path)
}

fn manual(folder: &Path) -> io::Result<()> {
    // Completions want the help command; pages for it would say nothing.
    let mut program = genesis_cli::arguments().disable_help_subcommand(true);
    program.build();
    for command in program.get_subcommands().filter(|command| !command.is_hide_set()) {
        let name = format!("{PROGRAM}-{}", command.get_name());
        let page = Man::new(command.clone().name(name.clone().leak() as &str));
        page.render(&mut created(&folder.join(name).with_extension("1"))?)?;
    }
    let file = &mut created(&folder.join(PROGRAM).with_extension("1"))?;
    Man::new(program).render(file)?;
    environment().to_writer(file)
}

/// The option table as a section.
fn environment() -> Roff {
    let mut section = Roff::new();
    section.control("SH", ["ENVIRONMENT"]);
    for option in OPTIONS {
        section.control("TP", []);
        section.text([bold(option.name), roman(format!(" (default: {})", option.default_value()))]);
        let text = format!("{} Values: {}. {}", option.summary, option.values, option.help);
        section.text([roman(text.replace('`', ""))]);
    }
    section
}
