//! `cargo xtask interfaces`: what programs were linked with does not change. libabigail compares
//! the interfaces of the libraries with their descriptions in `packaging/interfaces`, which
//! `--write` makes anew at a release. It objects to functions that are gone, and to types, members
//! and numbers that are others.
//!
//! Of libgenesis.so a picture is compared: the functions of the header with empty bodies, compiled
//! by a C compiler and linked with the map of versions. Rust's debug information does not say where
//! a type is declared, so what programs know could not be told from what is the library's own.
//! `tests/exports.rs` holds the library itself against the header and the map: names, layouts,
//! numbers. The functions of libgenesis_preload.so have the types of CUDA's own; only their names
//! are compared.
//!
//! Allowed are new functions, new types, new numbers, and new members at the end of structs that
//! begin with `struct_size`, by which the library knows how much a program has. libabigail's own
//! exception for these (`has_data_member_inserted_at`) also allows other types of members. So the
//! picture has a function for each of their members: its result is of the member's type, and its
//! argument as large as the member's offset. Of the structs themselves nothing is compared.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;

use steps::{Outcome, Step, root, run, target_folder};

use super::{Left, folder};
use crate::{generated, packages, prerequisites, suite};

/// The descriptions.
const DESCRIPTIONS: &str = "packaging/interfaces";
/// What is not described: paths and lines, which change without the interface, and the processor.
const WITHOUT: [&str; 5] = [
    "--no-corpus-path",
    "--no-comp-dir-path",
    "--no-show-locs",
    "--no-architecture",
    "--no-elf-needed",
];
/// The structs that may grow, in libabigail's form; a file beside the pictures.
const EXCEPTIONS: &str = "may_grow.ini";
/// What the functions for their members begin with, and the linker's script that exports them.
const MEMBER: &str = "genesis_member_";
const MEMBERS_MAP: &str = "MEMBERS { global: genesis_member_*; };\n";
/// Between these the header declares the functions.
const OPENING: &str = "extern \"C\" {\n#endif // __cplusplus\n";
const CLOSING: &str = "#ifdef __cplusplus\n}  // extern \"C\"";

/// Compares the interfaces of the libraries with those of the last release (needs libabigail)
#[derive(Debug, Args)]
pub(crate) struct InterfacesArguments {
    /// Write the descriptions anew, at a release
    #[arg(long)]
    write: bool,
}

/// Compares the interfaces with their descriptions, or writes these.
pub(crate) fn interfaces(arguments: &InterfacesArguments) -> Outcome {
    prerequisites::install(prerequisites::OF_THE_INTERFACES)?;
    run(&suite::build_programs())?;
    let folder = folder("interfaces")?;
    let header = fs::read_to_string(root().join(generated::HEADER))
        .map_err(|error| format!("{}: {error}", generated::HEADER))?;
    write(&folder.join(EXCEPTIONS), &exceptions(&header))?;
    for built in [library(&header, &folder)?, preload(&folder)?] {
        let now = built.with_extension("abi");
        let released = root().join(DESCRIPTIONS).join(now.file_name().unwrap_or_default());
        describe(&built, if arguments.write { &released } else { &now })?;
        if !arguments.write {
            compare(&released, &now)?;
        }
    }
    Ok(())
}

/// The same as a part of the campaign.
pub(super) fn compare_all(left: &mut Left) -> Outcome {
    if left.lacks("interfaces", prerequisites::install(prerequisites::OF_THE_INTERFACES)) {
        return Ok(());
    }
    interfaces(&InterfacesArguments { write: false })
}

fn describe(built: &Path, description: &Path) -> Outcome {
    let mut describe = Step::new("abidw", &WITHOUT);
    describe.extend(["--load-all-types", "--type-id-style", "hash", "--out-file"]);
    describe.extend([description, built]);
    run(&describe)
}

fn compare(released: &Path, now: &Path) -> Outcome {
    let mut compare = Step::new("abidiff", &["--no-added-syms", "--non-reachable-types"]);
    compare.extend([Path::new("--suppressions"), &now.with_file_name(EXCEPTIONS), released, now]);
    run(&compare).map_err(|error| format!("{error}: the interface has changed"))
}

