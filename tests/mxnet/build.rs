//! Programs of `c_tests/mxnet`, compiled with the headers of MXNet's wheels.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, LazyLock, Mutex, OnceLock};

use crate::programs::Language::Cpp17;
use crate::programs::{compiler, library_folder, run, sources, text};

/// The two interfaces.
pub const VERSIONS: [&str; 2] = ["1.9.1", "2.0.0b1"];
/// The newer one.
pub const NEWEST: &str = VERSIONS[1];
/// The headers without what they would find of CUDA, BLAS and MKL where MXNet is built.
pub const DEFINITIONS: [&str; 5] = [
    "-DMXNET_USE_CUDA=0",
    "-DMSHADOW_STAND_ALONE=1",
    "-DMSHADOW_USE_CUDA=0",
    "-DMSHADOW_USE_MKL=0",
    "-DMSHADOW_USE_CBLAS=0",
];
/// The headers of MXNet `version`, downloaded if need be.
pub fn headers(version: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mxnet-headers");
    let mut script = Command::new("python3");
    run(script.arg(sources().join("mxnet/headers.py")).arg(&folder).arg(version));
    folder.join(version).join("include")
}

/// A compiler of C++ with those headers.
pub fn compiler_with(version: &str) -> Command {
    let mut command = compiler(Cpp17);
    command.args(DEFINITIONS).arg("-isystem").arg(headers(version));
    command
}

/// What `compiler` makes of `source`, a file of `c_tests/mxnet`, linked against the library and
/// as `options` say; named after `name`.
pub fn build(mut compiler: Command, source: &str, name: &str, options: &[&str]) -> PathBuf {
    let output = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("mxnet-{name}"));
    // Other runs of the tests may be using the program: theirs stays until it is closed.
    let unfinished = output.with_extension(std::process::id().to_string());
    let library = library_folder();
    let library = library.to_str().expect("the build folder's name is UTF-8");
    compiler.arg(sources().join("mxnet").join(source)).args(["-x", "none", "-o"]).arg(&unfinished);
    // Cargo's LD_LIBRARY_PATH has an older copy first: the program's own path wins over it.
    compiler.arg(format!("-Wl,--disable-new-dtags,-rpath,{library}"));
    compiler.args(["-L", library, "-lgenesis", "-pthread", "-ldl"]).args(options);
    let compiled = compiler.output().expect("a C++ compiler is installed");
    assert!(compiled.status.success(), "{source}:\n{}", text(&compiled.stderr));
    fs::rename(&unfinished, &output).expect("the program is there");
    output
}

/// The program `source` for MXNet `version`, compiled once.
pub fn program(source: &'static str, version: &'static str) -> PathBuf {
    type Programs = Mutex<HashMap<(&'static str, &'static str), Arc<OnceLock<PathBuf>>>>;
    static PROGRAMS: LazyLock<Programs> = LazyLock::new(Mutex::default);
    let program = Arc::clone(PROGRAMS.lock().unwrap().entry((source, version)).or_default());
    let name = format!("{}-{version}", source.trim_end_matches(".cpp"));
    program.get_or_init(|| build(compiler_with(version), source, &name, &[])).clone()
}
