//! An example is a program that people copy: it is run here, short, and its counts are checked.

#[allow(dead_code, reason = "an example is a program; its `main` is not called here")]
#[path = "../../examples/how-full.rs"]
pub(crate) mod how_full;

/// What a cache of any lengths leaves free is in as many whole blocks as what it leaves when each
/// entry is cut from the next larger power of two, and the same history has the same outcome.
#[test]
fn runs_of_any_length_leave_as_many_whole_blocks_as_chunks_do() {
    use how_full::How;
    for mix in how_full::mixes() {
        let left = |how| how_full::left(64 << 20, mix, how).unwrap();
        let ((used, runs), (_, chunks)) = (left(How::Run), left(How::Chunk));
        eprintln!("{}: {used} frames in use, {runs} and {chunks} whole blocks", mix.0);
        assert_eq!(left(How::Run), (used, runs), "{}", mix.0);
        assert!(runs >= chunks, "{}: {runs} blocks, and {chunks} by chunks", mix.0);
    }
}
