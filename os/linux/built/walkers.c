// SPDX-License-Identifier: GPL-2.0
/*
 * Compaction, isolation and contiguous ranges of Freehold's zones: walkers.h.
 *
 * What a walker takes has no reference and no mark, as a page has that comes off the kernel's
 * lists, and goes back by an ordinary free. Free pages of isolated blocks stay counted as free:
 * they are few, and for a short time.
 */
#include "fh.h"

#include <linux/bitmap.h>
#include <linux/mm.h>
#include <linux/page-isolation.h>
#include <linux/vmstat.h>

#include "../internal.h"
#include "own.h"
#include "taken.h"
#include "walkers.h"

/* What is taken at once, before the walker is asked whether it has enough: a word of Freehold's. */
#define WORD_FRAMES 64

static bool read_block(unsigned long pfn, freehold_pageblock *block)
{
	return fh_has_page(pfn) && !freehold_read_pageblock(fh_of(pfn), pfn, block, NULL);
}

unsigned long fh_free_run(unsigned long pfn)
{
	unsigned long at = pfn % FH_BLOCK_FRAMES;
	freehold_pageblock block;

	if (!read_block(pfn, &block))
		return 0;
	return find_next_zero_bit((unsigned long *)block.free_frames.words, FH_BLOCK_FRAMES,
				  at) - at;
}

bool fh_has_free(unsigned long pfn)
{
	freehold_pageblock block;

	return read_block(pfn, &block) &&
	       !bitmap_empty((unsigned long *)block.free_frames.words, FH_BLOCK_FRAMES);
}

bool fh_free_frames(unsigned long pfn, unsigned long *frames)
{
	freehold_pageblock block;

	if (!read_block(pfn, &block))
		return false;
	bitmap_copy(frames, (unsigned long *)block.free_frames.words, FH_BLOCK_FRAMES);
	return true;
}

void fh_mark_free(bool marked)
{
	freehold_pageblock block;
	unsigned int at, order;

	for (unsigned long number = 0; number < FH_BLOCK_NUMBERS; number++) {
		unsigned long base = fh_first_pfn + (number << FH_BLOCK_ORDER);

		if (!read_block(base, &block))
			continue;
		for_each_taken(&block.free_frames, at, order) {
			struct page *page = pfn_to_page(base + at);

			set_page_private(page, marked ? order : 0);
			if (marked)
				__SetPageBuddy(page);
			else
				__ClearPageBuddy(page);
		}
	}
}

int fh_block_migratetype(struct page *page)
{
	freehold_pageblock block;

	if (!read_block(page_to_pfn(page), &block))
		return get_pageblock_migratetype(page);
	switch (block.migratetype) {
	case FREEHOLD_MIGRATETYPE_MOVABLE:
		return MIGRATE_MOVABLE;
	case FREEHOLD_MIGRATETYPE_RECLAIMABLE:
		return MIGRATE_RECLAIMABLE;
	case FREEHOLD_MIGRATETYPE_HIGH_ATOMIC:
		return MIGRATE_HIGHATOMIC;
#ifdef CONFIG_CMA
	case FREEHOLD_MIGRATETYPE_CMA:
		return MIGRATE_CMA;
#endif
	case FREEHOLD_MIGRATETYPE_ISOLATE:
		return MIGRATE_ISOLATE;
	default:
		return MIGRATE_UNMOVABLE;
	}
}

/* A block with a chunk of the size that is wanted is not broken up for a smaller one. */
bool fh_suits_as_target(struct compact_control *cc, struct page *page)
{
	int order = cc->order > 0 ? cc->order : pageblock_order, type = fh_block_migratetype(page);
	unsigned long first = fh_free_run(page_to_pfn(page));

	if (first >> order || is_migrate_isolate(type))
		return false;
	return cc->ignore_block_suitable || is_migrate_movable(type);
}

/* Puts each free page of a part of a block into the list of its order; how many pages. */
static unsigned long take(unsigned long start, unsigned long end, struct list_head *lists)
{
	unsigned long base = start - start % FH_BLOCK_FRAMES, count;
	freehold_block_frames taken;
	unsigned int at, order;

	if (freehold_take_free(fh_of(start), start, end, &taken, NULL))
		return 0;
	for_each_taken(&taken, at, order) {
		struct page *page = pfn_to_page(base + at);

		set_page_private(page, order);
		list_add_tail(&page->lru, &lists[order]);
	}
	count = count_taken(&taken);
	fh_account(start, -(long)count);
	return count;
}

/*
 * The mark that is kept for others is the zone's: so the kernel does where it takes pages off its
 * lists.
 */
static bool leaves_mark(struct zone *zone)
{
	return zone_watermark_ok(zone, 0, min_wmark_pages(zone) + WORD_FRAMES, 0, ALLOC_CMA);
}

unsigned long fh_isolate_freepages(struct compact_control *cc, unsigned long *start_pfn,
				   unsigned long end_pfn, struct list_head *freelist, bool strict)
{
	unsigned long pfn = *start_pfn, isolated = 0;
	bool missing = false;

	while (pfn < end_pfn && (strict || leaves_mark(cc->zone))) {
		unsigned long next = min(end_pfn, round_down(pfn, WORD_FRAMES) + WORD_FRAMES);
		unsigned long got = take(pfn, next, freelist);

		isolated += got;
		cc->nr_freepages += got;
		missing = got != next - pfn;
		pfn = next;
		if (strict ? missing : cc->nr_migratepages <= cc->nr_freepages)
			break;
	}
	cc->total_free_scanned += pfn - *start_pfn;
	*start_pfn = pfn;
	if (isolated)
		count_vm_events(COMPACTISOLATED, isolated);
	/* Whoever wants all of it gives back what it got. */
	return strict && missing ? 0 : isolated;
}

void fh_flush_cpu(void)
{
	fh_flush();
}

/* A block may be of two nodes: each has an allocator for its part. */
bool fh_isolate_block(struct page *page)
{
	unsigned long pfn = pageblock_start_pfn(page_to_pfn(page)), end = pfn + FH_BLOCK_FRAMES;
	freehold_allocator *first = fh_of(pfn), *last = fh_of(end - 1);

	if (!fh_has_page(pfn))
		return true;
	if (FH_ALONE(freehold_isolate(first, pfn, end, NULL)))
		return false;
	if (last == first || !FH_ALONE(freehold_isolate(last, pfn, end, NULL)))
		return true;
	freehold_restore(first, pfn, end, NULL);
	return false;
}

void fh_restore_block(struct page *page)
{
	unsigned long pfn = pageblock_start_pfn(page_to_pfn(page)), end = pfn + FH_BLOCK_FRAMES;
	freehold_allocator *first = fh_of(pfn), *last = fh_of(end - 1);

	if (!fh_has_page(pfn))
		return;
	freehold_restore(first, pfn, end, NULL);
	if (last != first)
		freehold_restore(last, pfn, end, NULL);
}
