//! What the library shows to the world: its symbols, its header, its version.
//!
//! The header is made by the build from `src/ffi`; these tests read it as a C programmer
//! would, and hold it against the library and against the sources.

#[path = "exports/layout.rs"]
mod layout;
#[allow(dead_code, reason = "only the compiler is used")]
#[path = "c_interface/programs.rs"]
mod programs;

use std::collections::BTreeSet;
use std::ffi::CStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use genesis::base::Status;
use genesis::config::LogLevel;
use genesis::ffi::library::{genesis_status_text_get, genesis_version_get};

type Names = BTreeSet<String>;

/// What is exported under a name that somebody else has fixed, for nobody to call by the header:
/// NVTX looks for its function in the library that `NVTX_INJECTION64_PATH` names; the others are
/// torch_memory_saver's.
const NAMED_BY_OTHERS: [&str; 20] = [
    "InitializeInjectionNvtx2",
    "tms_set_current_tag",
    "tms_get_current_tag",
    "tms_set_interesting_region",
    "tms_get_interesting_region",
    "tms_set_enable_cpu_backup",
    "tms_get_enable_cpu_backup",
    "tms_set_cpu_backup_backend",
    "tms_get_cpu_backup_backend",
    "tms_set_enable_disk_backup",
    "tms_get_enable_disk_backup",
    "tms_set_disk_backup_dir",
    "tms_pause",
    "tms_resume",
    "set_memory_margin_bytes",
    "tms_set_retain_cpu_backup",
    "tms_get_retain_cpu_backup",
    "tms_get_cpu_backup_pointer",
    "tms_torch_malloc",
    "tms_torch_free",
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The library that cargo has built for this test.
fn library() -> PathBuf {
    env::current_exe().unwrap().with_file_name("libgenesis.so")
}

/// The header without its comments.
fn header() -> String {
    let text = fs::read_to_string(root().join("include/genesis.h")).unwrap();
    let mut code = String::new();
    let mut rest = text.as_str();
    while let Some((before, comment)) = rest.split_once("/*") {
        code.push_str(before);
        rest = comment.split_once("*/").expect("a comment ends").1;
    }
    code.push_str(rest);
    let lines = code.lines().map(|line| line.split("//").next().unwrap_or_default());
    lines.collect::<Vec<_>>().join("\n")
}

/// The functions that the header declares with C linkage.
fn declared() -> Names {
    let header = header();
    let (_, functions) = header.split_once("extern \"C\" {").expect("the header has functions");
    let (functions, _) = functions.split_once("}").expect("and they end");
    names(functions, |after| after.starts_with('('))
}

fn declared_or_named_by_others() -> Names {
    let mut names = declared();
    names.extend(NAMED_BY_OTHERS.map(str::to_owned));
    names
}

/// The words of `text` that start with `genesis_` and are followed as asked.
fn names(text: &str, is_followed: impl Fn(&str) -> bool) -> Names {
    let is_word = |character: char| character.is_ascii_alphanumeric() || character == '_';
    let starts = text.match_indices("genesis_").map(|(start, _)| start);
    starts
        .filter(|&start| !text[..start].ends_with(is_word))
        .filter_map(|start| {
            let end = text[start..].find(|character| !is_word(character))? + start;
            is_followed(&text[end..]).then(|| text[start..end].to_owned())
        })
        .collect()
}

/// The functions that the sources export: all in `src/ffi`, except NVTX's in `src/instance`.
fn exported_by_sources() -> Names {
    let mut found = Names::new();
    let folders = ["src/ffi", "src/ffi/torch", "src/instance"].map(|folder| root().join(folder));
    let entries = folders.iter().flat_map(|folder| fs::read_dir(folder).unwrap());
    let files = entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_file());
    for file in files {
        let source = fs::read_to_string(file).unwrap();
        for item in source.split("#[unsafe(no_mangle)]").skip(1) {
            let (signature, _) = item.split_once('(').expect("a function has arguments");
            found.extend(signature.split_whitespace().last().map(str::to_owned));
        }
    }
    found
}

#[test]
fn the_library_exports_what_the_header_declares_and_nothing_else() {
    let output = Command::new("nm")
        .args(["--dynamic", "--defined-only", "--format=posix"])
        .arg(library())
        .output()
        .expect("nm is installed: it is of binutils, as every C compiler's linker");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let listing = String::from_utf8(output.stdout).unwrap();
    let exported: Names =
        listing.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect();
    assert_eq!(exported, declared_or_named_by_others());
    let is_own = |name: &String| name.starts_with("genesis_");
    assert!(exported.iter().all(|name| is_own(name) || NAMED_BY_OTHERS.contains(&name.as_str())));
    assert!(exported.contains("genesis_malloc") && exported.len() > 20, "{exported:?}");
}

