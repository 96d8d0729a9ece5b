//! One thread on random machines: every answer is compared with a table of all frames.
//!
//! Machines have 1 to 1,024 CPUs, holes, several zones, CMA, watermarks; memory and CPUs come and
//! go, blocks are isolated. A request that fails is searched for in the table: it may fail only
//! where no chunk is free that it may have. A wrong free must be refused with a reason that is so.
//!
//! ```text
//! machine   what the calls are made on      case     every call, drawn, and the table of all frames
//! platform  counts waits and barriers       bounds   what each call may cost at most
//! random    of a seed, or spelt by bytes    ledger   who has each frame, beside other threads
//! ```
//!
//! Shared by the tests here (`histories.rs`), the fuzzer (`proofs/fuzz`), and by `proofs/torture`,
//! which has several threads make the same calls.
#![allow(dead_code, unreachable_pub)]

pub(crate) mod bounds;
pub(crate) mod case;
pub(crate) mod handle;
pub(crate) mod ledger;
pub(crate) mod machine;
#[allow(unsafe_code)]
pub(crate) mod platform;
pub(crate) mod random;

use case::{Books, Case, Counts};
use machine::Machine;
use random::Random;

/// Calls on one machine.
const STEPS: u32 = 600;
/// Steps between two comparisons of what is said of all zones and blocks with the table.
const COMPARED: u32 = 64;

/// All steps, and everything freed behind them.
fn play(case: &mut Case, often: u32) -> Result<(), String> {
    for step in 1..=STEPS {
        if case.random.is_over() {
            break;
        }
        case.step().map_err(|wrong| format!("step {step}: {wrong}"))?;
        if step % often == 0 {
            case.compare().map_err(|wrong| format!("step {step}: {wrong}"))?;
        }
    }
    case.compare()?;
    case.free_all()?;
    case.fh.drain_all();
    case.compare()?;
    // Nothing happens at the same moment here: every wrong free is seen at once.
    match case.fh.totals().late_double_frees {
        0 => Ok(()),
        late => Err(format!("{late} right frees were told as double ones")),
    }
}

/// Plays one machine of so many CPUs, whose zones have so many blocks.
fn run(mut random: Random, cpus: &[u16], blocks: &[u64], often: u32) -> Result<Counts, String> {
    let cpus = random.pick(cpus);
    let (machine, leaked) = Machine::leaked(&mut random, cpus, blocks)?;
    let books = Books::table(&machine);
    let mut case = Case::new(&machine, books, random);
    let played = play(&mut case, often);
    let counts = std::mem::take(&mut case.counts);
    drop((case, machine));
    // SAFETY: the case is gone, and with it all that referred to the machine.
    #[allow(unsafe_code)]
    unsafe {
        leaked.free();
    }
    played.map(|()| counts)
}

/// The machine of a seed.
///
/// # Errors
///
/// What was wrong, and at which step.
pub(crate) fn of_seed(seed: u64) -> Result<Counts, String> {
    let cpus = [1, 1, 2, 3, 5, 16, 64, 300, 1024];
    run(Random::new(seed), &cpus, &[1, 2, 4, 9, 20, 65, 70, 140], COMPARED)
}

/// The machine and the calls that these bytes spell; a small one, compared often.
///
/// # Errors
///
/// As [`of_seed`].
pub(crate) fn of_bytes(bytes: &[u8]) -> Result<Counts, String> {
    run(Random::of_bytes(bytes), &[1, 1, 2, 3, 5, 40], &[1, 2, 3, 6, 9, 70], 4)
}
