//! Tests of the kernel's design: its rules, the proposals' switches, and random histories. One
//! program, since each takes seconds to link.

mod model_ops;
mod model_support;
mod patch_2022;
mod patch_contig;
mod patch_pcp_buddy;
mod patch_questions;
mod patch_review;
mod rules_buddy;
mod rules_contig;
mod rules_drain;
mod rules_fallback;
mod rules_nodes;
mod rules_pcp;
mod rules_range;
mod rules_refill;
mod rules_reserve;
mod sparing;
mod stress_threads;
mod support;
