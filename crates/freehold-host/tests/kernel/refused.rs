//! Calls that are refused, by a limit of the process or for what they ask: an error that says what
//! would help, not the end of the process, and nothing is left behind.

use freehold_host::{Arena, Backing, Builder, Error};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::common::{child, open_descriptors};

/// How far a process may go.
#[derive(Clone, Copy)]
enum Limit {
    /// As far as it is wished.
    None,
    /// So many.
    To(Resource, u64),
    /// So many bytes of addresses more than it has.
    Addresses(u64),
}

/// Under that limit such calls are refused, each with an error whose text contains that.
type Row = (Limit, &'static [fn() -> Option<Error>], &'static str);

const GIB: u64 = 1 << 30;
const MIB: u64 = 1 << 20;

fn arena(builder: &Builder) -> Option<Error> {
    builder.build().err()
}

fn large(backing: Backing) -> Option<Error> {
    arena(&Arena::builder(64 * GIB).backing(backing))
}

const ROWS: [Row; 8] = [
    (
        Limit::Addresses(GIB),
        &[|| large(Backing::Private), || large(Backing::Memfd), || large(Backing::HugePages)],
        "RLIMIT_AS",
    ),
    // Shared memory is not data.
    (
        Limit::To(Resource::Data, GIB),
        &[|| large(Backing::Private), || large(Backing::HugePages)],
        "RLIMIT_DATA",
    ),
    // Not the signal that the kernel has for it.
    (
        Limit::To(Resource::Fsize, MIB),
        &[|| arena(&Arena::builder(64 * MIB).backing(Backing::Memfd))],
        "RLIMIT_FSIZE",
    ),
    (
        Limit::To(Resource::Nofile, 3),
        &[|| arena(&Arena::builder(8 * MIB).backing(Backing::Memfd))],
        "ulimit -n",
    ),
    (Limit::None, &[|| arena(&Arena::builder(0)), || arena(&Arena::builder(u64::MAX))], "size = "),
    (Limit::None, &[|| arena(&Arena::builder(MIB).slots(u16::MAX))], "slots = "),
    (Limit::None, &[|| arena(&Arena::builder(MIB).least_run(12))], "least_run = "),
    (Limit::None, &[|| arena(&Arena::builder(MIB).resident_limit(4096))], "resident_limit = "),
];

fn used_addresses() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').next().unwrap().parse::<u64>().unwrap() * 4096
}

#[test]
fn what_is_refused_says_what_would_help_and_leaves_nothing_behind() {
    for (number, (limit, calls, says)) in ROWS.into_iter().enumerate() {
        let status = child::fork(|| {
            let kept = Arena::with_size(64 * MIB).unwrap();
            let open = open_descriptors();
            let set = match limit {
                Limit::None => None,
                Limit::To(resource, most) => Some((resource, most)),
                Limit::Addresses(more) => Some((Resource::As, used_addresses() + more)),
            };
            let before = set.map(|(resource, most)| {
                let before = getrlimit(resource);
                let new = Rlimit { current: Some(most), maximum: before.maximum };
                setrlimit(resource, new).unwrap();
                (resource, before)
            });
            // Twice: nothing is left behind that would be in the way.
            for call in calls.iter().chain(calls.iter()) {
                let error = call().expect("there is no room for it");
                assert!(error.to_string().contains(says), "{error}");
                assert!(!says.starts_with("RLIMIT_AS") || error.is_out_of_memory(), "{error}");
            }
            // What there is works as before, and so does a smaller one.
            drop(kept.frames(512).unwrap());
            drop(Arena::with_size(8 * MIB).unwrap().frames(512).unwrap());
            if let Some((resource, before)) = before {
                setrlimit(resource, before).unwrap();
            }
            drop(Arena::builder(64 * GIB).build().unwrap());
            kept.validate().unwrap();
            kept.free_frames() == kept.stats().frames && open_descriptors() == open
        });
        assert_eq!(status, 0, "row {number}, which is to say {says:?}");
    }
}
