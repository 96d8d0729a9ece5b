//! The cost model: what each step of a call takes, in nanoseconds, on one machine.
//!
//! Every constant is measured by itself by `freehold calibrate` ([`super::calibrate`] says how), never fitted to the
//! workloads that a validation compares. Which step a call takes is not modelled: the engine itself is run, and says.
//!
//! ```text
//!   call = local cost                              alloc_ns, free_ns, batch_free_ns, remote_free_ns
//!        + changes under the CPU's own lock        pcp_step_ns, merge_step_ns
//!        + waiting for a lock                      the queue (super::lock)
//!        + each hold of the zone lock              hold_ns + steps x refill_step_ns or drain_step_ns
//!              the first after another CPU's       + bounce_ns: the lock's line and what it protects
//!        + each heavy barrier                        barrier_ns x the other CPUs
//!        + lines that another CPU wrote            transfer_ns where the next step waits for it, line_ns in a run,
//!                                                  chain_ns along a list
//!              on another socket                   x socket_factor
//! ```

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::engine::Family;

/// What one family of engines costs by itself, on one CPU, its lines at hand. Nanoseconds.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EngineCosts {
    /// A frame allocated from what the CPU holds.
    pub alloc_ns: f64,
    /// A frame freed to the CPU itself.
    pub free_ns: f64,
    /// The same in a batch of 31, each.
    pub batch_free_ns: f64,
    /// A frame freed that another CPU owns or holds, each line already there; for freehold, into a word that another CPU
    /// wrote last.
    pub remote_free_ns: f64,
    /// A step of a hold by an allocation.
    pub refill_step_ns: f64,
    /// A step of a hold by a free.
    pub drain_step_ns: f64,
    /// A chunk split, merged or taken over by the CPU; for freehold, a block collected.
    pub pcp_step_ns: f64,
    /// A list entry that a merge pass looks at.
    pub merge_step_ns: f64,
}

/// All constants, and the machine they were measured on.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    pub machine: String,
    /// CPUs it had.
    pub measured_cpus: u16,
    /// An uncontended atomic read-modify-write.
    pub rmw_ns: f64,
    /// A line handed to another core that waits for it, as every locked read-modify-write does.
    pub transfer_ns: f64,
    /// A line that another core wrote, in a run of such lines that is read and written by plain instructions: their
    /// transfers overlap.
    pub line_ns: f64,
    /// The same where each line names the next, as on a list: their transfers do not overlap.
    pub chain_ns: f64,
    /// How much longer from another socket. Not measured where there is one socket only.
    pub socket_factor: f64,
    pub cores_per_socket: u16,
    /// Taking and leaving an uncontended zone lock.
    pub hold_ns: f64,
    /// What a hold takes longer where another CPU had the lock before.
    pub bounce_ns: f64,
    /// A heavy barrier, for each other CPU that it makes pass one: measured with one, and so for many an upper bound, since
    /// their interrupts overlap. 0 in models that were measured before it was: then it is free.
    #[serde(default)]
    pub barrier_ns: f64,
    /// Sending or receiving a message of 64 frames through a ring.
    pub message_ns: f64,
    /// Writing a frame full of zeros, as a page fault does.
    pub zero_frame_ns: f64,
    /// What the step of a workload costs by itself, with an engine that does nothing.
    pub caller_ns: f64,
    pub engines: BTreeMap<Family, EngineCosts>,
    /// What it said beside real threads on that machine (`freehold simulate --validate`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub validated: Vec<Validated>,
}

/// A workload that was run on real threads as well.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Validated {
    pub workload: String,
    pub engine: String,
    /// CPUs, and threads.
    pub cpus: u16,
    /// Simulated frames a second beside measured ones: how many per cent more.
    pub difference_percent: f64,
}

/// The model that is used where none is given.
const DEFAULT: &str = include_str!("default_model.json");

