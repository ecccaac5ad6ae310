//! What packages are made of: the libraries and the program, linked and stripped, and documents.
//!
//! Everything is compiled once, by the build that other commands share; packages differ in who
//! links. [`Compiled::link`] with the machine's own linker binds to the C library of this
//! machine, as `install` needs. Packages for other machines are linked by zig, which knows the
//! symbols of each version of glibc, against [`PORTABLE_GLIBC`]. Then only the last crate of the
//! program, of the preload library and of vLLM's is compiled again; all are small.
//!
//! The static library is one object, in which only the functions of `packaging/libgenesis.map` are
//! visible. Otherwise the names of zstd, of Rust's standard library and of the compiler would
//! collide with those of the program it is linked into. The shared library is linked from that
//! object, with the map as its version script.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use steps::{Outcome, Step, cargo, output, root, run};

use super::dependencies::dependencies;
use super::files::{create, create_empty, failed, remove, scratch, write};
use super::version::{PORTABLE_GLIBC, SOVERSION};
use super::{licences, sbom, tools};
use crate::libraries::{self, Profile};

/// The functions of the library, with the versions that brought them.
const MAP: &str = "packaging/libgenesis.map";
/// The functions of the host that the library has something to stand in for, as in `build.rs`.
const WRAPPED: &str = include_str!("../../../../packaging/wrapped");
/// What the static library leaves to the system, in the linker's order.
pub(super) const SYSTEM_LIBRARIES: [&str; 6] = ["gcc_s", "util", "rt", "pthread", "m", "dl"];

/// Who links.
#[derive(Clone, Copy, Debug)]
pub(super) enum Linker {
    /// The machine's, for the machine.
    Native,
    /// zig, for any Linux with glibc [`PORTABLE_GLIBC`].
    Portable,
}

/// What is the same for all linkers.
#[derive(Debug)]
pub(super) struct Compiled {
    profile: Profile,
    /// The whole library, with only its own functions visible.
    object: PathBuf,
    archive: PathBuf,
    /// The manual, the completions and the documents, as a tree below a prefix.
    shared: PathBuf,
}

/// The files.
#[derive(Debug)]
pub(super) struct Built {
    pub(super) library: PathBuf,
    pub(super) archive: PathBuf,
    pub(super) preload: PathBuf,
    /// vLLM's library.
    pub(super) cumem: PathBuf,
    pub(super) program: PathBuf,
    /// The manual, the completions and the documents, as a tree below a prefix.
    pub(super) shared: PathBuf,
}

/// Compiles the crates of packages, and writes the documents.
pub(super) fn compile(profile: Profile) -> Result<Compiled, String> {
    profile.build()?;
    create(&scratch())?;
    let archive = scratch().join("libgenesis.a");
    let object = object(profile)?;
    pack(&object, &archive)?;
    Ok(Compiled { profile, object, archive, shared: shared(profile)? })
}

impl Compiled {
    /// Links as asked.
    pub(super) fn link(&self, linker: Linker) -> Result<Built, String> {
        let (folder, command) = match linker {
            Linker::Native => (scratch().join("native"), PathBuf::from("cc")),
            Linker::Portable => (scratch().join("portable"), zig()?),
        };
        create(&folder)?;
        let built = Built {
            library: folder.join("libgenesis.so"),
            archive: self.archive.clone(),
            preload: folder.join("libgenesis_preload.so"),
            cumem: folder.join(libraries::CUMEM),
            program: folder.join("genesis"),
            shared: self.shared.clone(),
        };
        link_library(&command, &self.object, &built.library)?;
        if let Linker::Portable = linker {
            // A library without a name of its own would be known by the path it was loaded from.
            let name = "-Clink-arg=-Wl,-soname,libgenesis_preload.so";
            self.relink(&command, "genesis-preload", &["--lib"], &[name])?;
            self.relink(&command, "cumem-allocator", &["--lib"], &[])?;
            self.profile.name_cumem()?;
            self.relink(&command, "genesis-cli", &["--bin", "genesis"], &[])?;
        }
        let folder = self.profile.folder();
        for built in [&built.preload, &built.cumem, &built.program] {
            let name = built.file_name().unwrap_or_default();
            fs::copy(folder.join(name), built).map_err(failed(built))?;
        }
        let mut strip = Step::new("strip", &["--strip-unneeded"]);
        strip.extend([&built.library, &built.preload, &built.cumem, &built.program]);
        run(&strip)?;
        Ok(built)
    }

    /// Links `package`, which is compiled already, once more.
    fn relink(&self, command: &Path, package: &str, target: &[&str], options: &[&str]) -> Outcome {
        let mut link = cargo(&["rustc", self.profile.option(), "--package", package]);
        link.extend(target);
        link.extend(["--".to_owned(), format!("-Clinker={}", command.display())]);
        link.extend(options);
        run(&link)
    }
}

