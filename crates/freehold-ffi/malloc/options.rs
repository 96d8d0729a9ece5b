//! The options: a variable of the environment each. What is wrong is told once, with what would be
//! right, and the default is taken.

use std::ffi::{CStr, c_char};
use std::sync::OnceLock;

use freehold_host::Backing;

use crate::report::say;

/// See the table in docs/userspace.md.
#[derive(Clone, Copy)]
pub(crate) struct Options {
    /// The least request that comes from an arena, in bytes.
    pub(crate) from: usize,
    /// Addresses of an arena, in bytes; 0: as many as are sensible.
    pub(crate) size: u64,
    pub(crate) backing: Backing,
    /// The least run of frames that is given back out of a block in use. One, where an arena has
    /// four: no request is as short as what four would keep.
    pub(crate) least_run: u64,
    /// What has been free for so long is given back, in milliseconds; 0: never.
    pub(crate) decay: u64,
    /// A thread of this library's gives back; otherwise threads that free do.
    pub(crate) thread: bool,
    pub(crate) stats: bool,
}

/// In the order of [`Options`].
const NAMES: [&CStr; 7] = [
    c"FREEHOLD_MALLOC_FROM",
    c"FREEHOLD_MALLOC_SIZE",
    c"FREEHOLD_MALLOC_BACKING",
    c"FREEHOLD_MALLOC_LEAST_RUN",
    c"FREEHOLD_MALLOC_DECAY_MS",
    c"FREEHOLD_MALLOC_THREAD",
    c"FREEHOLD_MALLOC_STATS",
];

unsafe extern "C" {
    static environ: *const *const c_char;
}

/// Tells of variables that look as if they were this library's and are not.
fn tell_unknown() {
    // SAFETY: as in `value`: strings that stay, and null behind the last of them.
    let mut all = unsafe { environ };
    // SAFETY: as above.
    while let Some(text) = unsafe { all.as_ref() }.filter(|text| !text.is_null()) {
        // SAFETY: as above.
        let text = unsafe { CStr::from_ptr(*text) }.to_str().unwrap_or("");
        let name = text.split('=').next().unwrap_or("");
        let known = NAMES.iter().any(|known| known.to_str() == Ok(name));
        if name.starts_with("FREEHOLD_MALLOC_") && !known {
            let known = NAMES.map(|name| name.to_str().unwrap_or("")).join(", ");
            say(&format!("{name}: there is no such variable; there are {known}"));
        }
        all = all.wrapping_add(1);
    }
}

/// A variable's value, if it is set: by the C library, which allocates nothing for it.
fn value(name: &CStr) -> Option<&'static str> {
    // SAFETY: a name that ends with a zero. Read while the loader is at work, or after it by one
    // thread: nobody sets variables then.
    let found = unsafe { libc::getenv(name.as_ptr()) };
    if found.is_null() {
        return None;
    }
    // SAFETY: a string of the environment, which stays.
    unsafe { CStr::from_ptr(found) }.to_str().ok()
}

/// Digits, and K, M, G or T behind them.
fn number(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match &text[digits.len()..] {
        "" => 0,
        "K" | "k" => 10,
        "M" | "m" => 20,
        "G" | "g" => 30,
        "T" | "t" => 40,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// What a variable says, or the default: with a word about it where it is wrong.
fn read<T>(name: &CStr, allowed: &str, default: T, right: impl Fn(&str) -> Option<T>) -> T {
    let Some(text) = value(name) else { return default };
    right(text).unwrap_or_else(|| {
        let name = name.to_str().unwrap_or("");
        say(&format!("{name}={text}: allowed is {allowed}; the default is taken"));
        default
    })
}

fn within(text: &str, least: u64, most: u64) -> Option<u64> {
    number(text).filter(|number| (least..=most).contains(number))
}

fn switch(text: &str) -> Option<bool> {
    match text {
        "0" => Some(false),
        "1" => Some(true),
        _ => None,
    }
}

fn backing(text: &str) -> Option<Backing> {
    match text {
        "private" => Some(Backing::Private),
        "huge" => Some(Backing::HugePages),
        _ => None,
    }
}

/// What the environment had at the first call, which is that of the library's constructor.
pub(crate) fn get() -> &'static Options {
    static OPTIONS: OnceLock<Options> = OnceLock::new();
    OPTIONS.get_or_init(read_all)
}

fn read_all() -> Options {
    tell_unknown();
    let [from, size, backed, least_run, decay, thread, stats] = NAMES;
    Options {
        from: read(from, "bytes, 4K to 1G", 16 << 10, |text| within(text, 4 << 10, 1 << 30))
            as usize,
        size: read(size, "bytes, 64M to 4T", 0, |text| within(text, 64 << 20, 4 << 40)),
        backing: read(backed, "private or huge", Backing::Private, backing),
        least_run: read(least_run, "frames, a power of two from 1 to 512", 1, |text| {
            within(text, 1, 512).filter(|run| run.is_power_of_two())
        }),
        decay: read(decay, "milliseconds, 0 (never) or 100 to 1000000", 1000, |text| {
            within(text, 0, 1_000_000).filter(|&ms| ms == 0 || ms >= 100)
        }),
        thread: read(thread, "0 or 1", true, switch),
        stats: read(stats, "0 or 1", false, switch),
    }
}
