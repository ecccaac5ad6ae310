//! The shape of the sources: imports go down, files stay short enough to read, and suites are listed.
//!
//! In `src/`, imports go down the list of layers. The list is the table in `src/lib.rs`; its last
//! column names what a layer may use. The sources are read as text: every `crate::…` in code names
//! a layer, and a chain of `super::` must not leave the layer it stands in.
//!
//! In every crate of the workspace, the files form no circle of imports: `circles` has the rule.

#[path = "layers/circles.rs"]
mod circles;
#[path = "layers/source.rs"]
mod source;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::circles::{Files, circles};

/// Imports that the list does not allow, as (file, layer), each with a comment that says why.
const EXCEPTIONS: [(&str, &str); 0] = [];

/// Folders whose files have a limited length. Each must exist.
const MEASURED: [&str; 7] = ["src", "crates", "tests", "benches", "c_tests", "python", "include"];

const LONGEST_FILE_LINES: usize = 500;
/// A longer file has this on its first page, followed by the reason.
const EXCUSE: &str = "Over 500 lines:";
const FIRST_PAGE_LINES: usize = 60;

/// Layer → the layers it may use.
type Layers = BTreeMap<String, Vec<String>>;

#[test]
fn imports_go_down_the_list() {
    let layers = layers(&read(&root().join("src/lib.rs")));
    let mut wrong = Vec::new();
    for file in files_under(&root().join("src"), &["rs"]) {
        let relative = relative(&file);
        let Some(layer) = layer_of(&relative) else {
            continue;
        };
        let allowed = layers.get(&layer).unwrap_or_else(|| panic!("{layer} is not in the list"));
        for (number, used) in imports(&relative, &read(&file), &layers) {
            let is_exception = EXCEPTIONS.contains(&(relative.as_str(), used.as_str()));
            if used != layer && !allowed.contains(&used) && !is_exception {
                wrong.push(format!("{relative}:{number}: {layer} may not use {used}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn files_form_no_circle() {
    let mut found = Vec::new();
    for folder in packages().iter().map(|package| package.join("src")) {
        found.extend(circles(&sources(&folder)));
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// Circles are found through every form of import, and nowhere else.
#[test]
fn circles_are_found_in_every_form() {
    let lib = "//! use crate::b;\nmod a;\npub mod b;\nmod c;\npub use b::B;\n";
    let circle_of = |a: &str, b: &str, c: &str| {
        let files = [("lib.rs", lib), ("a.rs", a), ("b/mod.rs", b), ("c.rs", c)];
        let file = |(name, text): (&str, &str)| ("src".into(), name.to_owned(), text.to_owned());
        let all = circles(&files.map(file).to_vec());
        all.iter().map(|circle| circle.lines().next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let two = ["a circle of 2 files"];
    let b = "use crate::a::A;\npub struct B;\n";
    assert_eq!(circle_of("use crate::b::B;\npub struct A;\n", b, ""), two);
    assert_eq!(circle_of("pub struct A(super::b::B);\n", b, ""), two);
    assert_eq!(circle_of("use crate::B;\npub struct A;\n", b, ""), two, "through the facade");
    assert_eq!(circle_of("use crate::{b, c as d};\nfn f() { b::g(); }\nstruct A;\n", b, ""), two);
    assert_eq!(circle_of("use crate::b::*;\nstruct A;\n", b, ""), two);
    let renamed = "pub use super::b::B as C;\nfn f() {}\n";
    assert_eq!(circle_of("use crate::c::C;\npub struct A;", b, renamed), two, "to the definition");
    let three = circle_of("use crate::c::C;\npub struct A;", b, "pub struct C(crate::b::B);\n");
    assert_eq!(three, ["a circle of 3 files"]);
    let apart = "// use crate::b;\n#[cfg(test)]\nmod tests { use crate::b::B; }\n\
                 const T: &str = \"crate::b::B\";\nuse std::b::C;\npub struct A;\n";
    assert_eq!(circle_of(apart, b, "use crate::b::B;\n"), [""; 0]);
}

/// The list itself: every module is on it, and no layer uses one above it.
#[test]
fn the_list_is_complete_and_ordered() {
    let source = read(&root().join("src/lib.rs"));
    let layers = layers(&source);
    let order = names_in_order(&source);
    for line in source.lines() {
        let declared = line.trim_start_matches("pub ").strip_prefix("mod ");
        if let Some(name) = declared.and_then(|rest| rest.strip_suffix(';')) {
            assert!(layers.contains_key(name), "`{name}` is not in the list");
        }
    }
    for (position, name) in order.iter().enumerate() {
        for used in &layers[name] {
            assert!(order[position + 1..].contains(used), "{name} uses {used}, which is above");
        }
    }
    assert!(order.len() >= 9, "the list was not understood: {order:?}");
}

/// The reader of sources finds every import, and nothing else.
#[test]
fn imports_are_found_in_every_form() {
    let source = "//! crate::heap in prose\nuse crate::base::{Error, size};\n\
                  use crate::{driver::Device, config, memory::{Slot, State}};\n\
                  let x = crate::observe::Log::new(); // crate::ffi\n\
                  pub(in crate::strategy) fn f() {}\n\
                  use super::super::order::Fence;\nuse super::lane;\nmacro!($crate::z);\n";
    let layers = layers(&read(&root().join("src/lib.rs")));
    let found = imports("src/heap/lane.rs", source, &layers);
    let expected = [
        (2, "base"),
        (3, "driver"),
        (3, "config"),
        (3, "memory"),
        (4, "observe"),
        (5, "strategy"),
        (6, "order"),
    ];
    assert_eq!(found, expected.map(|(line, name)| (line, name.to_owned())));
    assert_eq!(imports("src/driver/cuda/device.rs", "use super::super::Code;\n", &layers), []);
}

#[test]
fn files_are_short_or_say_why_not() {
    let mut long = Vec::new();
    for file in MEASURED.iter().flat_map(|folder| {
        files_under(&root().join(folder), &["rs", "c", "cc", "cpp", "h", "hpp", "py", "sh"])
    }) {
        let text = read(&file);
        let lines = text.lines().count();
        let is_excused = text.lines().take(FIRST_PAGE_LINES).any(|line| line.contains(EXCUSE));
        if lines > LONGEST_FILE_LINES && !is_excused && !is_generated(&text) {
            long.push(format!("{}: {lines} lines", relative(&file)));
        }
    }
    assert!(long.is_empty(), "{}\nsplit them, or say \"{EXCUSE}\" and why", long.join("\n"));
}

#[test]
fn the_list_of_suites_is_complete() {
    let list = read(&root().join("tests/README.md"));
    let suites = fs::read_dir(root().join("tests")).unwrap().map(|entry| entry.unwrap().path());
    let suites = suites.filter(|path| path.extension().is_some_and(|extension| extension == "rs"));
    let missing: Vec<String> =
        suites.map(|path| relative(&path)).filter(|name| !list.contains(name.as_str())).collect();
    assert!(missing.is_empty(), "tests/README.md lacks {missing:?}");
}

/// Generated files are checked at what they are made from.
fn is_generated(text: &str) -> bool {
    text.lines().take(FIRST_PAGE_LINES).any(|line| {
        let line = line.to_ascii_lowercase();
        line.contains("generated") && (line.contains("do not edit") || line.contains("by "))
    })
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn relative(path: &Path) -> String {
    path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned()
}

/// The folders of all packages of the workspace.
fn packages() -> Vec<PathBuf> {
    let crates = entries(&root().join("crates"));
    let packages = crates.into_iter().filter(|folder| folder.join("Cargo.toml").is_file());
    std::iter::once(root()).chain(packages).collect()
}

/// The Rust files below `folder`, the `src/` of a package.
fn sources(folder: &Path) -> Files {
    let files = files_under(folder, &["rs"]);
    let sources = files.iter().map(|file| {
        let below = file.strip_prefix(folder).unwrap().to_str().unwrap();
        (relative(folder), below.to_owned(), read(file))
    });
    sources.collect()
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder);
    let entries = entries.unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    entries.map(|entry| entry.unwrap().path()).collect()
}

/// All files below `folder` with one of `extensions`, without what builds leave there.
fn files_under(folder: &Path, extensions: &[&str]) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for path in entries(folder) {
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() && name != "target" && !name.starts_with('.') {
            files.extend(files_under(&path, extensions));
        } else if path.extension().is_some_and(|e| extensions.contains(&e.to_str().unwrap())) {
            files.push(path);
        }
    }
    files.sort();
    files
}

/// The rows of the table as (name, what it uses), in order.
fn rows(source: &str) -> Vec<(String, String)> {
    let rows = source.lines().filter_map(|line| line.strip_prefix("//! | "));
    let cells = rows.map(|row| row.trim_end_matches('|').split(" | ").collect::<Vec<_>>());
    cells
        .filter(|cells| cells.len() == 3 && cells[0].contains('`'))
        .map(|cells| {
            let name = cells[0].trim_matches(|c| "[]` ".contains(c));
            (name.to_owned(), cells[2].trim().to_owned())
        })
        .collect()
}

fn names_in_order(source: &str) -> Vec<String> {
    rows(source).into_iter().map(|(name, _)| name).collect()
}

fn layers(source: &str) -> Layers {
    let order = names_in_order(source);
    let rows = rows(source).into_iter().enumerate();
    rows.map(|(position, (name, uses))| {
        let uses = match uses.as_str() {
            "all below" => order[position + 1..].to_vec(),
            "nothing" => Vec::new(),
            list => list.split(", ").map(str::to_owned).collect(),
        };
        (name, uses)
    })
    .collect()
}

/// The layer a file belongs to; `src/lib.rs` belongs to none.
fn layer_of(relative: &str) -> Option<String> {
    let inside = relative.strip_prefix("src/")?;
    let first = inside.split('/').next()?.trim_end_matches(".rs");
    (first != "lib").then(|| first.to_owned())
}

/// The modules of the crate that a source names: (line, module). A chain of `super` counts if it
/// ends at a layer; a test file may be deeper than its path.
fn imports(relative: &str, source: &str, layers: &Layers) -> Vec<(usize, String)> {
    let depth = depth_of(relative);
    let mut found = Vec::new();
    // Modules within the file are deeper: the chain of `super` may be longer in them.
    let mut inner_modules = 0;
    for (number, line) in (1..).zip(source.lines()) {
        let code = line.split("//").next().unwrap_or_default();
        let trimmed = code.trim_start().trim_start_matches("pub ");
        inner_modules += usize::from(trimmed.starts_with("mod ") && trimmed.contains('{'));
        for (at, _) in code.match_indices("crate::") {
            if code[..at].ends_with('$') {
                continue;
            }
            let names = names_after(&code[at + "crate::".len()..]);
            found.extend(names.into_iter().map(|name| (number, name)));
        }
        let chain = "super::".repeat(depth + inner_modules);
        if let Some(at) = code.find(&chain) {
            let names = names_after(&code[at + chain.len()..]);
            let of_layers = names.into_iter().filter(|name| layers.contains_key(name));
            found.extend(of_layers.map(|name| (number, name)));
        }
    }
    found
}

/// How many `super` lead from a file's module to the crate's root.
fn depth_of(relative: &str) -> usize {
    let inside = relative.trim_start_matches("src/").trim_end_matches(".rs");
    inside.split('/').filter(|part| *part != "mod").count()
}

/// The first segments of what follows a path's root: `a::b` or `{a::b, c}`.
fn names_after(rest: &str) -> Vec<String> {
    let identifier = |text: &str| -> String {
        text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
    };
    let Some(group) = rest.strip_prefix('{') else {
        return vec![identifier(rest)];
    };
    let mut names = Vec::new();
    let mut level = 0;
    let mut start = 0;
    for (at, character) in group.char_indices() {
        match character {
            '{' => level += 1,
            '}' if level > 0 => level -= 1,
            ',' | '}' if level == 0 => {
                names.push(identifier(group[start..at].trim_start()));
                start = at + 1;
                if character == '}' {
                    return names;
                }
            }
            _ => {}
        }
    }
    names.push("a group over several lines, which this test does not read".to_owned());
    names
}
