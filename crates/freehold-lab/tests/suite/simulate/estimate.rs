//! What a replay's answer says of more CPUs, beside the simulation of them: the one is a queue's
//! mean, the other plays the queue call by call.

use freehold_lab::model::Family;
use freehold_lab::simulate::{Kind, Model, Row, Scenario, simulate};
use freehold_lab::zone_lock::LockUse;

/// Many CPUs of vanilla, each as busy as a CPU of a kernel build.
fn row(cpus: u16, model: &Model) -> Row {
    let vanilla = "vanilla".parse().unwrap();
    let one = Scenario::new(vanilla, Kind::KernelBuildLike, cpus, 1 << 20);
    simulate(&Scenario { measured: Some(100_000), ..one }, model).unwrap()
}

/// What was done under the lock, with so many steps that a hold takes as long as it did.
fn used(row: &Row, model: &Model) -> LockUse {
    let (holds, span_ns) = (row.zone_lock_acquisitions, row.simulated_ns);
    let bare = LockUse { holds, steps: 0, square_steps: 0.0, refilled: 0, cpus: row.cpus, span_ns };
    let costs = &model.engines[&Family::Lists];
    let step_ns = f64::midpoint(costs.refill_step_ns, costs.drain_step_ns);
    let held_ns = row.zone_lock_busy_share * span_ns as f64;
    let steps = (held_ns - bare.hold_ns(model, row.cpus) * holds as f64) / step_ns;
    LockUse { steps: steps.max(0.0) as u64, ..bare }
}

#[test]
fn the_wait_of_many_cpus_is_a_floor_of_the_simulated_one() {
    let model = Model::standard();
    let few = row(2, &model);
    let used = used(&few, &model);
    let (held, seen) = (used.held_share(&model), few.zone_lock_busy_share);
    assert!((held - seen).abs() < seen / 10.0, "held {held}, simulated {seen}");
    let mut before = 0.0;
    for cpus in [16, 64] {
        let (said, seen) =
            (used.waiting_share(&model, cpus), row(cpus, &model).zone_lock_wait_share);
        println!("{cpus} CPUs: said {said:.4}, simulated {seen:.4}");
        // The simulated CPUs come in bursts, which the estimate leaves out.
        assert!(said < seen, "{cpus} CPUs: said {said}, simulated {seen}");
        assert!(said > before, "the more CPUs, the longer");
        before = said;
    }
}
