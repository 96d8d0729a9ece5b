//! Compiling and running programs against the library that cargo has just built for this very test.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What a static library made of Rust needs besides itself, on Linux with glibc.
pub(crate) const SYSTEM_LIBRARIES: &[&str] =
    &["-lgcc_s", "-lutil", "-lrt", "-lpthread", "-lm", "-ldl"];

/// The crate's own directory.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Says on standard error, past the test harness's capture, that something is not tested here.
pub(crate) fn skipped(what: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED {what}");
}

/// Whether there is such a program.
pub(crate) fn have(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
}

/// Runs it; what it says is shown where it fails.
pub(crate) fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{out}{err}", output.status);
    out
}

/// The directory in which cargo put the libraries: that of this test's own executable. The cdylib
/// and the staticlib of a package of the workspace have no hash in their names.
pub(crate) fn libraries() -> PathBuf {
    let test = env::current_exe().expect("a test has a path");
    let deps = test.parent().expect("in a directory");
    for name in ["libfreehold_ffi.so", "libfreehold_ffi.a"] {
        assert!(
            deps.join(name).is_file(),
            "cargo builds {name} for this test, into {}",
            deps.display()
        );
    }
    deps.to_path_buf()
}

/// An empty directory of the test's own.
pub(crate) fn fresh(name: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("freehold-ffi").join(name);
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir_all(&directory).expect("the target directory can be written to");
    directory
}

/// The libraries and the header under the names that C knows them by, as `make install` lays them
/// out.
pub(crate) struct Installed {
    pub(crate) prefix: PathBuf,
}

impl Installed {
    pub(crate) fn in_directory(prefix: PathBuf) -> Self {
        let make = |directory: &Path| {
            let mut make = Command::new("make");
            make.current_dir(root())
                // Not this cargo's own job server, flags and target directory.
                .env_remove("MAKEFLAGS")
                .env_remove("CARGO_MAKEFLAGS")
                .arg("--silent")
                .arg("install")
                .arg("PREBUILT=1")
                .arg(format!("BUILD={}", libraries().display()))
                .arg(format!("DESTDIR={}", directory.display()))
                .arg("PREFIX=/usr")
                .arg("LIBDIR=/usr/lib")
                .arg("INCLUDEDIR=/usr/include");
            run(&mut make);
        };
        make(&prefix);
        Self { prefix }
    }

    pub(crate) fn built_libraries(&self) -> PathBuf {
        self.prefix.join("usr/lib")
    }

    /// A program that runs with the shared library.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env("LD_LIBRARY_PATH", self.built_libraries());
        command.env("FREEHOLD_LIBRARY", self.built_libraries().join("libfreehold.so"));
        command
    }

    /// Compiles a source of this crate, all warnings being errors; the program's path.
    pub(crate) fn compile(
        &self,
        compiler: &str,
        flags: &[&str],
        source: &str,
        link: Link,
        program: &str,
    ) -> PathBuf {
        let output = self.prefix.join(program);
        let mut command = Command::new(compiler);
        command.args(["-Wall", "-Wextra", "-Werror", "-g"]).args(flags);
        command.arg("-I").arg(self.prefix.join("usr/include"));
        command.arg(root().join(source)).arg("-o").arg(&output);
        match link {
            Link::Shared => {
                command.arg("-L").arg(self.built_libraries()).args(["-lfreehold", "-lpthread"]);
            }
            Link::Static => {
                command.arg(self.built_libraries().join("libfreehold.a")).args(SYSTEM_LIBRARIES);
            }
        }
        run(&mut command);
        output
    }
}

/// Which library to link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Link {
    Shared,
    Static,
}