#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    #[error("not a model that 'freehold calibrate' wrote: {0}")]
    Malformed(#[from] serde_json::Error),
    #[error("the model's {name} is {value}: it must be a number of at least {least}")]
    Constant { name: String, value: f64, least: f64 },
    #[error("the model has no costs for engines like {0}")]
    Missing(&'static str),
}

impl Model {
    /// The checked-in one.
    ///
    /// # Panics
    ///
    /// Never: a test reads it.
    pub fn standard() -> Self {
        Self::parse(DEFAULT).expect("the checked-in model is read by a test")
    }

    /// Reads what `freehold calibrate --output` wrote.
    pub fn parse(text: &str) -> Result<Self, ModelError> {
        let model: Self = serde_json::from_str(text)?;
        for (name, value, least) in model.constants() {
            if !value.is_finite() || value < least {
                return Err(ModelError::Constant { name, value, least });
            }
        }
        match Family::ALL.into_iter().find(|family| !model.engines.contains_key(family)) {
            Some(family) => Err(ModelError::Missing(family.measured_on())),
            None => Ok(model),
        }
    }

    /// Each constant's median in these, which were measured on one machine; of an even number of them the upper one.
    ///
    /// # Panics
    ///
    /// If there are none.
    pub fn median(models: &[Self]) -> Self {
        let middle = |of: &dyn Fn(&Self) -> f64| {
            let mut all: Vec<f64> = models.iter().map(of).collect();
            all.sort_by(f64::total_cmp);
            all[all.len() / 2]
        };
        let engine = |family: &Family| {
            let costs = |of: fn(&EngineCosts) -> f64| middle(&|model| of(&model.engines[family]));
            EngineCosts {
                alloc_ns: costs(|c| c.alloc_ns),
                free_ns: costs(|c| c.free_ns),
                batch_free_ns: costs(|c| c.batch_free_ns),
                remote_free_ns: costs(|c| c.remote_free_ns),
                refill_step_ns: costs(|c| c.refill_step_ns),
                drain_step_ns: costs(|c| c.drain_step_ns),
                pcp_step_ns: costs(|c| c.pcp_step_ns),
                merge_step_ns: costs(|c| c.merge_step_ns),
            }
        };
        Self {
            rmw_ns: middle(&|m| m.rmw_ns),
            transfer_ns: middle(&|m| m.transfer_ns),
            line_ns: middle(&|m| m.line_ns),
            chain_ns: middle(&|m| m.chain_ns),
            hold_ns: middle(&|m| m.hold_ns),
            bounce_ns: middle(&|m| m.bounce_ns),
            barrier_ns: middle(&|m| m.barrier_ns),
            message_ns: middle(&|m| m.message_ns),
            zero_frame_ns: middle(&|m| m.zero_frame_ns),
            caller_ns: middle(&|m| m.caller_ns),
            engines: models[0].engines.keys().map(|family| (*family, engine(family))).collect(),
            ..models[0].clone()
        }
    }

    /// Every number by name, and the least it may be.
    pub fn constants(&self) -> Vec<(String, f64, f64)> {
        let mut all: Vec<(String, f64, f64)> = [
            ("rmw_ns", self.rmw_ns),
            ("transfer_ns", self.transfer_ns),
            ("line_ns", self.line_ns),
            ("chain_ns", self.chain_ns),
            ("hold_ns", self.hold_ns),
            ("bounce_ns", self.bounce_ns),
            ("barrier_ns", self.barrier_ns),
            ("message_ns", self.message_ns),
            ("zero_frame_ns", self.zero_frame_ns),
            ("caller_ns", self.caller_ns),
        ]
        .map(|(name, value)| (name.to_owned(), value, 0.0))
        .to_vec();
        all.push(("socket_factor".into(), self.socket_factor, 1.0));
        all.push(("cores_per_socket".into(), f64::from(self.cores_per_socket), 1.0));
        for (family, costs) in &self.engines {
            let EngineCosts {
                alloc_ns,
                free_ns,
                batch_free_ns,
                remote_free_ns,
                refill_step_ns,
                drain_step_ns,
                pcp_step_ns,
                merge_step_ns,
            } = *costs;
            let costs = [
                ("alloc_ns", alloc_ns),
                ("free_ns", free_ns),
                ("batch_free_ns", batch_free_ns),
                ("remote_free_ns", remote_free_ns),
                ("refill_step_ns", refill_step_ns),
                ("drain_step_ns", drain_step_ns),
                ("pcp_step_ns", pcp_step_ns),
                ("merge_step_ns", merge_step_ns),
            ];
            all.extend(costs.map(|(name, value)| (format!("{}: {name}", family.measured_on()), value, 0.0)));
        }
        all
    }

    /// How far off this workload was with this engine, in per cent, on the most CPUs that it was compared on.
    pub fn validated(&self, workload: &str, engine: &str) -> Option<f64> {
        let same = self.validated.iter().filter(|row| row.workload == workload && row.engine == engine);
        same.max_by_key(|row| row.cpus).map(|row| row.difference_percent)
    }

    /// Whether two CPUs are on different sockets.
    pub fn across(&self, a: u16, b: u16) -> bool {
        a / self.cores_per_socket != b / self.cores_per_socket
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_standard_model_is_read_and_sockets_are_told_apart() {
        let model = Model::standard();
        assert_eq!(model.engines.len(), 4);
        let per = model.cores_per_socket;
        assert!(!model.across(0, per - 1) && model.across(per - 1, per));
    }

    #[test]
    fn the_median_of_runs_is_each_constants() {
        let with = |rmw_ns: f64, transfer_ns: f64, alloc_ns: f64| {
            let mut model = Model { rmw_ns, transfer_ns, ..Model::standard() };
            model.engines.values_mut().for_each(|costs| costs.alloc_ns = alloc_ns);
            model
        };
        let models = [with(1.0, 9.0, 5.0), with(3.0, 7.0, 4.0), with(2.0, 8.0, 6.0)];
        assert_eq!(Model::median(&models), with(2.0, 8.0, 5.0));
        assert_eq!(Model::median(&models[..1]), models[0]);
    }

    #[test]
    fn nonsense_is_refused() {
        let change = |from: &str, to: &str| Model::parse(&DEFAULT.replacen(from, to, 1));
        assert!(matches!(change("\"rmw_ns\": ", "\"rmw_ns\": -"), Err(ModelError::Constant { .. })));
        assert!(matches!(change("rmw_ns", "rmv_ns"), Err(ModelError::Malformed(_))));
        assert!(Model::parse("{}").is_err());
    }
}