/// The picture of libgenesis.so, as `header` declares it.
fn library(header: &str, folder: &Path) -> Result<PathBuf, String> {
    let [source, map, picture] =
        ["libgenesis.c", "members.map", "libgenesis.so"].map(|name| folder.join(name));
    write(&source, &definitions(header, &packages::exported()?)?)?;
    write(&map, MEMBERS_MAP)?;
    // With types that no function takes, too: many arguments are plain numbers in C.
    let options = ["-std=c99", "-g", "-fno-eliminate-unused-debug-types", "-shared", "-fPIC"];
    let mut compile = Step::new("cc", &options);
    compile.extend(["-Iinclude", "-Wl,--version-script=packaging/libgenesis.map"]);
    compile.extend([format!("-Wl,--version-script={}", map.display())]);
    compile.extend([Path::new("-o"), &picture, &source]);
    run(&compile)?;
    Ok(picture)
}

/// The names of libgenesis_preload.so.
fn preload(folder: &Path) -> Result<PathBuf, String> {
    let name = "libgenesis_preload.so";
    let (built, names) = (target_folder().join("debug").join(name), folder.join(name));
    let mut strip = Step::new("objcopy", &["--strip-debug"]);
    strip.extend([&built, &names]);
    run(&strip)?;
    Ok(names)
}

/// A C source with each function of `header`, and each other name that is `exported`.
fn definitions(header: &str, exported: &[String]) -> Result<String, String> {
    let functions = header.split_once(OPENING).and_then(|(_, rest)| rest.split_once(CLOSING));
    let (functions, _) = functions.ok_or("the header declares no functions")?;
    let mut source = "#include \"genesis.h\"\n#undef genesis_free\n".to_owned();
    for (name, members) in may_grow(header) {
        for member in members {
            // Writing to a string cannot fail.
            let _ = writeln!(
                source,
                "__typeof__((({name} *)0)->{member}) {MEMBER}{name}_{member}(\
                 char (*at)[offsetof({name}, {member}) + 1]) {{ __builtin_trap(); }}"
            );
        }
    }
    let lines = functions.lines().filter(|line| !line.trim_start().starts_with("//"));
    for line in lines {
        source.push_str(&line.replace(';', " { __builtin_trap(); }"));
        source.push('\n');
    }
    for name in exported {
        if !source.contains(&format!("{name}(")) {
            let _ = writeln!(source, "void {name}(void) {{ __builtin_trap(); }}");
        }
    }
    Ok(source)
}

/// The structs of `header` that begin with `struct_size`: their names, and those of their members.
fn may_grow(header: &str) -> Vec<(&str, Vec<&str>)> {
    let structs = header.split("typedef struct {").skip(1);
    let structs = structs.filter_map(|text| {
        let (members, rest) = text.split_once("\n} ")?;
        let lines = members.lines().filter(|line| !line.trim_start().starts_with("//"));
        let members =
            lines.filter_map(|line| line.strip_suffix(';')?.split([' ', '*']).next_back());
        Some((rest.split_once(';')?.0, members.collect::<Vec<_>>()))
    });
    structs.filter(|(_, members)| members.first() == Some(&"struct_size")).collect()
}

/// What libabigail is not to compare.
fn exceptions(header: &str) -> String {
    let rule = |(name, _): (&str, _)| format!("[suppress_type]\nname = {name}\n\n");
    may_grow(header).into_iter().map(rule).collect()
}

fn write(path: &Path, text: &str) -> Outcome {
    fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "typedef struct {\n    // Its size;\n    size_t struct_size;\n} genesis_a;\n\
        typedef struct {\n    int b;\n} genesis_b;\n#ifdef __cplusplus\nextern \"C\" {\n\
        #endif // __cplusplus\n// Frees; at once.\nvoid genesis_free(void *ptr,\n    int of);\n\
        #ifdef __cplusplus\n}  // extern \"C\"\n";

    #[test]
    fn each_function_is_defined_once() {
        let exported = ["genesis_free".to_owned(), "tms_pause".to_owned()];
        let source = definitions(HEADER, &exported).unwrap();
        let (_, functions) = source.split_once("#undef genesis_free\n").unwrap();
        assert_eq!(
            functions,
            "__typeof__(((genesis_a *)0)->struct_size) genesis_member_genesis_a_struct_size(\
             char (*at)[offsetof(genesis_a, struct_size) + 1]) { __builtin_trap(); }\n\
             void genesis_free(void *ptr,\n    int of) { __builtin_trap(); }\n\
             void tms_pause(void) { __builtin_trap(); }\n"
        );
        assert!(definitions("", &exported).is_err());
    }

    #[test]
    fn structs_that_know_their_size_may_grow() {
        assert_eq!(may_grow(HEADER), [("genesis_a", vec!["struct_size"])]);
        assert_eq!(exceptions(HEADER), "[suppress_type]\nname = genesis_a\n\n");
    }
}
