//! The newest kernel: from the backports to Debian 13, whose headers need that release's own
//! compiler and C library. So a small Debian 13 is put into a folder, by debootstrap, which is
//! itself only unpacked. Nothing outside the folder changes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::Trouble;
use super::packages::{self, Kernel, apt_get_download, files_ending_in, unpack};
use super::tools::{output, run};

const RELEASE: &str = "trixie";
const MIRROR: &str = "http://deb.debian.org/debian";
/// For the build; the headers bring the compiler.
const INCLUDED: &str = "make,binutils,libelf1t64";
const HEADERS: &str = "linux-headers-cloud-amd64";

/// A command within that system, with its own view of mounts: `/proc` is there for it alone.
pub(crate) fn within(system: &Path, words: &[&str]) -> Command {
    let mut command = Command::new("unshare");
    command.args([
        "--mount",
        "sh",
        "-c",
        "mount -t proc proc \"$0/proc\" && exec chroot \"$0\" \"$@\"",
    ]);
    command.arg(system).args(words).env("DEBIAN_FRONTEND", "noninteractive");
    command
}

/// That kernel, in `folder`; downloaded where it is not there.
///
/// # Errors
///
/// [`Trouble::Missing`] where it cannot be had.
pub(crate) fn kernel(folder: &Path) -> Result<Kernel, Trouble> {
    let (system, done) = (folder.join("system"), folder.join("system.done"));
    if !done.exists() {
        if output(Command::new("id").arg("-u"))?.trim() != "0" {
            return Err(Trouble::Missing(
                "debootstrap is for root; --kernel host-release is for everybody".to_owned(),
            ));
        }
        if system.exists() {
            fs::remove_dir_all(&system)?;
        }
        eprintln!("putting a Debian {RELEASE} into {}: some minutes, once", system.display());
        make_system(folder, &system).map_err(|trouble| Trouble::Missing(trouble.to_string()))?;
        fs::write(&done, "")?;
    }
    let found = packages::find(&system, packages::CLOUD)?;
    let headers = PathBuf::from("/usr/src").join(format!("linux-headers-{}", found.release));
    Ok(Kernel { headers, system: Some(system), ..found })
}

fn make_system(folder: &Path, system: &Path) -> Result<(), Trouble> {
    let tools = folder.join("tools");
    fs::create_dir_all(&tools)?;
    apt_get_download(&tools, &["debootstrap", "busybox-static"])?;
    for package in files_ending_in(&tools, ".deb")? {
        unpack(&package, &tools)?;
    }
    let mut debootstrap = Command::new("sh");
    debootstrap
        .arg(tools.join("usr/sbin/debootstrap"))
        .env("DEBOOTSTRAP_DIR", tools.join("usr/share/debootstrap"));
    debootstrap
        .arg("--variant=minbase")
        .arg(format!("--include={INCLUDED}"))
        .arg(RELEASE)
        .arg(system)
        .arg(MIRROR);
    run(&mut debootstrap)?;
    let source = format!("deb {MIRROR} {RELEASE}-backports main\n");
    fs::write(system.join("etc/apt/sources.list.d/backports.list"), source)?;
    let backports = format!("{RELEASE}-backports");
    let within = |words: &[&str]| output(&mut within(system, words));
    within(&["apt-get", "-qq", "update"])?;
    within(&[
        "apt-get",
        "-qq",
        "install",
        "-y",
        "--no-install-recommends",
        "-t",
        &backports,
        HEADERS,
    ])?;
    // The image is only unpacked: it is not this system that boots it.
    let release = release_of(system)?;
    let names = [format!("linux-binary-{release}"), format!("linux-image-{release}")];
    let download = |name: &String| {
        within(&["sh", "-c", &format!("cd /root && apt-get -qq download -t {backports} {name}")])
    };
    if download(&names[0]).is_err() {
        download(&names[1])?;
    } else {
        download(&format!("linux-modules-{release}"))?;
    }
    for package in files_ending_in(&system.join("root"), ".deb")? {
        unpack(&package, &system.join("image"))?;
    }
    let (image, boot) = (system.join("image"), system.join("boot"));
    let places = [
        image.join(format!("usr/lib/modules/{release}/vmlinuz")),
        image.join(format!("boot/vmlinuz-{release}")),
    ];
    let vmlinuz = places.iter().find(|place| place.exists());
    let vmlinuz = vmlinuz
        .ok_or_else(|| Trouble::Wrong(format!("there is no kernel in {}", image.display())))?;
    fs::create_dir_all(&boot)?;
    fs::copy(vmlinuz, boot.join(format!("vmlinuz-{release}")))?;
    fs::copy(tools.join("bin/busybox"), system.join("bin/busybox"))?;
    keep_drivers(
        &image,
        &system.join("lib/modules").join(&release).join("kernel/drivers/block"),
        &release,
    )?;
    fs::remove_dir_all(image)?;
    Ok(())
}

/// Of the image's drivers the guest needs one: a disk in memory, to swap to.
fn keep_drivers(image: &Path, to: &Path, release: &str) -> Result<(), Trouble> {
    fs::create_dir_all(to)?;
    for lib in ["usr/lib", "lib"] {
        let from = image.join(lib).join("modules").join(release).join("kernel/drivers/block");
        if !from.is_dir() {
            continue;
        }
        for entry in fs::read_dir(from)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with("brd.ko") {
                fs::copy(entry.path(), to.join(entry.file_name()))?;
            }
        }
    }
    Ok(())
}

/// Which kernel the headers are for.
fn release_of(system: &Path) -> Result<String, Trouble> {
    let headers = files_ending_in(&system.join("usr/src"), "-cloud-amd64")?;
    let name = headers
        .first()
        .and_then(|path| path.file_name())
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let release = name.strip_prefix("linux-headers-").map(str::to_owned);
    release.ok_or_else(|| Trouble::Wrong(format!("there are no headers in {}", system.display())))
}
