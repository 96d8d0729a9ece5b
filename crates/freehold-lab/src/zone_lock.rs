//! Whether the zone lock is a problem: how long a replay says it was held, and what the cost
//! model makes of that on machines with more CPUs.
//!
//! ```text
//!  counts of a replay ── holds, steps ─┐
//!  the model ── hold_ns, step_ns ──────┼─> a hold takes S(n) with n CPUs
//!     bounce_ns, chain_ns, sockets ────┘
//!  the recording ── its time and CPUs ──> a CPU asks once every Z + S(recorded CPUs)
//!
//!      n CPUs, each:  [====== Z: else ======][ wait ][ S(n) ]   one lock, first come first served
//! ```
//!
//! Each of the n CPUs is taken to do what one of the recorded did, in its time. A lock that n
//! customers come back to is a closed queue; how long they wait is computed by mean value analysis
//! (M. Reiser and S. S. Lavenberg, "Mean-Value Analysis of Closed Multichain Queuing Networks",
//! JACM 27(2), 1980), with what is left of the hold that an arriving CPU finds (its mean square
//! over twice its mean) for holds of unequal length. **It is a floor**: the CPUs' requests are
//! taken to come evenly, and in a real machine, as in the simulation (`freehold simulate`), they
//! come in bursts. A test of the simulation's crate holds the two beside each other.

use crate::model::{Family, Model};

/// What was done under a zone's lock by so many CPUs in so much time.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LockUse {
    pub holds: u64,
    /// Steps of work in all of them.
    pub steps: u64,
    pub square_steps: f64,
    /// Frames that came off the zone's lists in them.
    pub refilled: u64,
    /// CPUs that took part; at least 1.
    pub cpus: u16,
    /// The time in which they did it, nanoseconds.
    pub span_ns: u64,
}

impl LockUse {
    /// What a hold takes by itself and for each step, nanoseconds, where any of `cpus` CPUs is as
    /// likely to have had the lock, and to have freed a frame, before.
    ///
    /// A step costs what it does in the kernel's designs, the mean of a refill's and a drain's, and
    /// a share of the lines of frames that others freed: a line for each frame that came off a
    /// list, and no more than steps, since what comes in larger chunks is one step. The lock's own
    /// line and those that it protects come from whoever held it, who may be on another socket.
    fn costs(&self, model: &Model, cpus: u16) -> (f64, f64) {
        let costs = &model.engines[&Family::Lists];
        let step_ns = f64::midpoint(costs.refill_step_ns, costs.drain_step_ns);
        let (all, near) = (f64::from(cpus), f64::from(cpus.min(model.cores_per_socket)));
        let bounces = ((near - 1.0) + (all - near) * model.socket_factor) / all;
        let refilled = self.refilled.min(self.steps);
        let lines = refilled as f64 / self.steps.max(1) as f64 * (all - 1.0) / all;
        (model.hold_ns + bounces * model.bounce_ns, step_ns + lines * model.chain_ns)
    }

    /// How long a hold takes on average with so many CPUs, nanoseconds.
    pub fn hold_ns(&self, model: &Model, cpus: u16) -> f64 {
        let (alone, step) = self.costs(model, cpus);
        alone + step * self.steps as f64 / self.holds.max(1) as f64
    }

    /// What is left on average of a hold that is found under way: its mean square over twice its
    /// mean.
    fn left_ns(&self, model: &Model, cpus: u16) -> f64 {
        let (alone, step) = self.costs(model, cpus);
        let steps = self.steps as f64 / self.holds.max(1) as f64;
        let square = self.square_steps.max(steps * steps);
        let all = alone * alone + 2.0 * alone * step * steps + step * step * square;
        all / (2.0 * self.hold_ns(model, cpus))
    }

    /// The share of the time that the lock was held.
    pub fn held_share(&self, model: &Model) -> f64 {
        self.hold_ns(model, self.cpus) * self.holds as f64 / self.span_ns.max(1) as f64
    }

    /// The share of their time that `cpus` CPUs would spend waiting for the lock at least, each
    /// doing what one of the recorded did. Time in proportion to `cpus`.
    pub fn waiting_share(&self, model: &Model, cpus: u16) -> f64 {
        if self.holds == 0 {
            return 0.0;
        }
        let between = self.span_ns as f64 * f64::from(self.cpus) / self.holds as f64;
        let think = (between - self.hold_ns(model, self.cpus)).max(0.0);
        waiting(think, self.hold_ns(model, cpus), self.left_ns(model, cpus), cpus)
    }
}

