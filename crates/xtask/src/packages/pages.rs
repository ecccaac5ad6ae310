//! The pages of `docs/`, whose commands are run as they stand.
//!
//! A page takes part by its first line, [`MARK`]. Then, in the order of the page and in a fresh
//! folder of the page's own:
//!
//! - a fenced block of `sh` is run by bash, which stops at the first command that fails;
//! - a block of any language under `<!-- file: NAME -->` is written to that file;
//! - a block of `sh` under `<!-- not run: REASON -->` is left out, and counted;
//! - `<!-- run: COMMANDS -->` is run as a block that readers need not see: what a page takes for granted;
//! - `<!-- needs: COMMANDS -->` ends the page there, with a word, on a machine where they fail;
//! - `<!-- output contains: TEXT -->` holds the latest run block to what it printed.
//!
//! Blocks find an installed Genesis first in `PATH` and wherever compilers, pkg-config and CMake
//! look, a Python that has the wheel and what `test-frameworks` installs, simulated GPUs ([simcuda]) in
//! the place of CUDA, the sources in `$SOURCES`, and the packages in `$PACKAGES`.
//!
//! [simcuda]: ../../../simcuda

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use super::build::{create, failed, remove};
use super::tree::files_under;
use crate::steps::{self, Outcome, root};

/// The first line of a page that takes part.
const MARK: &str = "<!-- commands: run -->";
/// The longest that one block may take.
const LIMIT_SECONDS: &str = "300";

/// One thing that a page asks for, with the line where it stands.
#[derive(Debug, Eq, PartialEq)]
enum Part {
    Run { line: usize, commands: String },
    Need { line: usize, commands: String },
    Skip { line: usize, reason: String },
    File { name: String, text: String },
    Expect { line: usize, text: String },
}

/// Runs the pages named, or all, on the tree installed at `prefix` and with the Python at `python`.
pub(super) fn run(named: &[PathBuf], prefix: &Path, python: &Path, scratch: &Path) -> Outcome {
    let pages = match named {
        [] => files_under(&root().join("docs"))?,
        named => named.iter().map(|page| root().join(page)).collect(),
    };
    let mut failures = Vec::new();
    for page in pages.iter().filter(|page| page.extension().is_some_and(|is| is == "md")) {
        let text = fs::read_to_string(page).map_err(failed(page))?;
        if !text.starts_with(MARK) {
            continue;
        }
        let name = page.file_stem().unwrap_or_default();
        let shell = Shell { prefix, python, folder: scratch.join(name) };
        let outcome = parse(&text).and_then(|parts| shell.page(page, &parts));
        failures.extend(outcome.err().map(|error| format!("{}:{error}", page.display())));
    }
    match failures.is_empty() {
        true => Ok(()),
        false => Err(failures.join("\n")),
    }
}

/// What `text` asks for; an error begins with a line's number.
fn parse(text: &str) -> Result<Vec<Part>, String> {
    let mut parts = Vec::new();
    let mut lines = text.lines().zip(1..).peekable();
    // What the latest comment says of the block that follows it.
    let mut about: Option<(&str, &str)> = None;
    while let Some((line, number)) = lines.next() {
        if let Some(comment) = comment(line) {
            match comment {
                ("output contains", text) => {
                    parts.push(Part::Expect { line: number, text: text.to_owned() });
                }
                ("run", commands) => {
                    parts.push(Part::Run { line: number, commands: commands.to_owned() });
                }
                ("needs", commands) => {
                    parts.push(Part::Need { line: number, commands: commands.to_owned() });
                }
                ("file" | "not run", _) => about = Some(comment),
                _ => {}
            }
        } else if let Some(language) = line.strip_prefix("```") {
            let mut block = String::new();
            loop {
                match lines.next() {
                    Some(("```", _)) => break,
                    Some((line, _)) => block += &format!("{line}\n"),
                    None => return Err(format!("{number}: the block has no end")),
                }
            }
            match (about.take(), language) {
                (Some(("file", name)), _) => {
                    parts.push(Part::File { name: name.to_owned(), text: block });
                }
                (Some((_, reason)), _) => {
                    parts.push(Part::Skip { line: number, reason: reason.to_owned() });
                }
                (None, "sh") => parts.push(Part::Run { line: number, commands: block }),
                (None, _) => {}
            }
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

/// Where the blocks of one page are run.
struct Shell<'a> {
    prefix: &'a Path,
    python: &'a Path,
    folder: PathBuf,
}

impl Shell<'_> {
    fn page(&self, page: &Path, parts: &[Part]) -> Outcome {
        remove(&self.folder)?;
        create(&self.folder)?;
        let started = Instant::now();
        let (mut run, mut skipped, mut printed) = (0, 0, String::new());
        for part in parts {
            match part {
                Part::File { name, text } => {
                    let path = self.folder.join(name);
                    create(path.parent().unwrap_or(&self.folder))?;
                    fs::write(&path, text).map_err(failed(&path))?;
                }
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
        let seconds = started.elapsed().as_secs_f64();
        eprintln!("ok {}: {run} blocks run, {skipped} not, {seconds:.1} s", page.display());
        Ok(())
    }

    /// Runs one block, and returns what it printed.
    fn block(&self, commands: &str) -> Result<String, String> {
        let release = steps::target_folder().join("release");
        let mut command = Command::new("timeout");
        command.arg(LIMIT_SECONDS).arg(release.join("simcuda"));
        // Both streams into one text, in the order in which they were written.
        command.args(["bash", "-eu", "-o", "pipefail", "-c"]).arg(format!("exec 2>&1\n{commands}"));
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if ["GENESIS_", "MXNET_", "SIMCUDA_", "CARGO_", "RUST"]
                .iter()
                .any(|of| text.starts_with(of))
            {
                command.env_remove(name);
            }
        }
        let (bin, lib) = (self.prefix.join("bin"), self.prefix.join("lib"));
        let python = self.python.parent().unwrap_or(self.python);
        command
            .env("PATH", before("PATH", &[python, &bin])?)
            .env("LD_LIBRARY_PATH", before("LD_LIBRARY_PATH", &[&lib])?)
            .env("LIBRARY_PATH", before("LIBRARY_PATH", &[&lib])?)
            .env("CPATH", before("CPATH", &[&self.prefix.join("include")])?)
            .env("PKG_CONFIG_PATH", before("PKG_CONFIG_PATH", &[&lib.join("pkgconfig")])?)
            .env("CMAKE_PREFIX_PATH", self.prefix)
            .env("SOURCES", root())
            .env("PACKAGES", super::dist::folder())
            .current_dir(&self.folder)
            .stdin(Stdio::null());
        let output = command.output().map_err(|error| format!("bash: {error}"))?;
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        match output.status.success() {
            true => Ok(printed),
            false => Err(format!(
                "{}\n{commands}printed:\n{printed}{}",
                output.status,
                String::from_utf8_lossy(&output.stderr)
            )),
        }
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
        let page = "<!-- commands: run -->\n# A page\n<!-- needs: d -->\n<!-- run: e -->\n```sh\necho a\n```\n\n\
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
