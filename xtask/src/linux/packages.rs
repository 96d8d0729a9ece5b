//! A stock kernel and its headers: Debian's packages, downloaded and unpacked into a folder.
//! Nothing is installed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::Trouble;
use super::tools::{output, run};

/// What most kernels here are: Debian's for virtual machines.
pub(super) const CLOUD: &str = "cloud-amd64";
/// The one in which interrupts' work is done by threads that can be preempted.
pub(super) const RT: &str = "rt-amd64";

/// An unpacked kernel.
#[derive(Clone, Debug)]
pub(crate) struct Kernel {
    /// As `uname -r` says.
    pub(crate) release: String,
    /// What boots.
    pub(crate) image: PathBuf,
    /// Where modules are built.
    pub(crate) headers: PathBuf,
    /// The shell of the guest.
    pub(crate) busybox: PathBuf,
    /// The system that its modules are built in, where it is not this machine's; paths within it
    /// start there.
    pub(crate) system: Option<PathBuf>,
}

impl Kernel {
    /// A driver of its own that is a module; newer kernels' are compressed.
    ///
    /// # Errors
    ///
    /// Where it is not there, or cannot be unpacked.
    pub(crate) fn driver(&self, name: &str) -> Result<Vec<u8>, Trouble> {
        let root = self.image.parent().and_then(Path::parent).unwrap_or(Path::new("/"));
        let path = root.join("lib/modules").join(&self.release).join("kernel/drivers").join(name);
        let packed = path.with_extension("ko.xz");
        if !packed.exists() {
            return fs::read(&path)
                .map_err(|error| Trouble::Wrong(format!("{}: {error}", path.display())));
        }
        let unpacked = Command::new("xz").arg("-dc").arg(&packed).output();
        let unpacked = unpacked
            .map_err(|error| Trouble::Missing(format!("xz: {error}: apt-get install xz-utils")))?;
        if !unpacked.status.success() {
            return Err(Trouble::Wrong(format!("{} cannot be unpacked", packed.display())));
        }
        Ok(unpacked.stdout)
    }
}

/// The kernel of that flavour of the Debian release that this machine runs, in `folder`; downloaded
/// where it is not there.
///
/// # Errors
///
/// [`Trouble::Missing`] where packages cannot be had.
pub(crate) fn host_release(folder: &Path, flavour: &str) -> Result<Kernel, Trouble> {
    let unpacked = folder.join("root");
    if !unpacked.is_dir() {
        let packages = folder.join("packages");
        fs::create_dir_all(&packages)?;
        // By name; what these need is found in them.
        let asked = vec![
            format!("linux-image-{flavour}"),
            format!("linux-headers-{flavour}"),
            "busybox-static".to_owned(),
        ];
        eprintln!("downloading {}, to {}", asked.join(", "), packages.display());
        download(&packages, asked)?;
        // Under another name until all of it is there.
        let half = folder.join("root.half");
        if half.exists() {
            fs::remove_dir_all(&half)?;
        }
        for package in files_ending_in(&packages, ".deb")? {
            unpack(&package, &half)?;
        }
        fs::rename(&half, &unpacked)?;
    }
    let kernel = find(&unpacked, flavour)?;
    // The headers name their common part by where it would be installed.
    let makefile = kernel.headers.join("Makefile");
    let text = fs::read_to_string(&makefile)?;
    if let Some(rest) = text.strip_prefix("include /usr/src/") {
        fs::write(&makefile, format!("include {}/usr/src/{rest}", unpacked.display()))?;
    }
    Ok(kernel)
}

pub(super) fn unpack(package: &Path, folder: &Path) -> Result<(), Trouble> {
    run(Command::new("dpkg-deb").arg("-x").arg(package).arg(folder))
}

fn download(folder: &Path, mut wanted: Vec<String>) -> Result<(), Trouble> {
    while !wanted.is_empty() {
        apt_get_download(folder, &wanted)?;
        let mut needed = Vec::new();
        for package in files_ending_in(folder, ".deb")? {
            let depends = output(Command::new("dpkg-deb").arg("-f").arg(&package).arg("Depends"))?;
            needed.extend(kernel_packages(&depends));
        }
        let there = files_ending_in(folder, ".deb")?;
        needed.retain(|name| !there.iter().any(|file| is_package(file, name)));
        needed.sort();
        needed.dedup();
        wanted = needed;
    }
    Ok(())
}

pub(super) fn apt_get_download(
    folder: &Path,
    names: &[impl AsRef<str> + AsRef<std::ffi::OsStr>],
) -> Result<(), Trouble> {
    let mut apt = Command::new("apt-get");
    apt.current_dir(folder).args(["-qq", "download"]).args(names);
    output(&mut apt).map(drop).map_err(|error| {
        let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
        Trouble::Missing(format!(
            "{} cannot be downloaded (apt-get update may help): {error}",
            names.join(", ")
        ))
    })
}

/// The parts of a kernel among what a package depends on; not its compiler and its tools for
/// installing, which the machine has or which are not needed.
fn kernel_packages(depends: &str) -> Vec<String> {
    let names = depends.split(',').filter_map(|one| one.split_whitespace().next());
    let ours = |name: &&str| {
        ["linux-image-", "linux-headers-", "linux-kbuild-"].iter().any(|p| name.starts_with(p))
    };
    names.filter(ours).map(str::to_owned).collect()
}

fn is_package(file: &Path, name: &str) -> bool {
    let file = file.file_name().unwrap_or_default().to_string_lossy();
    file.strip_prefix(name).is_some_and(|rest| rest.starts_with('_'))
}

pub(super) fn files_ending_in(folder: &Path, ending: &str) -> Result<Vec<PathBuf>, Trouble> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.to_string_lossy().ends_with(ending) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

pub(super) fn find(root: &Path, flavour: &str) -> Result<Kernel, Trouble> {
    let images = files_ending_in(&root.join("boot"), &format!("-{flavour}"))?;
    let image = images.into_iter().find(|file| file.to_string_lossy().contains("vmlinuz-"));
    let image =
        image.ok_or_else(|| Trouble::Wrong(format!("there is no kernel in {}", root.display())))?;
    let name = image.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let release = name.trim_start_matches("vmlinuz-").to_owned();
    let headers = root.join("usr/src").join(format!("linux-headers-{release}"));
    Ok(Kernel { release, image, headers, busybox: root.join("bin/busybox"), system: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_kernels_own_parts_are_needed() {
        let depends = "linux-headers-6.1.0-56-common (= 6.1.192-2), linux-kbuild-6.1 (>= 6.1.192-2), linux-compiler-gcc-12-x86";
        assert_eq!(kernel_packages(depends), ["linux-headers-6.1.0-56-common", "linux-kbuild-6.1"]);
        assert_eq!(
            kernel_packages("kmod, linux-base (>= 4.3~), initramfs-tools (>= 0.120+deb8u2)"),
            [""; 0]
        );
    }

    #[test]
    fn a_package_is_known_by_its_whole_name() {
        let file = Path::new("x/linux-headers-6.1.0-56-common_6.1.192-2_all.deb");
        assert!(
            is_package(file, "linux-headers-6.1.0-56-common")
                && !is_package(file, "linux-headers-6.1.0-56")
        );
    }
}
