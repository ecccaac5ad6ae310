//! What packages are made of: the libraries and the program, linked and stripped.
//!
//! Everything is compiled once, by the release build that other commands share; what differs is
//! who links. The machine's own linker binds to the C library of this machine, which is right for
//! `install`. Packages that go elsewhere are linked by zig, which knows the symbols of each version
//! of glibc, against [`PORTABLE_GLIBC`]; nothing is compiled again but the last crate of the
//! program and of the preload library, which are a few lines each or small.
//!
//! The static library is one object, in which only the functions of `packaging/libgenesis.map` are
//! visible: the names of zstd, of Rust's standard library and of the compiler would else meet those
//! of the program it is linked into. The shared library is linked from that object, with the map
//! as its version script.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use crate::steps::{self, Outcome, Step, output, root, run};

/// What the release build of packages is asked for.
const PACKAGES: [&str; 4] = ["genesis", "genesis-cli", "genesis-preload", "genesis-static"];
/// The oldest C library that portable packages run with: that of PyTorch's own wheels.
pub(super) const PORTABLE_GLIBC: &str = "2.28";
/// The functions of the library, with the versions that brought them.
const MAP: &str = "packaging/libgenesis.map";
/// What the static library leaves to the system, in the linker's order.
pub(super) const SYSTEM_LIBRARIES: [&str; 6] = ["gcc_s", "util", "rt", "pthread", "m", "dl"];
/// Releases of one number can stand in for each other; programs are linked with it.
pub(super) const SOVERSION: &str = "0";
/// The version of everything in the workspace.
pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Who links.
#[derive(Clone, Copy, Debug)]
pub(super) enum Linker {
    /// The machine's, for the machine.
    Native,
    /// zig, for any Linux with glibc [`PORTABLE_GLIBC`].
    Portable,
}

/// The files.
#[derive(Debug)]
pub(super) struct Built {
    pub(super) library: PathBuf,
    pub(super) archive: PathBuf,
    pub(super) preload: PathBuf,
    pub(super) program: PathBuf,
    /// The manual and the completions, as a tree below a prefix.
    pub(super) pages: PathBuf,
}

/// Where packages are put together.
pub(super) fn scratch() -> PathBuf {
    steps::target_folder().join("packages")
}

/// Compiles, and links as asked.
pub(super) fn build(linker: Linker) -> Result<Built, String> {
    compile(&[])?;
    let folder = scratch().join(match linker {
        Linker::Native => "native",
        Linker::Portable => "portable",
    });
    create(&folder)?;
    let built = Built {
        library: folder.join("libgenesis.so"),
        archive: scratch().join("libgenesis.a"),
        preload: folder.join("libgenesis_preload.so"),
        program: folder.join("genesis"),
        pages: scratch().join("pages"),
    };
    pages(&built.pages)?;
    let object = object()?;
    archive(&object, &built.archive)?;
    let command = match linker {
        Linker::Native => PathBuf::from("cc"),
        Linker::Portable => zig()?,
    };
    link(&command, &object, &built.library)?;
    let release = steps::target_folder().join("release");
    if let Linker::Portable = linker {
        // A library without a name of its own would be known by the path it was loaded from.
        let name = "-Clink-arg=-Wl,-soname,libgenesis_preload.so";
        relink(&command, "genesis-preload", &["--lib"], &[name])?;
        relink(&command, "genesis-cli", &["--bin", "genesis"], &[])?;
    }
    for built in [&built.preload, &built.program] {
        let name = built.file_name().unwrap_or_default();
        fs::copy(release.join(name), built).map_err(failed(built))?;
    }
    let mut strip = Step::new("strip", &["--strip-unneeded"]);
    strip.extend([&built.library, &built.preload, &built.program]);
    run(&strip)?;
    Ok(built)
}

/// Compiles the crates of packages and `others`, in one go, so that they share what both use.
pub(super) fn compile(others: &[&str]) -> Outcome {
    let mut compile = crate::cargo(&["build", "--release"]);
    compile.extend(PACKAGES.iter().chain(others).flat_map(|package| ["--package", package]));
    run(&compile)
}

