//! A model of the allocator's protocol, of which every interleaving of a few CPUs on a little
//! memory is searched.
//!
//! | file | what |
//! |---|---|
//! | [`protocol`] | the state: blocks, words, leases, CPUs and what each has still to do |
//! | `steps` | the calls, one atomic step at a time |
//! | `ahead` | steps that may be made together |
//! | `check` | what must be true of the state |
//! | `names` | what is the same but for names |
//! | [`search`] | which calls may begin when; the way home from every quiet state |
//! | [`wide`] | the same search where there are too many worlds to keep |
//!
//! What is modelled, what is left out, and what was found: `docs/model.md`.

mod ahead;
mod check;
mod few;
mod names;
#[allow(missing_docs)] // said at the end of each line
pub mod protocol;
pub mod search;
mod steps;
pub mod wide;

/// What a step does. The names are those of the functions of `crates/freehold` where there is one.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[rustfmt::skip]
pub enum Kind {
    // Doors and locks.
    Enter, Leave, Lock, Unlock,
    // Allocating.
    Alloc, Hint, HintLook, Source, Pick, TakeOf, TakeWhole, AllocBlock, BlockFrom, Recall, CollectAll,
    // Words go to a CPU and come back.
    Lease, LeaseCas, TakeWord, Look, LeaseBack, Replenish, SetEmpty, Revive, Revive2,
    EndLease, Close, Unname, EndTell, GiveBack, PutBack,
    // A holder is told, and looks.
    Tell, Queue, Route, Push, Unqueue, Again, Collect, Accept, Relist, Accept2,
    File, FileWord, RetireLease, RetireTake, RetireEnd, FileEnd, FileIfOurs, SetSplit, Fill, List,
    // Freeing.
    FreeEnter, FreeHand, FreeTag, FreeSplit, FreeEmpty, FreeOpen, FreeChoose, FreeLook, FreePut, FreeBlock, FreeEnd,
    // CPUs and memory come and go.
    SetOnline, GroupGone, GiveAll, Give, LeaveToZone, LeaveToZone2,
    Isolate, Isolate2, EndIsolatedLeases, AwaitLeases, Empty, Remove, RemoveWord, Add, Restore,
}

/// A step made wrongly on purpose: the search must find each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    /// Whoever gets into a CPU's state does not look whether it is online still.
    OfflineWithoutLook,
    /// Whoever takes an EMPTY lease over leaves its name there.
    ThiefKeepsTheLease,
    /// The class is read before the frame is put.
    AnnounceBeforePut,
    /// The lister reads the words first and sets the class to 0 then.
    ClassAfterWords,
    /// The tag is not looked at again after a word was taken.
    LeaseWithoutLook,
    /// The leaseholder's hand is looked at after the frame was put.
    LookAfterPut,
    /// A lease is given up before the frames are back.
    UnnamedBeforePutBack,
    /// Whoever takes a frame past the leases does not look at tag and lease again.
    HintWithoutLook,
    /// An allocation from the hand does not look at the word.
    NoLookAtTheWord,
    /// A whole block on its way to a group says that it is there already.
    TransitUnmarked,
    /// A request fails without asking other CPUs.
    FailWithoutRecall,
    /// A request fails without looking at whole blocks that other groups keep.
    OthersKeepWholeBlocks,
    /// Memory goes without every CPU having left its state once.
    NoPassThroughTheDoors,
    /// A whole block that was announced is not isolated before its holder has looked, which may
    /// have no reason to.
    IsolationWaitsForALook,
    /// Who has marked a block that nobody is to be told of does not look whether that has changed.
    AnnounceLooksOnce,
}

/// What is searched.
#[derive(Clone, Debug)]
pub struct Settings {
    /// CPUs: 1 to 3, of which 0 and 1 are one group.
    pub cpus: u8,
    /// Blocks: 1 or 2.
    pub blocks: u8,
    /// Wrong frees, hotplugs of CPUs, isolations of memory, preemptions that may happen; 255
    /// preemptions are any number.
    pub budget: [u8; 4],
    /// Words that a CPU may lease at a time.
    pub leases: u8,
    /// A frame may also be taken past the leases, as by a hint.
    pub hints: bool,
    /// Whole blocks may be allocated and freed.
    pub whole: bool,
    /// Steps from the start to which the search goes; 0 is to the end.
    pub depth: usize,
    /// What is done wrongly.
    pub defect: Option<Defect>,
}
