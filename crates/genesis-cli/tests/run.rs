//! `genesis run` from outside. With a preload library that does nothing: what the program gets, its
//! end, signals, and the report when nothing was intercepted. With the real one, on simcuda: the
//! other reports.

mod support;

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use support::{check_refused, genesis, scratch, stderr, stdout};

/// A preload library of `test`'s own.
fn preload_library(test: &str) -> PathBuf {
    let code = "int genesis_run_test_library = 1;\n";
    let argument = support::built(&format!("genesis_run_{test}"), code);
    PathBuf::from(argument.trim_start_matches("--library="))
}

fn command(test: &str) -> Command {
    let mut command = genesis();
    command.arg("run").env("GENESIS_PRELOAD_LIBRARY", preload_library(test));
    command.env_remove("LD_PRELOAD");
    command
}

/// Runs a script of the shell.
fn shell(test: &str, options: &[&str], script: &str) -> Output {
    command(test).args(options).args(["--", "sh", "-c", script]).output().unwrap()
}

#[test]
fn the_program_is_run_as_it_is() {
    let output = shell("as_it_is", &["--quiet"], "echo out; echo err >&2; cat; exit 3");
    assert_eq!(output.status.code(), Some(3));
    assert_eq!((stdout(&output), stderr(&output)), ("out\n".to_owned(), "err\n".to_owned()));
    // Options after the program are the program's.
    let output = command("options").args(["--quiet", "echo", "--quiet", "-x"]).output().unwrap();
    assert_eq!(stdout(&output), "--quiet -x\n");
}

#[test]
fn its_environment_says_what_was_asked_for() {
    let script = "echo $GENESIS_POOL_TYPE $GENESIS_PROFILE $GENESIS_LOG; echo $LD_PRELOAD; \
                  test -e \"$GENESIS_PRELOAD_REPORT\" && echo $GENESIS_PRELOAD_REPORT";
    let library = preload_library("environment");
    let output = command("environment")
        .args(["--pool-type=Round", "--profile=run.html", "--option", "GENESIS_LOG=error"])
        .args(["sh", "-c", script])
        .env("LD_PRELOAD", &library)
        .output()
        .unwrap();
    let said = stdout(&output);
    let lines: Vec<&str> = said.lines().collect();
    let [settings, preloaded, report] = lines[..] else { panic!("{said}{}", stderr(&output)) };
    assert_eq!(settings, "Round run.html error");
    let library = library.canonicalize().unwrap();
    assert!(preloaded.starts_with(&format!("{}:", library.display())), "{preloaded}");
    assert!(!Path::new(report).exists(), "{report} is left behind");
}

#[test]
fn silence_is_told_with_its_reason() {
    let output = shell("silence", &[], "exit 0");
    assert!(
        stderr(&output).starts_with("genesis run: nothing was intercepted: the loader did not")
    );
    let program = scratch("static_program");
    let source = scratch("static_program.c");
    fs::write(&source, "int main(void) { return 5; }\n").unwrap();
    let compiled =
        Command::new("cc").args(["-static", "-o"]).args([&program, &source]).status().unwrap();
    assert!(compiled.success());
    let output = command("static").arg(&program).output().unwrap();
    assert_eq!(output.status.code(), Some(5));
    let expected = format!(
        "genesis run: nothing was intercepted: {} is statically linked, and so loads no libraries \
         at all\n",
        program.display()
    );
    assert_eq!(stderr(&output), expected);
}

#[test]
fn the_exit_status_tells_how_it_ended() {
    let output = shell("killed", &[], "kill -KILL $$");
    assert_eq!(output.status.code(), Some(128 + 9));
    assert!(
        stderr(&output).starts_with("genesis run: the program was ended by signal 9 (SIGKILL)")
    );
    let output = command("missing").arg("/no/such/program").output().unwrap();
    check_refused(&output, 127, "/no/such/program: ");
    let output = command("folder").arg("/tmp").output().unwrap();
    check_refused(&output, 126, "/tmp: ");
}