/// Writes the manual and the completions anew.
fn pages(folder: &Path) -> Outcome {
    remove(folder)?;
    let example = ["run", "--quiet", "--release", "--package", "genesis-cli"];
    let mut write = crate::cargo(&example);
    write.extend(["--example", "package_files", "--"]);
    write.extend([folder]);
    run(&write)
}

/// The names in the map, which are those that end a line with a semicolon.
fn exported() -> Result<Vec<String>, String> {
    let map = root().join(MAP);
    let map = fs::read_to_string(&map).map_err(failed(&map))?;
    let names = map.lines().filter_map(|line| line.trim().strip_suffix(';'));
    Ok(names.filter(|name| !name.contains(['*', '}'])).map(str::to_owned).collect())
}

/// One object with what the exported functions need, in which nothing else is visible.
fn object() -> Result<PathBuf, String> {
    let (whole, object) = (scratch().join("whole.o"), scratch().join("genesis.o"));
    let names = exported()?;
    let mut join = Step::new("ld", &["-r", "--gc-sections", "--force-group-allocation"]);
    join.extend(names.iter().map(|name| format!("--undefined={name}")));
    join.extend(["--output".as_ref(), whole.as_path()]);
    join.extend([steps::target_folder().join("release/libgenesis_static.a")]);
    output(&join)?;
    // Rust's standard library carries LLVM's own form of itself, which is of no use joined.
    let sections = ["--remove-section=.llvmbc", "--remove-section=.llvmcmd"];
    let mut hide = Step::new("objcopy", &["--strip-debug"]);
    hide.extend(sections);
    hide.extend(names.iter().map(|name| format!("--keep-global-symbol={name}")));
    hide.extend([&whole, &object]);
    output(&hide)?;
    fs::remove_file(&whole).map_err(failed(&whole))?;
    Ok(object)
}

fn archive(object: &Path, archive: &Path) -> Outcome {
    remove(archive)?;
    let mut pack = Step::new("ar", &["rcsD"]);
    pack.extend([archive, object]);
    run(&pack)
}

fn link(command: &Path, object: &Path, library: &Path) -> Outcome {
    let options = ["-shared", "-Wl,--gc-sections,--as-needed", "-Wl,-z,relro,-z,now,-z,defs"];
    let mut link = Step::new(command, &options);
    link.extend([format!("-Wl,-soname,libgenesis.so.{SOVERSION}")]);
    link.extend([format!("-Wl,--version-script={MAP}")]);
    link.extend(["-o".as_ref(), library, object]);
    link.extend(SYSTEM_LIBRARIES.map(|name| format!("-l{name}")));
    run(&link)
}

/// Links `package`, which is compiled already, once more.
fn relink(command: &Path, package: &str, target: &[&str], options: &[&str]) -> Outcome {
    let mut link = crate::cargo(&["rustc", "--release", "--package", package]);
    link.extend(target);
    link.extend(["--".to_owned(), format!("-Clinker={}", command.display())]);
    link.extend(options);
    run(&link)
}

/// A linker for Rust that is zig's, for [`PORTABLE_GLIBC`].
fn zig() -> Result<PathBuf, String> {
    let python = super::tools::python()?;
    let unwinder = output(&Step::new("cc", &["-print-file-name=libgcc_s.so.1"]))?;
    let target = format!("{}-linux-gnu.{PORTABLE_GLIBC}", std::env::consts::ARCH);
    let (python, cache) = (python.display(), scratch().join("zig"));
    // zig has an unwinder of its own, which cannot read what the system's has begun: exceptions
    // of PyTorch pass through the library, so it must use the one that everybody uses.
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
    fs::write(&path, script).map_err(failed(&path))?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).map_err(failed(&path))?;
    Ok(path)
}

/// A line on what could not be done with `path`.
pub(super) fn failed(path: &Path) -> impl Fn(std::io::Error) -> String {
    let path = path.display().to_string();
    move |error| format!("{path}: {error}")
}

/// Makes a folder and those above it.
pub(super) fn create(folder: &Path) -> Outcome {
    fs::create_dir_all(folder).map_err(failed(folder))
}

/// Removes a file or a folder, if there is one.
pub(super) fn remove(path: &Path) -> Outcome {
    let result = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    match result {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(failed(path)(error)),
        _ => Ok(()),
    }
}
