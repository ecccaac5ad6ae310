//! The pages of `docs/`, whose commands are run as they stand.
//!
//! A page takes part if its first line is [`MARK`], or, every night, [`NIGHTLY`]. Its parts run in
//! the order of the page, in an empty folder of the page's own:
//!
//! | part | what is done |
//! |---|---|
//! | a fenced block of `sh` | bash runs it, and stops at the first command that fails |
//! | a block of any language under `<!-- file: NAME -->` | written to that file |
//! | a block of `sh` under `<!-- not run: REASON -->` | left out, and counted |
//! | `<!-- run: COMMANDS -->` | run as a block that readers need not see |
//! | `<!-- needs: COMMANDS -->` | if the commands fail here, the page ends at this line |
//! | `<!-- output contains: TEXT -->` | fails unless the last block that ran printed TEXT |
//!
//! Blocks find an installed Genesis first in `PATH` and wherever compilers, pkg-config and CMake
//! look, a Python that has the wheel and what `test-frameworks` installs, simulated GPUs
//! ([simcuda]) in place of CUDA, the sources in `$SOURCES`, and the packages in `$PACKAGES`.
//!
//! [simcuda]: ../../../simcuda

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use steps::{Outcome, keep_bytecode, root, taken};

use crate::suite::Tier;

use super::files::{self, create_empty, failed, files_under, write};

/// The first line of a page that takes part.
const MARK: &str = "<!-- commands: run -->";
/// That of a page whose subject has a suite of its own on every change.
const NIGHTLY: &str = "<!-- commands: run nightly -->";
/// The longest that one block may take.
const LIMIT_SECONDS: &str = "300";
/// How the names of variables begin that would change what a block does.
const SETTINGS: [&str; 5] = ["GENESIS_", "MXNET_", "SIMCUDA_", "CARGO_", "RUST"];

/// One part of a page, with the number of its line.
#[derive(Debug, Eq, PartialEq)]
enum Part {
    Run { line: usize, commands: String },
    Need { line: usize, commands: String },
    Skip { line: usize, reason: String },
    File { name: String, text: String },
    Expect { line: usize, text: String },
}

/// What the blocks of pages run on.
#[derive(Debug)]
pub(super) struct Place {
    /// An installed tree.
    pub(super) prefix: PathBuf,
    /// The Python that has the wheel.
    pub(super) python: PathBuf,
    /// The program that runs others on simulated GPUs.
    pub(super) simcuda: PathBuf,
    /// Where each page gets a folder.
    pub(super) scratch: PathBuf,
}

/// The pages that take part, of those in `named` or, if it is empty, of all in the tier.
pub(super) fn pages(named: &[PathBuf], tier: Tier) -> Result<Vec<PathBuf>, String> {
    let pages = if named.is_empty() {
        files_under(&root().join("docs"))?
    } else {
        named.iter().map(|page| root().join(page)).collect()
    };
    let is_whole = tier == Tier::Nightly || !named.is_empty();
    let mut taking_part = Vec::new();
    for page in pages.into_iter().filter(|page| page.extension().is_some_and(|is| is == "md")) {
        let text = fs::read_to_string(&page).map_err(failed(&page))?;
        if text.starts_with(MARK) || is_whole && text.starts_with(NIGHTLY) {
            taking_part.push(page);
        }
    }
    Ok(taking_part)
}

/// Runs one page; an error begins with the page and the line.
pub(super) fn run(page: &Path, place: &Place) -> Outcome {
    let text = fs::read_to_string(page).map_err(failed(page))?;
    let folder = place.scratch.join(page.file_stem().unwrap_or_default());
    let shell = Shell { place, folder };
    let name = page.strip_prefix(root()).unwrap_or(page).display();
    taken(&format!("the commands of {name}"), || {
        let outcome = parse(&text).and_then(|parts| shell.page(page, &parts));
        outcome.map_err(|error| format!("{name}:{error}"))
    })
}

/// The parts of a page; an error begins with a line's number.
fn parse(text: &str) -> Result<Vec<Part>, String> {
    let mut parts = Vec::new();
    let mut lines = text.lines().zip(1..);
    // What a comment says about the block that must follow it.
    let mut about: Option<(&str, &str)> = None;
    while let Some((line, number)) = lines.next() {
        if let Some(comment) = comment(line) {
            match comment {
                ("file" | "not run", _) => about = Some(comment),
                (word, text) => parts.extend(part(word, text, number)),
            }
        } else if let Some(language) = line.strip_prefix("```") {
            let block = block(&mut lines).ok_or(format!("{number}: the block has no end"))?;
            parts.extend(match (about.take(), language) {
                (Some(("file", name)), _) => Some(Part::File { name: name.into(), text: block }),
                (Some((_, reason)), _) => Some(Part::Skip { line: number, reason: reason.into() }),
                (None, "sh") => Some(Part::Run { line: number, commands: block }),
                (None, _) => None,
            });
        } else if !line.trim().is_empty() && about.is_some() {
            return Err(format!("{number}: a block was announced, and here is text"));
        }
    }
    Ok(parts)
}

/// The two sides of `<!-- word: text -->`.
fn comment(line: &str) -> Option<(&str, &str)> {
    line.strip_prefix("<!-- ")?.strip_suffix(" -->")?.split_once(": ")
}