#[test]
fn the_header_declares_what_the_sources_export() {
    assert_eq!(declared_or_named_by_others(), exported_by_sources());
}

/// Packages export what this list names; a function that is not on it would be missing there.
#[test]
fn the_map_of_versions_names_what_is_exported() {
    let map = fs::read_to_string(root().join("packaging/libgenesis.map")).unwrap();
    let (_, map) = map.split_once("*/").expect("it opens with a comment");
    let lines = map.lines().filter_map(|line| line.trim().strip_suffix(';'));
    let named: Names = lines.filter(|name| !name.contains(['*', '}'])).map(str::to_owned).collect();
    assert_eq!(named, declared_or_named_by_others(), "see packaging/libgenesis.map");
}

/// The members of an enumeration of the header, with their numbers.
fn members(enumeration: &str) -> Vec<(String, usize)> {
    let header = header();
    let (before, _) = header.split_once(&format!("}} {enumeration};")).expect("it is declared");
    let (_, body) = before.rsplit_once("typedef enum {").expect("it is an enumeration");
    let mut next = 0;
    let members = body.split(',').map(str::trim).filter(|member| !member.is_empty());
    members
        .map(|member| {
            let (name, number) = member.split_once(" = ").unwrap_or((member, ""));
            let number = if number.is_empty() { next } else { number.parse().unwrap() };
            next = number + 1;
            (name.to_owned(), number)
        })
        .collect()
}

/// `OutOfMemory` as C has it: `OUT_OF_MEMORY`.
fn screaming(name: &str) -> String {
    let mut result = String::new();
    for character in name.chars() {
        if character.is_ascii_uppercase() && !result.is_empty() {
            result.push('_');
        }
        result.push(character.to_ascii_uppercase());
    }
    result
}

#[test]
fn numbers_of_the_header_are_those_of_the_library() {
    let statuses = Status::ALL.map(|status| {
        (format!("GENESIS_STATUS_{}", screaming(&format!("{status:?}"))), status as usize)
    });
    assert_eq!(members("genesis_status"), statuses);
    let levels: Vec<_> = LogLevel::ALL
        .iter()
        .map(|level| {
            (format!("GENESIS_LOG_LEVEL_{}", screaming(&format!("{level:?}"))), *level as usize)
        })
        .collect();
    assert_eq!(members("genesis_log_level"), levels);
}

/// Statuses once published keep their numbers: a program was compiled with them.
#[test]
fn numbers_of_statuses_never_change() {
    let published = [
        (0, "success"),
        (1, "invalid argument"),
        (2, "out of memory"),
        (3, "no such device"),
        (4, "pointer not allocated by genesis"),
        (5, "pointer already freed"),
        (6, "invalid configuration"),
        (7, "driver unavailable"),
        (8, "driver call failed"),
        (9, "not supported"),
        (10, "not usable in a forked child"),
        (11, "internal error"),
        (12, "file cannot be written"),
        (13, "busy"),
        (14, "limit reached"),
        (15, "out of host memory"),
    ];
    assert_eq!(published.len(), Status::ALL.len(), "add new statuses to this list");
    for (number, text) in published {
        // SAFETY: the function returns a static text.
        let given = unsafe { CStr::from_ptr(genesis_status_text_get(number)) };
        assert_eq!(given.to_str(), Ok(text));
    }
}

#[test]
fn the_version_is_cargos() {
    // SAFETY: the function returns a static text.
    let version = unsafe { CStr::from_ptr(genesis_version_get()) };
    assert_eq!(version.to_str(), Ok(env!("CARGO_PKG_VERSION")));
}

/// What the header says in prose about functions, it says about functions that exist.
#[test]
fn prose_names_functions_that_exist() {
    let declared = declared();
    let code = header();
    let headers =
        ["allocator", "memory_resource", "mxnet"].map(|name| format!("include/genesis/{name}.hpp"));
    for file in headers.iter().map(String::as_str).chain(["include/genesis.h"]) {
        let text = fs::read_to_string(root().join(file)).unwrap();
        for name in names(&text, |_| true) {
            // A function, a struct, a pointer type, a type of function.
            let types = [format!(" {name};"), format!("*{name};"), format!("(*{name})")];
            let is_type = types.iter().any(|declaration| code.contains(declaration));
            assert!(is_type || declared.contains(&name), "{file} speaks of {name}");
        }
    }
}
