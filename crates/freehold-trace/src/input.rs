//! The file under a Parquet reader, and the fence around the `parquet` crate: every range is
//! checked before it is read, and a panic in the crate becomes an error.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Once};

use bytes::Bytes;
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, Length};

thread_local! {
    /// Whether a panic on this thread is about to be caught and turned into an error.
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// Runs code of the `parquet` crate; a panic in it becomes an error, without a message of its own
/// on stderr.
pub(super) fn guarded<T>(
    code: impl FnOnce() -> Result<T, ParquetError>,
) -> Result<T, ParquetError> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if !GUARDED.get() {
                before(panic);
            }
        }));
    });
    let outer = GUARDED.replace(true);
    // Unwind safe: after an error the reader is not used again (documented), and nothing is shared.
    let result = catch_unwind(AssertUnwindSafe(code));
    GUARDED.set(outer);
    result.unwrap_or_else(|panic| {
        let why = panic
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned())
            .or_else(|| panic.downcast_ref::<String>().cloned())
            .unwrap_or_else(|| "the data makes no sense".to_owned());
        Err(ParquetError::General(why))
    })
}

/// A file or bytes in memory, every range of which is checked before it is read.
#[derive(Clone)]
pub(super) struct Input {
    pub(super) bytes: Option<Bytes>,
    pub(super) file: Option<Arc<File>>,
    pub(super) len: u64,
}

impl Length for Input {
    fn len(&self) -> u64 {
        self.len
    }
}

impl Input {
    pub(super) fn of_file(file: File) -> io::Result<Self> {
        let len = file.metadata()?.len();
        Ok(Self { bytes: None, file: Some(Arc::new(file)), len })
    }

    pub(super) fn of_bytes(bytes: &'static [u8]) -> Self {
        Self { len: bytes.len() as u64, bytes: Some(Bytes::from_static(bytes)), file: None }
    }

    fn seek(&self, start: u64) -> Result<File, ParquetError> {
        let file = self.file.as_deref().ok_or_else(|| ParquetError::General("no file".into()))?;
        let mut file = file.try_clone()?;
        file.seek(SeekFrom::Start(start))?;
        Ok(file)
    }

    fn check(&self, start: u64, length: u64) -> Result<(), ParquetError> {
        match start.checked_add(length) {
            Some(end) if end <= self.len => Ok(()),
            _ => Err(ParquetError::EOF(format!(
                "{length} bytes at {start} are behind the end of the file, {} bytes long",
                self.len
            ))),
        }
    }
}

impl ChunkReader for Input {
    type T = Box<dyn Read>;

    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        self.check(start, 0)?;
        Ok(match &self.bytes {
            Some(bytes) => Box::new(std::io::Cursor::new(bytes.slice(start as usize..))),
            None => Box::new(BufReader::new(self.seek(start)?)),
        })
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        self.check(start, length as u64)?;
        if let Some(bytes) = &self.bytes {
            return Ok(bytes.slice(start as usize..start as usize + length));
        }
        let mut buffer = vec![0; length];
        self.seek(start)?.read_exact(&mut buffer)?;
        Ok(buffer.into())
    }
}
