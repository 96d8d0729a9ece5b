//! `cargo xtask qemu --history`: the kernel writes down what its allocator does, in memory that is
//! a file here.
//!
//! The kernel's part is `kernel/src/bare/history.rs`, which draws the layout; the history is judged
//! by freehold-model's example `judge-history`.

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use crate::build;

/// What the kernel writes before the records, which is as long as one of them.
const HEAD: &[u8; 16] = b"FREEHOLDHISTORY1";
const RECORD: u64 = 40;
/// The head is at a multiple of this.
const STEP: u64 = 2 << 20;

fn memory_file() -> PathBuf {
    build::target().join("kernel-memory")
}

/// What QEMU has to be told.
pub(crate) fn arguments(memory: &str) -> Vec<OsString> {
    let mut backend =
        OsString::from(format!("memory-backend-file,id=ram,share=on,size={memory},mem-path="));
    backend.push(memory_file());
    vec!["-object".into(), backend, "-machine".into(), "memory-backend=ram".into()]
}

/// Throws the machine's memory away, after the history in it was kept, if there is to be one.
///
/// # Errors
///
/// Where there is none, or it cannot be written.
pub(crate) fn keep(to: &Path, is_whole: bool) -> Result<(), String> {
    let from = memory_file();
    if !is_whole {
        let _ = std::fs::remove_file(&from);
        return Ok(());
    }
    let kept = File::open(&from).and_then(|memory| copy(memory, to));
    let _ = std::fs::remove_file(&from);
    match kept {
        Err(error) => Err(format!("the history is not kept in {}: {error}", to.display())),
        Ok(None) => Err("the machine's memory has no history in it".to_owned()),
        Ok(Some(records)) => {
            eprintln!("{records} records in {}; to judge them:", to.display());
            eprintln!(
                "cargo run -p freehold-model --features conformance --example judge-history -- {}",
                to.display()
            );
            Ok(())
        }
    }
}

/// How many records there are, if any.
fn copy(mut memory: File, to: &Path) -> std::io::Result<Option<u64>> {
    let len = memory.metadata()?.len();
    for at in (0..len).step_by(STEP as usize) {
        let mut head = [0; RECORD as usize];
        memory.seek(SeekFrom::Start(at))?;
        if memory.read_exact(&mut head).is_err() || head[..HEAD.len()] != HEAD[..] {
            continue;
        }
        let records = u64::from_le_bytes(*head[HEAD.len()..].first_chunk().unwrap_or(&[0; 8]));
        let mut file = File::create(to)?;
        std::io::copy(&mut BufReader::new(memory).take(records * RECORD), &mut file)?;
        file.flush()?;
        return Ok(Some(records));
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_history_is_found_in_memory() {
        let folder = std::env::temp_dir().join(format!("freehold-history-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (memory, history) = (folder.join("memory"), folder.join("history"));
        let mut bytes = vec![0xff; 3 * STEP as usize];
        std::fs::write(&memory, &bytes).unwrap();
        assert_eq!(copy(File::open(&memory).unwrap(), &history).unwrap(), None);
        let at = 2 * STEP as usize;
        bytes[at..at + 16].copy_from_slice(HEAD);
        bytes[at + 16..at + 24].copy_from_slice(&2u64.to_le_bytes());
        bytes[at + 40..at + 120].fill(7);
        std::fs::write(&memory, &bytes).unwrap();
        assert_eq!(copy(File::open(&memory).unwrap(), &history).unwrap(), Some(2));
        assert_eq!(std::fs::read(&history).unwrap(), [7; 80]);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
