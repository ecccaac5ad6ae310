//! Generates the stubs: a function for each symbol of `symbols/*.txt` that the sources do not
//! define themselves. The lists define what a stub does (see `src/stubs.rs`):
//! - `refuse NAME`: prints the name and returns the list's `status`;
//! - `succeed NAME`: returns success;
//! - `create NAME`: stores a handle at the first argument and returns success.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() {
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    println!("cargo::rerun-if-changed=src");
    println!("cargo::rerun-if-changed=symbols");
    let mut defined = BTreeSet::new();
    collect_defined(&root.join("src"), &mut defined);
    let mut generated = String::new();
    for list in sorted_files(&root.join("symbols")) {
        let text = fs::read_to_string(&list).expect("a readable list");
        let mut status = None;
        for line in text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
            let (verb, name) = line.split_once(' ').expect("two words");
            if verb == "status" {
                status = Some(name);
            } else if defined.insert(name.to_owned()) {
                generated.push_str(&stub(verb, name, status.expect("a status first")));
            }
        }
    }
    let out = PathBuf::from(env::var("OUT_DIR").expect("cargo sets it"));
    fs::write(out.join("stubs.rs"), generated).expect("a writable folder");
}

/// The source of one stub.
fn stub(verb: &str, name: &str, status: &str) -> String {
    let mut source = String::new();
    let head = "#[unsafe(no_mangle)]\n";
    match verb {
        "refuse" => writeln!(
            source,
            "{head}extern \"C\" fn {name}() -> c_int {{\n    refuse({name:?}, {status})\n}}"
        ),
        "succeed" => {
            writeln!(source, "{head}extern \"C\" fn {name}() -> c_int {{ succeed({name:?}) }}")
        }
        "create" => writeln!(
            source,
            "{head}unsafe extern \"C\" fn {name}(place: *mut usize) -> c_int {{\n\
             // SAFETY: as `create` demands, by the library's own contract.\n\
             unsafe {{ create({name:?}, place) }} }}"
        ),
        other => panic!("{name}: no stub can {other}"),
    }
    .expect("writing to a string");
    source
}

/// Adds the names of all exported functions in the sources below `folder`.
fn collect_defined(folder: &Path, names: &mut BTreeSet<String>) {
    for path in sorted_files(folder) {
        if path.is_dir() {
            collect_defined(&path, names);
            continue;
        }
        let text = fs::read_to_string(&path).expect("a readable source");
        for rest in text.split("extern \"C\" fn ").skip(1) {
            let end = rest.find(|letter: char| !letter.is_alphanumeric() && letter != '_');
            names.insert(rest[..end.unwrap_or(rest.len())].to_owned());
        }
    }
}

fn sorted_files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a readable folder");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    paths
}