#[test]
fn what_cannot_be_done_is_refused() {
    let refused = |test, arguments: &[&str], message| {
        let output = command(test).args(arguments).args(["--", "echo"]).output().unwrap();
        check_refused(&output, 125, message);
    };
    refused("pool", &["--pool-type=Rund"], "did you mean Round?");
    refused("option", &["--option=GENESIS_LOGS=error"], "did you mean GENESIS_LOG?");
    refused("foreign", &["--option=HOME=/"], "HOME is not an option");
    let missing = genesis()
        .args(["run", "echo"])
        .env("GENESIS_PRELOAD_LIBRARY", "/no/such/library.so")
        .output()
        .unwrap();
    check_refused(&missing, 125, "/no/such/library.so: there is no such library");
    let spaced = scratch("a library.so");
    fs::copy(preload_library("spaced"), &spaced).unwrap();
    let output =
        genesis().args(["run", "echo"]).env("GENESIS_PRELOAD_LIBRARY", &spaced).output().unwrap();
    check_refused(&output, 125, "a space or a colon");
}

/// A program that prints the signals that it gets, once it is ready for them. `hangup` tells
/// `env` how SIGHUP is handled when it begins, whatever started this test.
fn waiting(test: &str, hangup: &str) -> (Child, BufReader<std::process::ChildStdout>) {
    let script = "trap 'echo got TERM' TERM; trap 'echo got HUP' HUP; trap 'exit 9' USR1; \
                  echo ready; while :; do sleep 0.05; done";
    let inner = command(test);
    let mut outer = Command::new("env");
    outer.arg(hangup).arg(inner.get_program());
    outer.args(inner.get_args()).args(["--quiet", "sh", "-c", script]);
    for (name, value) in inner.get_envs() {
        match value {
            Some(value) => outer.env(name, value),
            None => outer.env_remove(name),
        };
    }
    let mut child = outer.stdout(Stdio::piped()).spawn().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    (child, output)
}

fn send(child: &Child, signal: Signal) {
    let process = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    kill_process(process, signal).unwrap();
}

#[test]
fn signals_go_to_the_program() {
    let (mut child, mut output) = waiting("signals", "--default-signal=HUP");
    for (signal, expected) in [(Signal::TERM, "got TERM\n"), (Signal::HUP, "got HUP\n")] {
        send(&child, signal);
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        assert_eq!(line, expected);
    }
    send(&child, Signal::USR1);
    assert_eq!(child.wait().unwrap().code(), Some(9));
}

/// As `nohup` starts programs: the shell cannot trap what was ignored when it began.
#[test]
fn a_signal_that_is_ignored_stays_so() {
    let (mut child, mut output) = waiting("ignored", "--ignore-signal=HUP");
    send(&child, Signal::HUP);
    send(&child, Signal::TERM);
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    assert_eq!(line, "got TERM\n");
    send(&child, Signal::USR1);
    assert_eq!(child.wait().unwrap().code(), Some(9));
}

/// The program is one that finds the driver by name, as a statically linked runtime does.
const PROGRAM: &str = r#"
#include <dlfcn.h>
#include <stddef.h>

int main(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    void *context;
    unsigned long long blocks[3];
    if (driver == NULL) {
        return 2;
    }
    int (*init)(unsigned int) = dlsym(driver, "cuInit");
    int (*retain)(void **, int) = dlsym(driver, "cuDevicePrimaryCtxRetain");
    int (*set_current)(void *) = dlsym(driver, "cuCtxSetCurrent");
    int (*allocate)(unsigned long long *, size_t) = dlsym(driver, "cuMemAlloc_v2");
    int (*release)(unsigned long long) = dlsym(driver, "cuMemFree_v2");
    if (init(0) || retain(&context, 0) || set_current(context)) {
        return 3;
    }
    for (int index = 0; index < 3; index++) {
        if (allocate(&blocks[index], 2 << 20)) {
            return 4;
        }
    }
    return release(blocks[0]) || release(blocks[1]);
}
"#;

/// A library that cargo has built for this test.
fn built(name: &str) -> PathBuf {
    std::env::current_exe().unwrap().with_file_name(name)
}

/// A folder in which simcuda is found as the driver.
fn driver_folder(test: &str) -> PathBuf {
    let folder = scratch(&format!("driver-{test}"));
    fs::create_dir_all(&folder).unwrap();
    let driver = folder.join("libcuda.so.1");
    let _ = fs::remove_file(&driver);
    std::os::unix::fs::symlink(built("libsimcuda.so"), driver).unwrap();
    folder
}

