//! The C and C++ programs, against the library as it is installed: compiled by gcc and run plainly. CI
//! runs what is left out here for its length (clang, AddressSanitizer), and `make check`, which
//! has valgrind, the caches for SQLite and RocksDB, a panic that C++ would catch, and Python.
#![cfg(all(target_os = "linux", feature = "std"))]

#[path = "support/build.rs"]
mod build;

use std::process::Command;

use build::{Installed, Link, fresh, have, root, run, skipped};

const C_TESTS: [&str; 4] = ["bare", "threads", "arena", "huge"];
const C_EXAMPLES: [&str; 2] = ["boot", "pairs"];

/// An installation, unless there is no make or no compiler of that name.
fn installed(compiler: &str, name: &str) -> Option<Installed> {
    for tool in ["make", compiler] {
        if !have(tool) {
            skipped(&format!("{name}: there is no {tool}"));
            return None;
        }
    }
    Some(Installed::in_directory(fresh(name)))
}

fn c_programs(compiler: &str, name: &str) {
    let Some(installed) = installed(compiler, name) else { return };
    for link in [Link::Shared, Link::Static] {
        for test in C_TESTS {
            let source = format!("tests/{test}.c");
            let program = installed.compile(
                compiler,
                &["-std=c11"],
                &source,
                link,
                &format!("{test}-{link:?}"),
            );
            let said = run(&mut installed.command(program));
            assert!(said.contains(&format!("{test}: all right")), "{said}");
        }
    }
    for example in C_EXAMPLES {
        let source = format!("examples/{example}.c");
        let program = installed.compile(
            compiler,
            &["-std=c11", "-pedantic"],
            &source,
            Link::Shared,
            &format!("{example}-example"),
        );
        run(&mut installed.command(program));
    }
}

/// The example of the project's front page.
#[test]
fn the_front_page_in_c() {
    let Some(installed) = installed("gcc", "front-page") else { return };
    let page = std::fs::read_to_string(root().join("../../README.md")).expect("README.md");
    let (_, code) = page.split_once("```c\n").expect("an example in C");
    let (code, _) = code.split_once("```").expect("its end");
    let source = installed.prefix.join("front_page.c");
    let whole = format!(
        "#include <freehold.h>\n#include <stdio.h>\n#include <string.h>\nint main(void)\n{{\n{code}return arena != NULL;\n}}\n"
    );
    std::fs::write(&source, whole).expect("a file");
    let flags = ["-std=c11", "-Wall", "-Werror"];
    let program = installed.compile(
        "gcc",
        &flags,
        source.to_str().expect("UTF-8"),
        Link::Shared,
        "front-page",
    );
    run(&mut installed.command(program));
}

#[test]
fn c_with_gcc() {
    c_programs("gcc", "gcc");
}

#[test]
#[ignore = "long: cargo test -p freehold-ffi --test programs -- --ignored"]
fn c_with_clang() {
    c_programs("clang", "clang");
}

fn sanitized(compiler: &str, name: &str) {
    let Some(installed) = installed(compiler, name) else { return };
    let flags = [
        "-std=c11",
        "-fsanitize=address,undefined",
        "-fno-sanitize-recover=all",
        "-fno-omit-frame-pointer",
    ];
    // A compiler without the sanitizer's library compiles but does not link.
    let probe = installed.prefix.join("probe.c");
    std::fs::write(&probe, "int main(void) { return 0; }\n").expect("a file");
    let linked = Command::new(compiler)
        .args(flags)
        .arg(&probe)
        .arg("-o")
        .arg(installed.prefix.join("probe"))
        .output();
    if !linked.is_ok_and(|output| output.status.success()) {
        return skipped(&format!("{name}: {compiler} has no AddressSanitizer"));
    }
    for test in C_TESTS {
        let source = format!("tests/{test}.c");
        let program = installed.compile(compiler, &flags, &source, Link::Static, test);
        run(&mut installed.command(program));
    }
}

#[test]
#[ignore = "long: cargo test -p freehold-ffi --test programs -- --ignored"]
fn c_under_address_sanitizer_of_gcc() {
    sanitized("gcc", "gcc-asan");
}

#[test]
#[ignore = "long: cargo test -p freehold-ffi --test programs -- --ignored"]
fn c_under_address_sanitizer_of_clang() {
    sanitized("clang", "clang-asan");
}

#[test]
fn the_header_alone_in_every_dialect() {
    for (compiler, dialects) in [
        ("gcc", &["-std=c89", "-std=c99", "-std=c11", "-std=c17", "-std=gnu89"][..]),
        ("clang", &["-std=c89", "-std=c99", "-std=c11", "-std=c17"][..]),
        ("g++", &["-std=c++98", "-std=c++11", "-std=c++17", "-std=c++20"][..]),
        ("clang++", &["-std=c++98", "-std=c++11", "-std=c++20"][..]),
    ] {
        if !have(compiler) {
            skipped(&format!("the header with {compiler}: there is none"));
            continue;
        }
        let language = if compiler.ends_with("++") { "c++" } else { "c" };
        let source = fresh(&format!("header-{compiler}")).join("header.c");
        for define in ["", "#define FREEHOLD_FREESTANDING\n"] {
            let text = format!(
                "{define}#include <freehold.h>\n#include <freehold.h>\nint main(void) {{ return (int)freehold_version_number(); }}\n"
            );
            std::fs::write(&source, text).expect("a file");
            for dialect in dialects {
                let mut command = Command::new(compiler);
                command.args([
                    "-Wall",
                    "-Wextra",
                    "-Werror",
                    "-pedantic-errors",
                    "-fsyntax-only",
                    "-x",
                    language,
                    dialect,
                ]);
                run(command.arg("-I").arg(root().join("include")).arg(&source));
            }
        }
    }
}

