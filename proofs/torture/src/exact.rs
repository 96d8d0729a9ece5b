//! One thread on random machines: every answer is compared with a table of all frames.
//!
//! Machines have 1 to 1,024 CPUs, holes, several zones, CMA; memory and CPUs come and go, blocks
//! are isolated. A request that fails is searched for in the table: it may fail only where no chunk
//! is free that it may have.

use serde_json::{Value, json};

use crate::case::{Books, Case, Counts};
use crate::machine::Machine;
use crate::random::Random;

/// Calls on one machine.
const STEPS: u32 = 600;
/// Steps between two comparisons of the counts of all zones with the table.
const COMPARED: u32 = 64;

/// The machine of a seed.
fn case(seed: u64) -> Result<Case, String> {
    let mut random = Random::new(seed);
    let cpus = random.pick(&[1, 1, 2, 3, 5, 16, 64, 300, 1024]);
    let machine = Machine::new(&mut random, cpus, &[1, 2, 4, 9, 20, 65, 70, 140])?;
    let books = Books::table(&machine);
    Ok(Case::new(&machine, books, random))
}

/// All steps, and everything freed behind them.
fn run_one(case: &mut Case) -> Result<(), String> {
    for step in 1..=STEPS {
        case.step().map_err(|wrong| format!("step {step}: {wrong}"))?;
        if step % COMPARED == 0 {
            case.compare().map_err(|wrong| format!("step {step}: {wrong}"))?;
        }
    }
    case.compare()?;
    case.free_all()?;
    case.fh.drain_all();
    case.compare()?;
    match case.fh.platform().late() {
        0 => Ok(()),
        late => Err(format!("{late} right frees were told as double ones")),
    }
}

/// Plays the machines of these seeds; ends with the first that is wrong.
pub(crate) fn run(first: u64, seeds: u64) -> Value {
    let mut counts = Counts::default();
    for seed in first..first + seeds {
        let played = case(seed).and_then(|mut case| {
            let result = run_one(&mut case);
            counts.add(&case.counts);
            result
        });
        if let Err(wrong) = played {
            return json!({ "troubles": [format!("seed {seed}: {wrong}")] });
        }
    }
    json!({
        "troubles": [], "machines": seeds, "steps": counts.steps, "failures": counts.failures,
        "searched": counts.searched,
    })
}
