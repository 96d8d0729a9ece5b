//! The examples are programs that people copy: each is run here, short, and its exact counts are
//! checked.

#[allow(dead_code, reason = "an example is a program; its `main` is not called here")]
#[path = "../../examples/buffer-pool.rs"]
mod buffer_pool;
#[allow(dead_code, reason = "an example is a program; its `main` is not called here")]
#[path = "../../examples/how-full.rs"]
mod how_full;

#[test]
fn the_buffer_pool_loses_no_write_and_keeps_to_its_frames() {
    for threads in [1, 2] {
        let options =
            buffer_pool::Options { accesses: 6000, pages: 800, arena_bytes: 4 << 20, threads };
        let report = buffer_pool::run(&options).unwrap();
        assert_eq!(
            report.hits + report.misses,
            12_000,
            "each access fetches two pages: {report:?}"
        );
        assert_eq!((report.writes, report.writes_found), (2000, 2000), "{report:?}");
        // 800 pages need 1850 frames and there are 1024: it must have evicted, and been full.
        assert!(report.evictions > 0 && report.evictions < report.misses, "{report:?}");
        assert!(
            report.write_backs > 0 && report.most_frames > 1000 && report.most_frames <= 1024,
            "{report:?}"
        );
        assert!(report.hits > report.misses / 2, "the accesses are skewed: {report:?}");
        assert_eq!(report.frames_left, 0);
    }
}

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
