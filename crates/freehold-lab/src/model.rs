//! The cost model: what each step of a call takes, in nanoseconds, on one machine.
//!
//! Every constant was measured by itself, as its field says, on the machine that the model names;
//! none was fitted to the workloads that it was compared on. Which step a call takes is not
//! modelled: the engine itself is run, and says.
//!
//! ```text
//!   call = local cost                          alloc_ns, free_ns, batch_free_ns, remote_free_ns
//!        + changes under the CPU's own lock    pcp_step_ns, merge_step_ns
//!        + waiting for a lock                  the queue: of the simulation, or by its mean
//!                                              (crate::zone_lock)
//!        + each hold of the zone lock          hold_ns + steps x refill_step_ns or drain_step_ns
//!              the first after another CPU's   + bounce_ns: the lock's line and what it protects
//!        + each heavy barrier                  barrier_ns x the other CPUs
//!        + lines that another CPU wrote        transfer_ns where the next step waits for it,
//!                                              line_ns in a run, chain_ns along a list
//!              on another socket               x socket_factor
//! ```

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// How a design shares its lists, which is what the cost of a call depends on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Family {
    /// A CPU frees to its own lists: every kernel up to 7.3.
    Lists,
    /// A free goes to the lists of the pageblock's owner, under that CPU's lock: pcp-buddy as
    /// posted.
    Owners,
    /// A free goes to a lock-free list of the pageblock's owner: pcp-buddy with `remote-list`.
    OwnersRemoteList,
    /// A free sets a bit of its block, by one atomic where another CPU holds the block: freehold.
    Freehold,
}

/// What one family of engines costs by itself, on one CPU, its lines at hand. Nanoseconds.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EngineCosts {
    /// A frame allocated from what the CPU holds.
    pub alloc_ns: f64,
    /// A frame freed to the CPU itself.
    pub free_ns: f64,
    /// A frame freed to the CPU itself in a batch of 31.
    pub batch_free_ns: f64,
    /// A frame freed that another CPU owns or holds, each line already there; for freehold, into a
    /// word that another CPU wrote last.
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
    /// A line that another core wrote, in a run of such lines that is read and written by plain
    /// instructions: their transfers overlap.
    pub line_ns: f64,
    /// A line in a run of such lines of which each names the next, as on a list: their transfers do
    /// not overlap.
    pub chain_ns: f64,
    /// How much longer from another socket. Not measured where there is one socket only.
    pub socket_factor: f64,
    pub cores_per_socket: u16,
    /// Taking and leaving an uncontended zone lock.
    pub hold_ns: f64,
    /// What a hold takes longer where another CPU had the lock before.
    pub bounce_ns: f64,
    /// A heavy barrier, for each other CPU that it makes pass one: measured with one, and so for
    /// many an upper bound, since their interrupts overlap.
    pub barrier_ns: f64,
    /// Sending or receiving a message of 64 frames through a ring.
    pub message_ns: f64,
    /// Writing a frame full of zeros, as a page fault does.
    pub zero_frame_ns: f64,
    /// What the step of a workload costs by itself, with an engine that does nothing.
    pub caller_ns: f64,
    pub engines: BTreeMap<Family, EngineCosts>,
}

const DEFAULT: &str = include_str!("default_model.json");

impl Model {
    /// The checked-in one.
    ///
    /// # Panics
    ///
    /// Never: a test reads it.
    pub fn standard() -> Self {
        serde_json::from_str(DEFAULT).expect("the checked-in model is read by a test")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_standard_model_has_every_family_and_its_constants_are_times() {
        let model = Model::standard();
        assert_eq!(model.engines.len(), 4);
        let json = serde_json::to_string(&model).unwrap();
        assert!(!json.contains(":-") && !json.contains("null"), "{json}");
    }
}
