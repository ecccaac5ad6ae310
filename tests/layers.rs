//! The house: imports go down the list of layers, and files stay short enough to read.
//!
//! The list is the table in `src/lib.rs`; what a layer may use stands in its last column. The
//! sources are read as text: every `crate::…` in code names a layer, and a chain of `super::`
//! must not leave the layer it stands in.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Imports that the list does not allow, as (file, layer), each with a reason beside it.
const EXCEPTIONS: [(&str, &str); 0] = [];

const LONGEST_FILE_LINES: usize = 500;
/// What a longer file says on its first page, followed by why.
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

/// The reader of sources finds what it should, and no more.
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
    let folders = ["src", "crates", "tests", "benches", "c_tests", "fuzz", "python", "include"];
    for file in folders.iter().flat_map(|folder| {
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

/// Generated files are read where they are made from.
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

/// All files below `folder` with one of `extensions`, but for what builds leave there.
fn files_under(folder: &Path, extensions: &[&str]) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut files = Vec::new();
    for path in entries.map(|entry| entry.unwrap().path()) {
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

/// The layer a file belongs to; `src/lib.rs` to none.
fn layer_of(relative: &str) -> Option<String> {
    let inside = relative.strip_prefix("src/")?;
    let first = inside.split('/').next()?.trim_end_matches(".rs");
    (first != "lib").then(|| first.to_owned())
}

/// What the source names of the crate's modules: (line, module). A chain of `super` counts
/// when it ends at a layer; a test file may stand deeper than its path says.
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