/// The part that a comment is by itself, if it is one.
fn part(word: &str, text: &str, line: usize) -> Option<Part> {
    let text = text.to_owned();
    match word {
        "output contains" => Some(Part::Expect { line, text }),
        "run" => Some(Part::Run { line, commands: text }),
        "needs" => Some(Part::Need { line, commands: text }),
        _ => None,
    }
}

/// The lines up to the end of a fenced block; None if it has no end.
fn block<'a>(lines: &mut impl Iterator<Item = (&'a str, usize)>) -> Option<String> {
    let mut block = String::new();
    for (line, _) in lines {
        if line == "```" {
            return Some(block);
        }
        block += &format!("{line}\n");
    }
    None
}

/// Where the blocks of one page are run.
struct Shell<'a> {
    place: &'a Place,
    folder: PathBuf,
}

impl Shell<'_> {
    fn page(&self, page: &Path, parts: &[Part]) -> Outcome {
        create_empty(&self.folder)?;
        let (mut run, mut skipped, mut printed) = (0, 0, String::new());
        for part in parts {
            match part {
                Part::File { name, text } => write(&self.folder.join(name), text)?,
                Part::Run { line, commands } => {
                    run += 1;
                    printed = self.block(commands).map_err(|error| format!("{line}: {error}"))?;
                }
                Part::Need { line, commands } => {
                    if self.block(commands).is_err() {
                        eprintln!("{}:{line}: not run from here: {commands}", page.display());
                        break;
                    }
                }
                Part::Skip { line, reason } => {
                    skipped += 1;
                    eprintln!("{}:{line}: not run: {reason}", page.display());
                }
                Part::Expect { line, text } if !printed.contains(text.as_str()) => {
                    return Err(format!("{line}: not in what was printed:\n{printed}"));
                }
                Part::Expect { .. } => {}
            }
        }
        eprintln!("{}: {run} blocks run, {skipped} not", page.display());
        Ok(())
    }

    /// Runs one block, and returns what it printed.
    fn block(&self, commands: &str) -> Result<String, String> {
        let mut command = Command::new("timeout");
        command.arg(LIMIT_SECONDS).arg(&self.place.simcuda);
        // Both streams into one text, in the order in which they were written.
        command.args(["bash", "-eu", "-o", "pipefail", "-c"]).arg(format!("exec 2>&1\n{commands}"));
        keep_bytecode(&mut command);
        self.set_variables(&mut command)?;
        command.current_dir(&self.folder).stdin(Stdio::null());
        let output = command.output().map_err(|error| format!("bash: {error}"))?;
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.success() {
            return Ok(printed);
        }
        let errors = String::from_utf8_lossy(&output.stderr);
        Err(format!("{}\n{commands}printed:\n{printed}{errors}", output.status))
    }

    fn set_variables(&self, command: &mut Command) -> Outcome {
        for (name, _) in std::env::vars_os() {
            if SETTINGS.iter().any(|setting| name.to_string_lossy().starts_with(setting)) {
                command.env_remove(name);
            }
        }
        let Place { prefix, python, .. } = self.place;
        let (bin, lib) = (prefix.join("bin"), prefix.join("lib"));
        let python = python.parent().unwrap_or(python);
        command
            .env("PATH", before("PATH", &[python, &bin])?)
            .env("LD_LIBRARY_PATH", before("LD_LIBRARY_PATH", &[&lib])?)
            .env("LIBRARY_PATH", before("LIBRARY_PATH", &[&lib])?)
            .env("CPATH", before("CPATH", &[&prefix.join("include")])?)
            .env("PKG_CONFIG_PATH", before("PKG_CONFIG_PATH", &[&lib.join("pkgconfig")])?)
            .env("CMAKE_PREFIX_PATH", prefix)
            .env("SOURCES", root())
            .env("PACKAGES", files::dist());
        Ok(())
    }
}

/// The search path `name` of the environment with `folders` before it.
fn before(name: &str, folders: &[&Path]) -> Result<std::ffi::OsString, String> {
    let present = std::env::var_os(name).unwrap_or_default();
    let rest = std::env::split_paths(&present).filter(|path| !path.as_os_str().is_empty());
    let all = folders.iter().map(|folder| folder.to_path_buf()).chain(rest);
    std::env::join_paths(all).map_err(|error| format!("{name}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_block_is_understood() {
        let page = "<!-- commands: run -->\n# A page\n<!-- needs: d -->\n<!-- run: e -->\n\
                    ```sh\necho a\n```\n\n\
                    <!-- output contains: a -->\n<!-- file: b.c -->\n```c\nint b;\n```\n\
                    <!-- not run: it needs root -->\n```sh\nsudo c\n```\n```text\nd\n```\n";
        let expected = [
            Part::Need { line: 3, commands: "d".to_owned() },
            Part::Run { line: 4, commands: "e".to_owned() },
            Part::Run { line: 5, commands: "echo a\n".to_owned() },
            Part::Expect { line: 9, text: "a".to_owned() },
            Part::File { name: "b.c".to_owned(), text: "int b;\n".to_owned() },
            Part::Skip { line: 15, reason: "it needs root".to_owned() },
        ];
        assert_eq!(parse(page).unwrap(), expected);
    }

    #[test]
    fn what_is_announced_must_follow() {
        assert!(parse("<!-- file: a -->\n\ntext\n").unwrap_err().starts_with("3: "));
        assert!(parse("```sh\necho\n").unwrap_err().starts_with("1: "));
    }
}
