//! Virtual memory from outside: everything that uses only the public interface, on page tables in
//! software. One program, so that the crate is compiled into one:
//! `cargo test -p freehold-vm --test suite space::` for one file's.

mod common;

mod lazyfree;
mod model;
mod space;
mod unmap_paths;
mod vmalloc;
