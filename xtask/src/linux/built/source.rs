//! The kernel's source and the tools that its build needs, by the distribution's own package tools,
//! unpacked under `target/linux/built`. Nothing is installed.
//!
//! ```text
//! target/linux/built/apt        apt's own folder: the list of one release's source packages
//!                   /tools      flex, bison, m4 and libraries of the tests, unpacked
//!                   /source     the kernel's source, with one kernel's changes
//!                   /pristine   the files of it that some kernel changes, as they came
//!                   /objects    what make has built of it
//!                   /kernels    the images, one a kernel
//! ```

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::super::Trouble;
use super::super::tools::run;
use crate::build;

/// The last source package of 7.1 in Debian's backports whose archive is still served. The RFC was
/// posted for 7.0; its mends and all rules are for this one.
const PACKAGE: &str = "linux=7.1.3-1~bpo13+1";
pub(super) const VERSION: &str = "7.1.3";
const LIST: &str = "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] \
    http://deb.debian.org/debian trixie-backports main\n";
/// What no kernel of ours compiles, and what is large. Files named `Kconfig` stay: all are read.
const LEFT_OUT: [&str; 7] = [
    "*/Documentation/*/*",
    "*/drivers/gpu/*.[ch]",
    "*/drivers/net/*.[ch]",
    "*/drivers/media/*.[ch]",
    "*/sound/*.[ch]",
    "*/arch/arm*/*.dts*",
    "*/arch/*/boot/dts/*",
];

fn missing(trouble: Trouble) -> Trouble {
    Trouble::Missing(trouble.to_string())
}

/// The source, in `folder`; downloaded and unpacked where it is not there.
///
/// # Errors
///
/// [`Trouble::Missing`] where the package cannot be had.
pub(super) fn source(folder: &Path) -> Result<PathBuf, Trouble> {
    let source = folder.join("source");
    // Another version, or one without the kernel's tests, is unpacked again.
    let version = fs::read_to_string(source.join("Makefile")).is_ok_and(|text| is(&text, VERSION));
    if version && source.join("tools/testing/selftests/mm/Makefile").is_file() {
        return Ok(source);
    }
    if source.exists() {
        fs::remove_dir_all(&source)?;
    }
    let archive = archive(&folder.join("apt"))?;
    eprintln!("unpacking {} (1 GB)", archive.display());
    // Under another name until all of it is there.
    let half = folder.join("source.half");
    if half.exists() {
        fs::remove_dir_all(&half)?;
    }
    fs::create_dir_all(&half)?;
    let mut tar = Command::new("tar");
    tar.arg("-xf").arg(&archive).arg("-C").arg(&half).arg("--strip-components=1");
    tar.args(LEFT_OUT.map(|pattern| format!("--exclude={pattern}")));
    run(&mut tar)?;
    fs::rename(&half, &source)?;
    Ok(source)
}

/// Whether a kernel's first Makefile is of that version.
fn is(makefile: &str, version: &str) -> bool {
    let parts = ["VERSION = ", "PATCHLEVEL = ", "SUBLEVEL = "];
    parts
        .map(|part| makefile.lines().find_map(|line| line.strip_prefix(part)).unwrap_or_default())
        .join(".")
        == version
}

#[test]
fn a_source_is_of_the_version_that_its_makefile_says() {
    let makefile = "# SPDX\nVERSION = 7\nPATCHLEVEL = 1\nSUBLEVEL = 3\nEXTRAVERSION =\n";
    assert!(is(makefile, "7.1.3") && !is(makefile, "7.1.4") && !is("", VERSION));
}

/// The archive of the source package, which apt checks against its signed list.
fn archive(apt: &Path) -> Result<PathBuf, Trouble> {
    let archive = apt.join(format!("linux_{VERSION}.orig.tar.xz"));
    if archive.is_file() {
        return Ok(archive);
    }
    for folder in ["lists/partial", "cache/archives/partial"] {
        fs::create_dir_all(apt.join(folder))?;
    }
    fs::write(apt.join("sources.list"), LIST)?;
    let settings = format!(
        "Dir::Etc::sourcelist \"{0}/sources.list\";\nDir::Etc::sourceparts \"-\";\n\
         Dir::State::lists \"{0}/lists\";\nDir::Cache \"{0}/cache\";\n\
         APT::Sandbox::User \"root\";\n",
        apt.display()
    );
    fs::write(apt.join("apt.conf"), settings)?;
    let get = |words: &[&str]| {
        let mut apt_get = Command::new("apt-get");
        apt_get.current_dir(apt).env("APT_CONFIG", apt.join("apt.conf")).arg("-qq").args(words);
        run(&mut apt_get).map_err(missing)
    };
    eprintln!("downloading the source of Linux {VERSION} (162 MB), to {}", apt.display());
    get(&["update"])?;
    get(&["source", "--download-only", "--tar-only", PACKAGE])?;
    Ok(archive)
}

/// The folder of tools that the build needs and that this machine may not have.
///
/// # Errors
///
/// [`Trouble::Missing`] where a package cannot be had.
pub(super) fn tools(folder: &Path) -> Result<PathBuf, Trouble> {
    let names = "flex bison m4 busybox-static libcap-dev libnuma-dev";
    let tools = unpacked(folder, "tools", names, "usr/include/numa.h")?;
    let needed = ["make", "cc", "ld", "bc", "perl", "git"];
    if let Some(program) = needed.iter().find(|program| build::in_path(program).is_none()) {
        return Err(Trouble::Missing(format!("{program} is not installed")));
    }
    if !Path::new("/usr/include/gelf.h").is_file() {
        return Err(Trouble::Missing("libelf-dev is not installed".to_owned()));
    }
    Ok(tools)
}

/// A folder of that name that packages of those names are unpacked in, the last of them with that
/// file.
pub(super) fn unpacked(
    folder: &Path,
    name: &str,
    names: &str,
    file: &str,
) -> Result<PathBuf, Trouble> {
    let to = folder.join(name);
    if !to.join(file).is_file() {
        let packages = folder.join(format!("{name}.packages"));
        fs::create_dir_all(&packages)?;
        let mut apt_get = Command::new("apt-get");
        apt_get.current_dir(&packages).args(["-qq", "download"]).args(names.split(' '));
        let why =
            |error| format!("{names} cannot be downloaded (apt-get update may help): {error}");
        run(&mut apt_get).map_err(|error| Trouble::Missing(why(error)))?;
        for package in fs::read_dir(&packages)? {
            run(Command::new("dpkg-deb").arg("-x").arg(package?.path()).arg(&to))?;
        }
    }
    Ok(to)
}