/// The share of its time that each of `customers` waits at one server, where it does something else
/// for `think` after each service of `service`, of which `left` is left when it is found under way.
fn waiting(think: f64, service: f64, left: f64, customers: u16) -> f64 {
    // With one customer fewer: those at the server, the one that is served among them, and how much
    // of the time it serves.
    let (mut queue, mut busy, mut share) = (0.0, 0.0, 0.0);
    for n in 1..=customers {
        let wait = (queue - busy) * service + busy * left;
        let round = think + wait + service;
        let rate = f64::from(n) / round;
        queue = rate * (wait + service);
        busy = f64::min(rate * service, 1.0);
        share = wait / round;
    }
    share
}

#[cfg(test)]
mod tests {
    use super::*;

    const USE: LockUse = LockUse {
        holds: 1000,
        steps: 20_000,
        square_steps: 400.0,
        refilled: 0,
        cpus: 2,
        span_ns: 100_000_000,
    };

    #[test]
    fn a_queue_of_one_waits_for_nobody_and_a_full_lock_serves_one_at_a_time() {
        assert_eq!(waiting(10.0, 5.0, 5.0, 1), 0.0);
        // Two: one finds the other there for the share of time that the other is.
        let two = waiting(10.0, 5.0, 5.0, 2);
        let stay = 5.0 * (1.0 + 5.0 / 15.0);
        assert!((two - (stay - 5.0) / (10.0 + stay)).abs() < 1e-12, "{two}");
        // Full: each gets a 256th of the lock's time, so a round takes 256 services.
        let full = waiting(10.0, 5.0, 5.0, 256);
        assert!((full - (256.0 * 5.0 - 15.0) / (256.0 * 5.0)).abs() < 1e-6, "{full}");
        // Holds of unequal length are found when they are long.
        assert!(waiting(10.0, 5.0, 9.0, 2) > two && two > waiting(10.0, 5.0, 2.5, 2));
    }

    #[test]
    fn a_hold_costs_its_steps_and_the_line_from_whoever_had_it() {
        let model = Model::standard();
        let costs = &model.engines[&Family::Lists];
        let alone = USE.hold_ns(&model, 1);
        let steps = 20.0 * f64::midpoint(costs.refill_step_ns, costs.drain_step_ns);
        assert!((alone - model.hold_ns - steps).abs() < 1e-9, "{alone}");
        assert!((USE.hold_ns(&model, 2) - alone - model.bounce_ns / 2.0).abs() < 1e-9);
        // Two sockets: of 128 CPUs 63 others are near, 64 far.
        let both = (63.0 + 64.0 * model.socket_factor) / 128.0 * model.bounce_ns;
        assert_eq!(model.cores_per_socket, 64);
        // Frames that one of the other CPUs freed bring their lines.
        let refilled = LockUse { refilled: 10_000, ..USE };
        let lines = refilled.hold_ns(&model, 4) - USE.hold_ns(&model, 4);
        assert!((lines - 10.0 * 0.75 * model.chain_ns).abs() < 1e-9, "{lines}");
        let blocks = LockUse { refilled: 1_000_000, ..USE };
        let lines = blocks.hold_ns(&model, 4) - USE.hold_ns(&model, 4);
        assert!((lines - 20.0 * 0.75 * model.chain_ns).abs() < 1e-9, "a line a step: {lines}");
        assert!((USE.hold_ns(&model, 128) - alone - both).abs() < 1e-9);
    }

    #[test]
    fn shares_grow_with_use_and_cpus_and_nobody_waits_for_what_nobody_takes() {
        let model = Model::standard();
        let held = USE.held_share(&model);
        assert!(held > 0.0 && held < 0.05, "{held}");
        let twice = LockUse { holds: 2000, steps: 40_000, ..USE };
        assert!((twice.held_share(&model) - 2.0 * held).abs() < 1e-12);
        let shares = [2, 16, 64, 256].map(|cpus| USE.waiting_share(&model, cpus));
        assert!(shares.is_sorted() && shares[3] < 1.0, "{shares:?}");
        assert!(twice.waiting_share(&model, 64) > shares[2]);
        let none = LockUse { holds: 0, steps: 0, ..USE };
        assert_eq!((none.held_share(&model), none.waiting_share(&model, 256)), (0.0, 0.0));
    }
}
