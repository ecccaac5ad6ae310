//! C and C++ programs as tests: compiled with every warning an error, linked against the
//! library that cargo has built for this very test, and run as processes of their own.
//!
//! The library is the one beside the test program: under `cargo test` it stands in
//! `target/<profile>/deps`, where the copy one folder up may be older.
//!
//! Nightly every program is under UndefinedBehaviorSanitizer, which takes a third longer to compile;
//! those of `c_interface.rs` are on every change.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::{env, fs};

/// Set to 1 at night; `support/tier.rs`, which not every test has, knows it too.
const AT_NIGHT: &str = "TEST_GENESIS_IN_FULL";
/// Has the compiler check that a program does nothing undefined, and end it where it does, by a
/// signal: the library that would say more brings a C++ runtime into programs that are to have none.
const NOTHING_UNDEFINED: [&str; 2] = ["-fsanitize=undefined", "-fsanitize-undefined-trap-on-error"];

/// After this many seconds a program has not ended: it hangs.
const TIME_LIMIT_SECONDS: &str = "240";
/// What a program gets that did not end in time.
const TIMED_OUT: i32 = 124;

/// The language a source is compiled as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// `-std=c99`
    C99,
    /// `-std=c++17`
    Cpp17,
}

impl Language {
    /// The standard, as compilers call it.
    fn standard(self) -> &'static str {
        match self {
            Self::C99 => "c99",
            Self::Cpp17 => "c++17",
        }
    }
}

/// The folder with the C sources.
pub fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("c_tests")
}

/// The folder of the library under test.
pub fn library_folder() -> PathBuf {
    let program = env::current_exe().expect("a running program has a path");
    let folder = program.parent().expect("a program is in a folder");
    assert!(folder.join("libgenesis.so").is_file(), "no libgenesis.so in {}", folder.display());
    folder.to_owned()
}

/// The compiler for `language`, as the `cc` crate finds it, with warnings and our header.
pub fn compiler(language: Language) -> Command {
    // Tests run where they are compiled for.
    let target = format!("{}-unknown-linux-gnu", env::consts::ARCH);
    let tool = cc::Build::new()
        .target(&target)
        .host(&target)
        .opt_level(1)
        // Enough for backtraces. Variables and types take a fifth of the time to compile.
        .flag("-g1")
        .cpp(language == Language::Cpp17)
        .std(language.standard())
        .warnings(true)
        .extra_warnings(true)
        .warnings_into_errors(true)
        .flag("-Wpedantic")
        .cargo_metadata(false)
        .emit_rerun_if_env_changed(false)
        .include(Path::new(env!("CARGO_MANIFEST_DIR")).join("include"))
        .get_compiler();
    let mut command = tool.to_command();
    if language == Language::Cpp17 {
        // Whatever the sources are called.
        command.args(["-x", "c++"]);
    }
    if env::var_os(AT_NIGHT).is_some_and(|value| value == "1") {
        command.args(NOTHING_UNDEFINED);
    }
    command
}

/// Compiles `source`, a path below `c_tests`, and links it against the library if so asked.
/// Returns the path of the program, which is another for each `prefix`.
pub fn compile(prefix: &str, source: &str, language: Language, linked: bool) -> PathBuf {
    compile_by(compiler(language), prefix, source, language, linked)
}

/// The same with a `compiler` of `language` that has been told more.
pub fn compile_by(
    mut compiler: Command,
    prefix: &str,
    source: &str,
    language: Language,
    linked: bool,
) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let stem = Path::new(source).file_stem().and_then(OsStr::to_str).expect("a source's name");
    let program = folder.join(format!("{prefix}-{stem}-{}", language.standard()));
    // Other runs of the tests may be using the program: theirs stays until it is closed.
    let unfinished = program.with_extension(std::process::id().to_string());
    let library = library_folder();
    compiler.arg(sources().join(source)).args(["-x", "none", "-o"]).arg(&unfinished);
    if linked {
        let library_path = library.to_str().expect("the build folder's name is UTF-8");
        // Cargo's LD_LIBRARY_PATH has the older copy first: the program's own path wins over it.
        let run_path = format!("-Wl,--disable-new-dtags,-rpath,{library_path}");
        compiler.args(["-L", library_path, "-lgenesis", &run_path]);
    }
    compiler.args(["-pthread", "-ldl"]);
    let output = compiler.output().expect("a C compiler is installed");
    assert!(output.status.success(), "{source} does not compile:\n{}", text(&output.stderr));
    fs::rename(&unfinished, &program).expect("the program is there");
    program
}

/// A command line that runs `program` under a time limit, with none of our variables set but
/// the backend: real bytes in host memory.
pub fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", TIME_LIMIT_SECONDS]).arg(program);
    for (name, _) in env::vars_os() {
        let name_text = name.to_string_lossy();
        if name_text.starts_with("GENESIS_") || name_text.starts_with("MXNET_") {
            command.env_remove(&name);
        }
    }
    command.env("GENESIS_BACKEND", "host");
    command
}

/// Runs a command line; it must end with status 0, in time.
pub fn run(command: &mut Command) -> Output {
    let output = command.output().expect("the program can be started");
    let code = output.status.code();
    assert_ne!(code, Some(TIMED_OUT), "{command:?} hangs\n{}", text(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{}", output.status, text(&output.stderr));
    output
}

/// Runs a command line that must end well and say nothing on standard error; gives its
/// standard output.
pub fn run_silently(command: &mut Command) -> String {
    let output = run(command);
    assert_eq!(text(&output.stderr), "", "{command:?}");
    text(&output.stdout)
}

/// Bytes that a program has written, as text.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
