/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Included in mm/compaction.c, for its own functions: the compaction of a zone of Freehold's, in
 * place of the two scanners. The board says which block is emptied next, the one with least in use,
 * and each folio moves to where an ordinary movable request is served (fh_isolate_target()). Nobody
 * allocates from a block meanwhile. What is asked for may be the block that has become whole: then
 * the caller has it (capture), before anybody else can.
 *
 * As with scanners that have met, compaction has come to its end where no block is left, or no room
 * outside of whole blocks: cc->free_pfn tells compact_finished(). Blocks that could not be emptied
 * are noted, and left out until the notes are cleared; a compaction of the highest priority heeds
 * none.
 */

#ifdef CONFIG_PAGE_ALLOC_FREEHOLD
/* Some of a block cannot be moved, so the rest of it need not be. */
#define FH_STAYS 1

/* Moves what is in use of a block. 0, FH_STAYS, or -ENOMEM and others: why compaction ends. */
static int fh_move_block(struct compact_control *cc, unsigned long start, isolate_mode_t mode)
{
	unsigned long end = start + pageblock_nr_pages, from = start;

	/* What was moved before is on its list. */
	lru_add_drain();
	for (cc->migrate_pfn = start; from < end; from = cc->migrate_pfn) {
		unsigned int moved, wanted;
		bool stays;
		int err = isolate_migratepages_block(cc, from, end, mode);

		wanted = cc->nr_migratepages;
		/* A folio may reach beyond what was looked at, never into another block. */
		stays = !err && fh_used_in(from, cc->migrate_pfn) > wanted;
		if (!err && wanted && !(stays && fh_needs_all(cc->order))) {
			err = migrate_pages(&cc->migratepages, compaction_alloc, compaction_free,
					    (unsigned long)cc, cc->mode, MR_COMPACTION, &moved);
			trace_mm_compaction_migratepages(wanted, moved);
			stays |= err > 0;
		}
		cc->nr_migratepages = 0;
		putback_movable_pages(&cc->migratepages);
		if (err < 0)
			return err;
		if (stays && fh_needs_all(cc->order))
			return FH_STAYS;
		if (!fh_needs_all(cc->order) && fh_block_serves(start, cc->order))
			return 0;
	}
	return fh_block_serves(start, cc->order) ? 0 : FH_STAYS;
}

/* What was begun together is emptied, though the first block may be all that is wanted. */
static bool fh_goes_on(struct compact_control *cc, struct capture_control *capc,
		       struct fh_sources *sources, enum compact_result *ret)
{
	if (fh_is_begun(sources))
		return true;
	*ret = capc && capc->page ? COMPACT_SUCCESS : compact_finished(cc);
	/* Places that are left are of a block that may be next. */
	if (release_free_list(cc->freepages))
		fh_places_are_free(cc);
	cc->nr_freepages = 0;
	return *ret == COMPACT_CONTINUE;
}

static enum compact_result fh_compact(struct compact_control *cc, struct capture_control *capc)
{
	const isolate_mode_t mode =
		(sysctl_compact_unevictable_allowed ? ISOLATE_UNEVICTABLE : 0) |
		(cc->mode != MIGRATE_SYNC ? ISOLATE_ASYNC_MIGRATE : 0);
	const bool heeds_notes = !cc->ignore_skip_hint;
	struct fh_sources sources = {};
	enum compact_result ret;

	/*
	 * A block that others share is not emptied for a small chunk of another type in passing.
	 * What looks at nothing is no reason to clear notes.
	 */
	if (cc->mode == MIGRATE_ASYNC && cc->direct_compaction && !fh_needs_all(cc->order) &&
	    cc->migratetype != MIGRATE_MOVABLE)
		return COMPACT_COMPLETE;
	if (!heeds_notes) {
		cc->zone->compact_blockskip_flush = true;
		__reset_isolation_suitable(cc->zone);
	}
	/* Notes are made below, of whole blocks; at the end there is none without. */
	cc->ignore_skip_hint = cc->no_set_skip_hint = cc->whole_zone = true;
	cc->migrate_pfn = pageblock_start_pfn(cc->zone->zone_start_pfn);
	cc->free_pfn = ULONG_MAX;
	while (fh_goes_on(cc, capc, &sources, &ret)) {
		unsigned long block;
		int err;

		if (!fh_next_source(cc, &sources)) {
			if (fatal_signal_pending(current)) {
				ret = COMPACT_CONTENDED;
				break;
			}
			cc->free_pfn = 0;
			continue;
		}
		block = sources.last;
		err = fh_move_block(cc, block, mode);
		if (err == -EAGAIN || err == -EINTR) {
			ret = COMPACT_CONTENDED;
			break;
		}
		if (capc && !err && !capc->page)
			WRITE_ONCE(capc->page, fh_capture(cc, block));
		fh_end_source(&sources, err == FH_STAYS || err == -ENOMEM);
		/* A large folio may lack a place, and be split by nobody. */
		if (err == -ENOMEM && !fh_isolate_target(cc, 0))
			cc->free_pfn = 0;
		/* Who waits for a block waits for one, not for all that were begun together. */
		if (!cc->free_pfn || atomic_read(&fh_waiting))
			fh_end_sources(&sources);
		cc->migrate_pfn = block + pageblock_nr_pages;
	}
	fh_end_sources(&sources);
	cc->ignore_skip_hint = !heeds_notes;
	cc->no_set_skip_hint = false;
	return ret;
}
#else
static inline enum compact_result fh_compact(struct compact_control *cc,
					     struct capture_control *capc)
{
	return COMPACT_SKIPPED;
}
#endif
