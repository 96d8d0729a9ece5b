// SPDX-License-Identifier: GPL-2.0
/*
 * For walkers of Freehold's zones (walkers.h): compaction, isolation, contiguous ranges, dumps and
 * hibernation.
 *
 * What a walker takes has no reference and no mark, as a page has that comes off the kernel's
 * lists, and goes back by an ordinary free. Free pages of an isolated block stay counted as free.
 * Those of a block that compaction empties do not: nobody gets them until its end.
 */
#include "fh.h"

#include <linux/bitmap.h>
#include <linux/mm.h>
#include <linux/page-isolation.h>
#include <linux/sched.h>
#include <linux/spinlock.h>
#include <linux/vmstat.h>

#include "../internal.h"
#include "own.h"
#include "taken.h"
#include "walkers.h"

/* Of a block that is moved to a word of Freehold's is taken at once. */
#define WORD_FRAMES 64

static bool read_block(unsigned long pfn, freehold_pageblock *block)
{
	return fh_has_page(pfn) && !freehold_read_pageblock(fh_of(pfn), pfn, block, NULL);
}

/* Whether all of a frame's pageblock is. The kernel isolates and compacts no other, either. */
static bool is_of_one_zone(unsigned long pfn)
{
	unsigned long start = pageblock_start_pfn(pfn), last = start + FH_BLOCK_FRAMES - 1;
	struct zone *zone = page_zone(pfn_to_page(start));

	return zone_spans_pfn(zone, start) && zone_spans_pfn(zone, last) &&
	       page_zone(pfn_to_page(last)) == zone;
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

bool fh_free_frames(unsigned long start, unsigned long *frames)
{
	unsigned long ends[] = { start, start + FH_BLOCK_FRAMES - 1 };
	freehold_pageblock block;
	bool found = false;

	bitmap_zero(frames, FH_BLOCK_FRAMES);
	for (int at = 0; at < ARRAY_SIZE(ends); at++) {
		if (!read_block(ends[at], &block))
			continue;
		bitmap_or(frames, frames, (unsigned long *)block.free_frames.words, FH_BLOCK_FRAMES);
		found = true;
	}
	return found;
}

void fh_mark_free(bool marked)
{
	freehold_block_frames free;
	unsigned int at, order;

	for (unsigned long number = 0; number < FH_BLOCK_NUMBERS; number++) {
		unsigned long base = number << FH_BLOCK_ORDER;

		if (!fh_free_frames(base, (unsigned long *)free.words))
			continue;
		for_each_taken(&free, at, order) {
			struct page *page = pfn_to_page(base + at);

			set_page_private(page, marked ? order : 0);
			if (marked)
				__SetPageBuddy(page);
			else
				__ClearPageBuddy(page);
		}
	}
}

static bool is_isolated(unsigned long pfn)
{
	freehold_pageblock block;

	return !read_block(pfn, &block) || block.migratetype == FREEHOLD_MIGRATETYPE_ISOLATE;
}

/*
 * Puts each free page of a part of a block into the list of its order; how many pages. Of a block
 * that others isolate none: who takes them here, a moment late, is not waited for.
 */
static unsigned long take(unsigned long start, unsigned long end, bool isolated,
			  struct list_head *lists)
{
	unsigned long base = start - start % FH_BLOCK_FRAMES, count;
	freehold_block_frames taken;
	unsigned int at, order;

	if (freehold_take_free(fh_of(start), start, end, &taken, NULL))
		return 0;
	if (!isolated && is_isolated(start)) {
		for_each_taken(&taken, at, order)
			fh_free_of(fh_number(start), base + at, order);
		return 0;
	}
	for_each_taken(&taken, at, order) {
		struct page *page = pfn_to_page(base + at);

		set_page_private(page, order);
		list_add_tail(&page->lru, &lists[order]);
	}
	count = count_taken(&taken);
	fh_account(start, -(long)count);
	return count;
}

unsigned long fh_isolate_freepages(struct compact_control *cc, unsigned long *start_pfn,
				   unsigned long end_pfn, struct list_head *freelist)
{
	unsigned long isolated = take(*start_pfn, end_pfn, true, freelist);
	unsigned long all = end_pfn - *start_pfn;

	cc->nr_freepages += isolated;
	cc->total_free_scanned += all;
	*start_pfn = end_pfn;
	if (isolated)
		count_vm_events(COMPACTISOLATED, isolated);
	/* Who asks wants all of it, and gives back what it got. */
	return isolated == all ? all : 0;
}

unsigned long fh_used_in(unsigned long start, unsigned long end)
{
	unsigned long at = start % FH_BLOCK_FRAMES, last = at + (end - start), used = 0;
	freehold_pageblock block;

	if (!read_block(start, &block))
		return 0;
	for_each_clear_bit_from(at, (unsigned long *)block.free_frames.words, last)
		used++;
	return used;
}

/* The first chunk of a block that is free, naturally aligned; 0 where there is none. */
static unsigned long free_chunk(unsigned long start, unsigned int order)
{
	unsigned long size = 1UL << order;
	freehold_pageblock block;

	if (!read_block(start, &block))
		return 0;
	for (unsigned long at = 0; at < FH_BLOCK_FRAMES; at += size)
		if (find_next_zero_bit((unsigned long *)block.free_frames.words, at + size, at) ==
		    at + size)
			return start + at;
	return 0;
}

bool fh_block_serves(unsigned long start, int order)
{
	return free_chunk(start, fh_needs_all(order) ? FH_BLOCK_ORDER : order);
}

atomic64_t fh_looks, fh_rounds, fh_emptied, fh_not_emptied;
atomic_t fh_emptying, fh_waiting;

/* Of each zone those found by whoever came last, with least in use first. */
#define FOUND 32
static struct found {
	unsigned int at, count;
	unsigned long blocks[FOUND];
	u32 used[FOUND];
} found_in[FH_ALLOCATORS];
static DEFINE_SPINLOCK(found_lock);

static bool is_not_noted(void *unused, u64 start)
{
	cond_resched();
	return !get_pageblock_skip(pfn_to_page(start));
}

static bool keep(void *user, u64 start, u32 used)
{
	struct found *found = user;

	found->used[found->count] = used;
	found->blocks[found->count++] = start;
	return found->count < FOUND;
}

/*
 * So many blocks are looked at for the next ones; twice as many where these are all noted, to four
 * times the zone's for one call.
 */
#define LOOKS 1024u

/*
 * How many blocks are begun together, for one interrupt of each CPU, and how many pages they may
 * have in use beside those of the first. Who asks for one chunk of a block empties others with it
 * where that is little work; they are there for those who ask next.
 */
struct batch {
	unsigned long blocks, pages;
};

static struct batch batch_of(struct compact_control *cc)
{
	/* A thirty-second of what is free at most is kept from others. */
	unsigned long most = zone_page_state(cc->zone, NR_FREE_PAGES) / (32 * FH_BLOCK_FRAMES);
	bool one_chunk = cc->order >= 0 && !cc->proactive_compaction;

	if ((one_chunk && cc->order != FH_BLOCK_ORDER) || atomic_read(&fh_waiting))
		return (struct batch){ 1, 0 };
	return (struct batch){ clamp(most, 1, FH_AT_ONCE), one_chunk ? SWAP_CLUSTER_MAX : ULONG_MAX };
}

/* Those that were found and that nobody has looked for yet, a batch at most; how many. */
static unsigned int take_found(struct found *last, struct batch batch, u64 *blocks)
{
	unsigned int count = 0;

	spin_lock(&found_lock);
	for (; count < batch.blocks && last->at < last->count; last->at++) {
		unsigned long block = last->blocks[last->at], used = last->used[last->at];

		if (count && used > batch.pages)
			break;
		/*
		 * It has gone, others have moved there meanwhile, or found that it cannot be
		 * emptied.
		 */
		if (!pfn_to_online_page(block) || fh_used_in(block, block + FH_BLOCK_FRAMES) > used ||
		    get_pageblock_skip(pfn_to_page(block)))
			continue;
		if (count)
			batch.pages -= used;
		blocks[count++] = block;
	}
	spin_unlock(&found_lock);
	return count;
}

/* The next ones that are not noted; none where the task is to die. */
static unsigned int next_found(struct compact_control *cc, u64 *blocks)
{
	struct found *last = &found_in[fh_number_of_zone(cc->zone)], found = {};
	struct batch batch = batch_of(cc);
	unsigned int count = take_found(last, batch, blocks);

	for (u32 looks = LOOKS, left = 0; !count && !found.count && !left && looks; looks *= 2) {
		if (fatal_signal_pending(current))
			return 0;
		left = freehold_emptiest(fh_of_zone(cc->zone), 0, looks, is_not_noted, keep, &found);
		atomic64_add(looks - left, &fh_looks);
	}
	if (count || !found.count)
		return count;
	count = take_found(&found, batch, blocks);
	spin_lock(&found_lock);
	*last = found;
	spin_unlock(&found_lock);
	/* All of them have got fuller: one of them anyway. */
	if (!count)
		blocks[count++] = found.blocks[0];
	return count;
}

/*
 * Begins to empty them, all with one interrupt of each CPU; false where none can be. Their free
 * pages are nobody's until the end, and not counted as free, as those that a scanner has isolated.
 */
static bool begin_to_empty(struct fh_sources *sources, u64 *blocks, unsigned int count)
{
	unsigned int begun;

	/* Ahead of it: who cannot isolate a block shall see why. */
	atomic_add(count, &fh_emptying);
	begun = FH_ALONE(freehold_evacuate(fh_of(blocks[0]), blocks, count));
	atomic_sub(count - begun, &fh_emptying);
	if (begun)
		atomic64_inc(&fh_rounds);
	for (unsigned int at = begun; at < count; at++)
		/* Where it is not whole: somebody else is, or was stopped on the way with it. */
		if (fh_free_run(blocks[at]) < FH_BLOCK_FRAMES)
			set_pageblock_skip(pfn_to_page(blocks[at]));
	for (unsigned int at = 0; at < begun; at++) {
		unsigned long free = FH_BLOCK_FRAMES;

		free -= fh_used_in(blocks[at], blocks[at] + FH_BLOCK_FRAMES);
		fh_account(blocks[at], -(long)free);
		sources->blocks[at] = blocks[at];
		sources->free[at] = free;
	}
	sources->at = 0;
	sources->count = begun;
	return begun;
}

bool fh_next_source(struct compact_control *cc, struct fh_sources *sources)
{
	u64 blocks[FH_AT_ONCE] = { sources->last ^ FH_BLOCK_FRAMES };
	bool begun = fh_is_begun(sources);
	unsigned int count;

	/* The other half of a chunk that is larger than a block, where the zone has it. */
	if (!begun && sources->last && cc->order > FH_BLOCK_ORDER &&
	    zone_spans_pfn(cc->zone, blocks[0]) && fh_has_page(blocks[0]) &&
	    pfn_to_online_page(blocks[0]) && !get_pageblock_skip(pfn_to_page(blocks[0])))
		begun = begin_to_empty(sources, blocks, 1);
	while (!begun && (count = next_found(cc, blocks)))
		begun = begin_to_empty(sources, blocks, count);
	sources->last = begun ? sources->blocks[sources->at] : 0;
	return begun;
}

static void restore_source(struct fh_sources *sources)
{
	unsigned long block = sources->blocks[sources->at];

	freehold_restore(fh_of(block), block, block + FH_BLOCK_FRAMES, NULL);
	fh_account(block, sources->free[sources->at++]);
	atomic_dec(&fh_emptying);
}

void fh_end_source(struct fh_sources *sources, bool noted)
{
	struct page *page = pfn_to_page(sources->blocks[sources->at]);

	restore_source(sources);
	atomic64_inc(noted ? &fh_not_emptied : &fh_emptied);
	if (noted)
		set_pageblock_skip(page);
	else
		clear_pageblock_skip(page);
}

void fh_end_sources(struct fh_sources *sources)
{
	while (fh_is_begun(sources))
		restore_source(sources);
}

/* Free pages of the block that was last moved to, which is filled up: some, if it has any. */
static bool take_of_last(struct compact_control *cc)
{
	unsigned long end = pageblock_end_pfn(cc->fast_start_pfn), taken = 0;
	freehold_pageblock block;

	if (!cc->fast_start_pfn || !read_block(cc->fast_start_pfn, &block) ||
	    block.migratetype == FREEHOLD_MIGRATETYPE_ISOLATE)
		return false;
	for (; !taken && cc->fast_start_pfn < end; cc->fast_start_pfn += WORD_FRAMES) {
		unsigned long word = cc->fast_start_pfn % FH_BLOCK_FRAMES / WORD_FRAMES;

		if (!block.free_frames.words[word])
			continue;
		taken = take(cc->fast_start_pfn, cc->fast_start_pfn + WORD_FRAMES, false,
			     cc->freepages);
		cc->total_free_scanned += WORD_FRAMES;
	}
	if (cc->fast_start_pfn == end)
		cc->fast_start_pfn = 0;
	cc->nr_freepages += taken;
	count_vm_events(COMPACTISOLATED, taken);
	return taken;
}

void fh_places_are_free(struct compact_control *cc)
{
	/* In nobody's hand, so they can be taken again; they are of the word that was last taken. */
	fh_flush_of(fh_number_of_zone(cc->zone));
	if (cc->fast_start_pfn % FH_BLOCK_FRAMES)
		cc->fast_start_pfn -= WORD_FRAMES;
}

/*
 * A whole block is no place to move to. The mark that is kept for others is the zone's: so the
 * kernel does where it takes pages off its lists.
 */
bool fh_isolate_target(struct compact_control *cc, unsigned int order)
{
	unsigned long size = 1UL << order, mark = min_wmark_pages(cc->zone) + WORD_FRAMES;
	u16 flags = FREEHOLD_ALLOC_CMA | FREEHOLD_ALLOC_NO_FRAGMENT;
	unsigned int which = fh_number_of_zone(cc->zone);
	freehold_pageblock block;
	struct page *page;
	u64 pfn;

	if (!zone_watermark_ok(cc->zone, 0, mark + size, 0, ALLOC_CMA))
		return false;
	if (!order && take_of_last(cc))
		return true;
	cc->total_free_scanned += size;
	if (fh_alloc_of(which, __GFP_MOVABLE, flags, order, &pfn))
		return false;
	if (!read_block(pfn, &block) || block.free + size == block.frames) {
		fh_free_of(which, pfn, order);
		fh_flush_of(which);
		return false;
	}
	/* The rest of the block is in nobody's hand, and can be taken. */
	fh_flush_of(which);
	cc->fast_start_pfn = is_of_one_zone(pfn) ? pageblock_start_pfn(pfn) : 0;
	fh_account(pfn, -(long)size);
	page = pfn_to_page(pfn);
	set_page_private(page, order);
	list_add(&page->lru, &cc->freepages[order]);
	cc->nr_freepages += size;
	count_vm_events(COMPACTISOLATED, size);
	return true;
}

struct page *fh_capture(struct compact_control *cc, unsigned long block)
{
	unsigned long chunk, size = 1UL << cc->order, taken;
	struct page *page;

	/* A chunk of another type would leave a block of two. */
	if (cc->order > FH_BLOCK_ORDER || cc->migratetype != MIGRATE_MOVABLE ||
	    fh_owes(cc->zone, cc->order, cc->alloc_flags))
		return NULL;
	chunk = free_chunk(block, cc->order);
	taken = chunk ? take(chunk, chunk + size, true, cc->freepages) : 0;
	cc->nr_freepages += taken;
	if (!taken || taken < size)
		return NULL;
	page = list_last_entry(&cc->freepages[cc->order], struct page, lru);
	list_del(&page->lru);
	cc->nr_freepages -= size;
	return page;
}

/* It may have ended between the first try and this look. */
bool fh_wait_for_emptying(int tries)
{
	if (tries == HZ || (tries && !atomic_read(&fh_emptying)))
		return false;
	atomic_inc(&fh_waiting);
	schedule_timeout_uninterruptible(1);
	atomic_dec(&fh_waiting);
	return true;
}

bool fh_isolate_block(struct page *page)
{
	unsigned long pfn = pageblock_start_pfn(page_to_pfn(page));

	if (!fh_has_page(pfn))
		return true;
	if (!is_of_one_zone(pfn))
		return false;
	for (int tries = 0; FH_ALONE(freehold_isolate(fh_of(pfn), pfn, pfn + FH_BLOCK_FRAMES, NULL));
	     tries++)
		if (is_migrate_isolate_page(page) || !fh_wait_for_emptying(tries))
			return false;
	return true;
}

void fh_restore_block(struct page *page)
{
	unsigned long pfn = pageblock_start_pfn(page_to_pfn(page));

	if (fh_has_page(pfn))
		freehold_restore(fh_of(pfn), pfn, pfn + FH_BLOCK_FRAMES, NULL);
}