/// Writes the manual, the completions and the documents again.
fn shared(profile: Profile) -> Result<PathBuf, String> {
    let folder = scratch().join("shared");
    create_empty(&folder)?;
    let example = ["run", "--quiet", profile.option(), "--package", "genesis-cli"];
    let mut write_pages = cargo(&example);
    write_pages.extend(["--example", "package_files", "--"]);
    write_pages.extend([&folder]);
    run(&write_pages)?;
    let documents = folder.join("share/doc/genesis");
    create(&documents)?;
    for name in ["LICENSE-APACHE", "LICENSE-MIT", "CHANGELOG.md"] {
        let copy = documents.join(name);
        fs::copy(root().join(name), &copy).map_err(failed(&copy))?;
    }
    let crates = dependencies()?;
    write(&documents.join(licences::FILE_NAME), &licences::text(&crates)?)?;
    write(&documents.join(sbom::FILE_NAME), &sbom::text(&crates)?)?;
    Ok(folder)
}

/// The names in the map, which are those that end a line with a semicolon.
pub(crate) fn exported() -> Result<Vec<String>, String> {
    let map = root().join(MAP);
    let map = fs::read_to_string(&map).map_err(failed(&map))?;
    let names = map.lines().filter_map(|line| line.trim().strip_suffix(';'));
    Ok(names.filter(|name| !name.contains(['*', '}'])).map(str::to_owned).collect())
}

/// One object with what the exported functions need, in which nothing else is visible.
fn object(profile: Profile) -> Result<PathBuf, String> {
    let (whole, object) = (scratch().join("whole.o"), scratch().join("genesis.o"));
    let names = exported()?;
    let mut join = Step::new("ld", &["-r", "--gc-sections", "--force-group-allocation"]);
    join.extend(names.iter().map(|name| format!("--undefined={name}")));
    join.extend(WRAPPED.lines().map(|name| format!("--wrap={name}")));
    join.extend(["--output".as_ref(), whole.as_path()]);
    join.extend([profile.folder().join("libgenesis_static.a")]);
    output(&join)?;
    // Rust's standard library also carries LLVM's own form of itself, which nothing reads here.
    let sections = ["--remove-section=.llvmbc", "--remove-section=.llvmcmd"];
    let mut hide = Step::new("objcopy", &["--strip-debug"]);
    hide.extend(sections);
    hide.extend(names.iter().map(|name| format!("--keep-global-symbol={name}")));
    hide.extend([&whole, &object]);
    output(&hide)?;
    fs::remove_file(&whole).map_err(failed(&whole))?;
    Ok(object)
}

fn pack(object: &Path, archive: &Path) -> Outcome {
    remove(archive)?;
    let mut pack = Step::new("ar", &["rcsD"]);
    pack.extend([archive, object]);
    run(&pack)
}

fn link_library(command: &Path, object: &Path, library: &Path) -> Outcome {
    let options = ["-shared", "-Wl,--gc-sections,--as-needed", "-Wl,-z,relro,-z,now,-z,defs"];
    let mut link = Step::new(command, &options);
    link.extend([format!("-Wl,-soname,libgenesis.so.{SOVERSION}")]);
    link.extend([format!("-Wl,--version-script={MAP}")]);
    link.extend(["-o".as_ref(), library, object]);
    link.extend(SYSTEM_LIBRARIES.map(|name| format!("-l{name}")));
    run(&link)
}

/// A script that links as zig does, for [`PORTABLE_GLIBC`].
fn zig() -> Result<PathBuf, String> {
    let python = tools::python()?;
    let unwinder = output(&Step::new("cc", &["-print-file-name=libgcc_s.so.1"]))?;
    let target = format!("{}-linux-gnu.{PORTABLE_GLIBC}", std::env::consts::ARCH);
    let (python, cache) = (python.display(), scratch().join("zig"));
    // zig has an unwinder of its own, which cannot continue what the system's has begun. PyTorch's
    // exceptions pass through the library, so it must use the system's, as everything else does.
    let script = format!(
        "#!/bin/sh\n\
         for argument; do\n\
         \tshift\n\
         \tcase $argument in -lgcc_s) argument='{}' ;; esac\n\
         \tset -- \"$@\" \"$argument\"\n\
         done\n\
         export ZIG_GLOBAL_CACHE_DIR='{}' ZIG_LOCAL_CACHE_DIR='{}'\n\
         exec '{python}' -m ziglang cc -target {target} \"$@\"\n",
        unwinder.trim(),
        cache.display(),
        cache.display(),
    );
    let path = scratch().join("zig-cc");
    write(&path, &script)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).map_err(failed(&path))?;
    Ok(path)
}