#[test]
fn cpp_example() {
    for compiler in ["g++", "clang++"] {
        let Some(installed) = installed(compiler, &format!("cpp-{compiler}")) else { continue };
        let flags = ["-std=c++17", "-fsanitize=undefined"];
        let flags = if compiler == "g++" { &flags[..] } else { &flags[..1] };
        let program = installed.compile(
            compiler,
            flags,
            "examples/buffer_pool.cpp",
            Link::Shared,
            "buffer_pool",
        );
        let said = run(&mut installed.command(program));
        assert!(said.contains("16384 of 16384 frames free"), "{said}");
    }
}

#[test]
// One installation, step by step.
#[allow(clippy::too_many_lines)]
fn installed_as_a_distribution_would() {
    let Some(installed) = installed("gcc", "install") else { return };
    let version = env!("CARGO_PKG_VERSION");
    let library = installed.built_libraries();
    let link = |name: &str| {
        std::fs::read_link(library.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    };
    let soname = link("libfreehold.so");
    assert_eq!(
        link(soname.to_str().expect("text")).to_str(),
        Some(format!("libfreehold.so.{version}").as_str())
    );

    if have("readelf") {
        let dynamic = run(Command::new("readelf").arg("-d").arg(library.join("libfreehold.so")));
        let expected = format!("Library soname: [{}]", soname.display());
        assert!(dynamic.contains(&expected), "{dynamic}");
    } else {
        skipped("the soname: there is no readelf");
    }
    if have("nm") {
        let symbols = run(Command::new("nm")
            .args(["-D", "--defined-only"])
            .arg(library.join("libfreehold.so")));
        let names: Vec<&str> = symbols.lines().filter_map(|line| line.split(' ').nth(2)).collect();
        assert!(names.len() > 80, "{symbols}");
        let other: Vec<_> = names.iter().filter(|name| !name.starts_with("freehold_")).collect();
        assert!(other.is_empty(), "symbols without the prefix: {other:?}");
    } else {
        skipped("the exported symbols: there is no nm");
    }

    if !have("pkg-config") {
        return skipped("freehold.pc: there is no pkg-config");
    }
    let pkg_config = |arguments: &[&str]| {
        let mut command = Command::new("pkg-config");
        command
            .env("PKG_CONFIG_LIBDIR", library.join("pkgconfig"))
            .env("PKG_CONFIG_SYSROOT_DIR", &installed.prefix);
        // Where the installation is not the system's, /usr/lib must be named all the same.
        command.env("PKG_CONFIG_ALLOW_SYSTEM_LIBS", "1").env("PKG_CONFIG_ALLOW_SYSTEM_CFLAGS", "1");
        run(command.args(arguments).arg("freehold"))
    };
    assert_eq!(pkg_config(&["--modversion"]).trim(), version);
    let program = installed.prefix.join("with-pkg-config");
    let flags = pkg_config(&["--cflags", "--libs"]);
    let mut command = Command::new("gcc");
    command
        .arg(root().join("examples/boot.c"))
        .args(flags.split_whitespace())
        .arg("-lpthread")
        .arg("-o")
        .arg(&program);
    run(&mut command);
    run(&mut installed.command(program));

    // And without any shared library.
    let program = installed.prefix.join("static");
    let flags = pkg_config(&["--static", "--cflags", "--libs"]);
    let mut command = Command::new("gcc");
    command
        .arg("-static")
        .arg(root().join("examples/boot.c"))
        .args(flags.split_whitespace())
        .arg("-o")
        .arg(&program);
    run(&mut command);
    run(&mut installed.command(program));

    let mut uninstall = Command::new("make");
    uninstall.current_dir(root()).env_remove("MAKEFLAGS").env_remove("CARGO_MAKEFLAGS");
    uninstall.args([
        "--silent",
        "uninstall",
        "PREFIX=/usr",
        "LIBDIR=/usr/lib",
        "INCLUDEDIR=/usr/include",
    ]);
    run(uninstall.arg(format!("DESTDIR={}", installed.prefix.display())));
    assert!(
        !library.join("libfreehold.so").is_symlink() && !library.join("libfreehold.a").exists()
    );
    assert!(!library.join("pkgconfig/freehold.pc").exists());
    assert!(!library.join("cmake/Freehold").exists());
    assert!(!installed.prefix.join("usr/include/freehold.hpp").exists());
}
