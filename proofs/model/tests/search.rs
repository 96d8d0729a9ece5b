//! The protocol holds in every interleaving of these machines, and each rule left out is told.

use freehold_model::{Bug, Call, Machine, search};

/// Searched to the end, and nothing is wrong.
fn holds(machine: &Machine) {
    let outcome = search(machine);
    println!("{} worlds", outcome.worlds);
    if let Some((what, way)) = outcome.wrong {
        panic!("{what}, by\n{}", way.join("\n"));
    }
}

/// The search tells that the rule is left out.
fn is_told(bug: Bug, what: &str, machine: &Machine) {
    let outcome = search(&Machine { bug: Some(bug), ..machine.clone() });
    println!("{} worlds: {:?}", outcome.worlds, outcome.wrong.as_ref().map(|wrong| &wrong.0));
    let told = outcome.wrong.map(|(what, _)| what).unwrap_or_default();
    assert!(told.contains(what), "{bug:?}: {told:?} after {} worlds", outcome.worlds);
}

/// All frames of the first block but the lowest are free.
const NEARLY_WHOLE: u16 = 0b0001;

#[test]
fn frames_come_and_go() {
    holds(&Machine { used: 0b0110, ..Machine::new(&[Call::Frame, Call::Free, Call::Flush], 1) });
}

#[test]
fn frames_are_taken_past_the_leases() {
    holds(&Machine::new(&[Call::Straight, Call::Free], 2));
}

#[test]
fn a_block_becomes_whole_and_is_split_again() {
    let menu = [Call::Straight, Call::Free, Call::Block];
    holds(&Machine { used: NEARLY_WHOLE, ..Machine::new(&menu, 1) });
}

#[test]
fn blocks_and_runs_of_them() {
    let menu = [Call::Run, Call::Block, Call::FreeBlock, Call::Free];
    holds(&Machine { blocks: 2, ..Machine::new(&menu, 2) });
}

#[test]
fn two_types() {
    let menu = [Call::Frame, Call::Unmovable, Call::Free];
    holds(&Machine { used: 0b0111, ..Machine::new(&menu, 1) });
}

#[test]
fn a_block_is_isolated() {
    let menu = [Call::Isolate, Call::Frame, Call::Free, Call::Straight];
    holds(&Machine { used: NEARLY_WHOLE, ..Machine::new(&menu, 1) });
}

#[test]
fn three_cpus() {
    let menu = [Call::Free, Call::Block];
    holds(&Machine { cpus: 3, used: 0b0111, ..Machine::new(&menu, 1) });
}

#[test]
fn the_mark_is_kept() {
    let menu = [Call::Frame, Call::Free, Call::Block];
    holds(&Machine { mark: 2, used: 0b0001, ..Machine::new(&menu, 1) });
}

/// Two rules that nothing depends on where words are taken lowest first, each only if it is full:
/// the second of two CPUs that complete a block finds a word that is not, and looks once more; a
/// word that is just being leased is empty for the CPU that leases it.
#[test]
fn what_is_not_needed_for_safety() {
    for bug in [Bug::TwoMayRetire, Bug::RetireIgnoresLeases] {
        let menu = [Call::Free, Call::Straight, Call::Frame];
        holds(&Machine { used: 0b0101, bug: Some(bug), ..Machine::new(&menu, 1) });
    }
}

macro_rules! told {
    ($($name:ident: $bug:ident, $what:literal, $machine:expr;)*) => {$(
        #[test]
        fn $name() {
            is_told(Bug::$bug, $what, &$machine);
        }
    )*};
}

/// One block all of which is in use, as frames.
fn full(menu: &[Call], calls: u8) -> Machine {
    Machine { used: 0xf, ..Machine::new(menu, calls) }
}

/// All of it in use, and every bit of the board stale.
fn stale(menu: &[Call], calls: u8) -> Machine {
    Machine { stale: true, ..full(menu, calls) }
}

told! {
    no_second_look: NoSecondLook, "is said to have", full(&[Call::Straight, Call::Free], 2);
    look_before_lowering: LookBeforeLowering, "is said to have", full(&[Call::Straight, Call::Free], 2);
    stale_bit_without_look: StaleBitWithoutLook, "not on the board", stale(&[Call::Straight, Call::Free], 1);
    summary_without_look: SummaryWithoutLook, "not on the board", stale(&[Call::Straight, Call::Free], 2);
    bit_before_class: BitBeforeClass, "not on the board", full(&[Call::Straight, Call::Free], 2);
    retire_keeps_part: RetireKeepsPart, "counted", Machine { used: NEARLY_WHOLE, ..Machine::new(&[Call::Straight, Call::Free], 1) };
    lease_without_tag_check: LeaseWithoutTagCheck, "out of an isolated block", Machine { used: NEARLY_WHOLE, ..Machine::new(&[Call::Frame, Call::Free, Call::Isolate], 1) };
    straight_without_tag_check: StraightWithoutTagCheck, "out of an isolated block", Machine { used: NEARLY_WHOLE, ..Machine::new(&[Call::Straight, Call::Free, Call::Isolate], 1) };
    retries_the_same_block: RetriesTheSameBlock, "stopped thread", Machine { used: NEARLY_WHOLE, ..Machine::new(&[Call::Straight, Call::Free], 2) };
    waits_for_busy: WaitsForBusy, "stopped thread", Machine { used: 0b0101, ..Machine::new(&[Call::Free, Call::Straight], 1) };
    two_may_take_whole: TwoMayTakeWhole, "handed out twice", Machine { blocks: 2, ..Machine::new(&[Call::Block], 1) };
    run_without_undo: RunWithoutUndo, "counted", Machine { blocks: 3, ..Machine::new(&[Call::Run, Call::Block], 1) };
    end_lease_without_raise: EndLeaseWithoutRaise, "one CPU finds", Machine::new(&[Call::Frame, Call::Free, Call::Flush], 2);
    recall_does_not_await: RecallDoesNotAwait, "frames are lost", Machine { used: 0b1110, leased: true, ..Machine::new(&[Call::Frame], 1) };
    isolation_without_recall: IsolationWithoutRecall, "isolated block in hand", Machine { used: NEARLY_WHOLE, ..Machine::new(&[Call::Isolate, Call::Frame, Call::Free], 2) };
    isolation_by_tag_only: IsolationByTagOnly, "isolated block in hand", Machine { used: NEARLY_WHOLE, ..Machine::new(&[Call::Isolate, Call::Frame, Call::Free], 1) };
    restore_without_publishing: RestoreWithoutPublishing, "is said to have", Machine { used: NEARLY_WHOLE, ..Machine::new(&[Call::Isolate, Call::Free], 1) };
    put_back_uncounted: PutBackUncounted, "counted", Machine { used: NEARLY_WHOLE, ..Machine::new(&[Call::Straight, Call::Isolate], 1) };
    mark_without_deltas: MarkWithoutDeltas, "mark", Machine { mark: 3, blocks: 2, used: 0b0001, ..Machine::new(&[Call::Frame, Call::Free, Call::Block], 2) };
}

/// Two calls of each CPU, in which a block becomes whole, is split and given out again.
#[test]
#[ignore = "a minute or more"]
fn two_calls_of_each() {
    let menu = [Call::Straight, Call::Free, Call::Block];
    holds(&Machine { used: NEARLY_WHOLE, ..Machine::new(&menu, 2) });
}