/// `genesis run` with the real preload library, and simcuda found as the driver.
fn real_command(test: &str) -> Command {
    let mut command = genesis();
    command.arg("run").env("LD_LIBRARY_PATH", driver_folder(test)).env_remove("LD_PRELOAD");
    command.env("GENESIS_PRELOAD_LIBRARY", built("libgenesis_preload.so"));
    command
}

#[test]
fn the_doctor_names_an_instance_of_a_gpu_and_the_limits_set_outside() {
    let doctor = |variables: &[(&str, &str)]| {
        let mut command = genesis();
        command.arg("doctor").env("LD_LIBRARY_PATH", driver_folder("doctor"));
        let output = command.envs(variables.iter().copied()).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        stdout(&output)
    };
    let text = doctor(&[("CUDA_DEVICE_MEMORY_LIMIT_0", "3g")]);
    let line = "ok     identity  0: GPU-73696d63-7564-612d-6465-766963650000, 0000:01:00.0\n";
    assert!(text.contains(line), "{text}");
    assert!(text.contains("ok     limit     0: 3.00 GiB by GENESIS_DEVICE_LIMITS\n"), "{text}");
    assert!(text.contains("3.00 GiB of 3.00 GiB free"), "{text}");
    assert!(text.contains("3.00 GiB for each process of the container"), "{text}");
    let shared = doctor(&[("CUDA_DEVICE_MEMORY_LIMIT", "3g"), ("GENESIS_SHARE", "doctors")]);
    assert!(shared.contains("3.00 GiB for all processes of the container together"), "{shared}");
    let text = doctor(&[("SIMCUDA_MIG", "1g.10gb")]);
    assert!(text.contains("0: MIG-73696d63-7564-612d-696e-73742e000000"), "{text}");
    assert!(text.contains("Simulated H100 MIG 1g.10gb"), "{text}");
    assert!(text.contains("an instance whose memory is its own\n"), "{text}");
}

fn program(test: &str) -> PathBuf {
    let (source, program) = (scratch(&format!("{test}.c")), scratch(test));
    fs::write(&source, PROGRAM).unwrap();
    let compiled =
        Command::new("cc").args(["-o"]).args([&program, &source]).arg("-ldl").status().unwrap();
    assert!(compiled.success());
    program
}

/// The report of a run that succeeds, without the common beginning of its lines.
fn said(command: &mut Command) -> Vec<String> {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}: {}", output.status, stderr(&output));
    let line = |line: &str| line.strip_prefix("genesis run: ").map(str::to_owned);
    stderr(&output).lines().map(|text| line(text).unwrap_or_else(|| panic!("{text}"))).collect()
}

#[test]
fn what_was_intercepted_is_said() {
    let program = program("intercepted");
    let lines = said(real_command("intercepted").arg(&program));
    assert!(lines[0].starts_with(&format!("{} (process ", program.display())), "{lines:?}");
    assert_eq!(
        lines[1..],
        [
            "  3 allocations: 6.00 MiB at the peak, 2.00 MiB at the end, 6.00 MiB in all",
            "  served by Genesis: cuMemAlloc_v2 3, cuMemFree_v2 2",
        ]
    );
    let in_a_shell = said(real_command("shell").args(["sh", "-c", "\"$0\"; true"]).arg(&program));
    assert_eq!(in_a_shell[1..3], lines[1..]);
    assert_eq!(in_a_shell[3..], ["one other process did not use CUDA"]);
}

#[test]
fn why_nothing_was_intercepted_is_said() {
    let nothing = "nothing was intercepted: ";
    let lines = said(real_command("true").arg("true"));
    assert_eq!(lines, [format!("{nothing}true did not use CUDA")]);
    let lines = said(real_command("off").arg(program("off")).env("GENESIS_PRELOAD", "off"));
    assert_eq!(lines, [format!("{nothing}GENESIS_PRELOAD is off")]);
    let program = program("without_library");
    let output = real_command("without_library")
        .arg(&program)
        .env("GENESIS_LIBRARY", "/no/such/libgenesis.so")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let said = stderr(&output);
    let reason = format!("genesis run:   {nothing}Genesis cannot serve: ");
    let line = said.lines().find(|line| line.starts_with(&reason)).expect(&said);
    assert!(line.contains("/no/such/libgenesis.so"), "{said}");
    assert!(said.ends_with("  passed to CUDA: cuMemAlloc_v2 3, cuMemFree_v2 2\n"), "{said}");
}
