//! Reading and writing traces. One program, since each takes seconds to link.

mod bpftrace;
mod byte_text;
mod damaged_files;
mod damaged_texts;
mod other_kernels;
mod parquet_files;
mod reading;
mod recorded;
mod text_formats;
