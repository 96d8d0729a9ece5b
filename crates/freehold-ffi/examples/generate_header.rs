//! Writes `include/freehold.h`: `cargo run -p freehold-ffi --example generate_header`, or `make header`.

#[path = "../tests/support/header.rs"]
mod header;

fn main() -> std::io::Result<()> {
    std::fs::write(header::path(), header::generate())
}
