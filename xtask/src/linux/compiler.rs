//! A C compiler for the guest: this machine's own cc1 and the libraries that it needs, something to
//! compile, and what must come out of it.

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::Trouble;
use super::tools::{output, run};
use crate::build;

/// The files to be carried: names in the guest, and where they are. So many functions beside a
/// program of ours are to be compiled.
pub(crate) fn carried(
    folder: &Path,
    unused_functions: usize,
) -> Result<Vec<(String, PathBuf)>, Trouble> {
    let cc1 = PathBuf::from(output(Command::new("cc").arg("-print-prog-name=cc1"))?.trim());
    if !cc1.is_absolute() {
        return Err(Trouble::Missing("cc is not gcc: it has no cc1".to_owned()));
    }
    let there = folder.join("compiled");
    std::fs::create_dir_all(&there)?;
    let source = build::root().join("os/linux/built/loads.c");
    run(Command::new("cc").current_dir(&there).args(["-E", "-P", "-o", "compile.i"]).arg(source))?;
    let mut file = OpenOptions::new().append(true).open(there.join("compile.i"))?;
    file.write_all(unused(unused_functions).as_bytes())?;
    // The guest passes these arguments, too: os/linux/built/loads.c.
    let mut compile = Command::new(&cc1);
    let arguments = "-fpreprocessed -quiet -O2 compile.i -o compiled.s";
    run(compile.current_dir(&there).args(arguments.split(' ')))?;
    let mut files = libraries(&output(Command::new("ldd").arg(&cc1))?);
    files.push(("cc1".to_owned(), cc1));
    for name in ["compile.i", "compiled.s"] {
        files.push((name.to_owned(), there.join(name)));
    }
    Ok(files)
}

fn unused(functions: usize) -> String {
    let mut text = String::new();
    for i in 0..functions {
        let _ = writeln!(
            text,
            "static int unused{i}(int*a,int n){{int \
             i,s={i};for(i=0;i<n;i++){{if(a[i]>s)s+=a[i]*{};else a[i]^=s>>{};}}return s;}}",
            i + 3,
            i % 31
        );
    }
    text
}

/// What `ldd` found: libraries go to /lib, where they are looked for without being told, the loader
/// to where it must be.
pub(super) fn libraries(said: &str) -> Vec<(String, PathBuf)> {
    let mut found = Vec::new();
    for line in said.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            [name, "=>", path, _] => found.push((format!("lib/{name}"), path.into())),
            [path, _] if path.starts_with('/') => {
                found.push((path.trim_start_matches('/').to_owned(), path.into()))
            }
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loader_and_the_libraries_are_found() {
        let said = "\tlinux-vdso.so.1 (0x0007)\n\tlibz.so.1 => /lib/x86/libz.so.1 \
                    (0x7f)\n\t/lib64/ld-linux.so.2 (0x8)\n";
        let pair = |name: &str, path: &str| (name.to_owned(), PathBuf::from(path));
        let library = pair("lib/libz.so.1", "/lib/x86/libz.so.1");
        let loader = pair("lib64/ld-linux.so.2", "/lib64/ld-linux.so.2");
        assert_eq!(libraries(said), [library, loader]);
    }
}
