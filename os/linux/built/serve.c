// SPDX-License-Identifier: GPL-2.0
/*
 * Allocations and frees of Freehold's zones, and the counts of their free pages.
 *
 * Every page that is free is counted as free at once, whoever has it in hand: the count has no
 * lock, each CPU adds what it did to a number of its own, as the kernel does for all such counts.
 * So watermarks, kswapd and reclaim go on as they were. The marks are the kernel's own and are kept
 * by it, ahead of the call; Freehold is told of none.
 */
#include "fh.h"

#include <linux/mm.h>
#include <linux/vmstat.h>

#include "../internal.h"
#include "hooks.h"
#include "own.h"

struct zone *fh_zones[FH_ALLOCATORS] __read_mostly;
unsigned int fh_zones_end __read_mostly;

bool fh_has_page(unsigned long pfn)
{
	/* Pairs with the hand-over: whoever sees the map sees where it begins and ends. */
	return smp_load_acquire(&fh_block_map) && fh_has(pfn);
}

static __always_inline void account(struct zone *zone, unsigned long pfn, long frames)
{
	mod_zone_page_state(zone, NR_FREE_PAGES, frames);
#ifdef CONFIG_CMA
	if (READ_ONCE(zone->cma_pages) && fh_is_cma(pfn))
		mod_zone_page_state(zone, NR_FREE_CMA_PAGES, frames);
#endif
}

/* Of frames that were free until now. */
static __always_inline void account_taken(struct zone *zone, unsigned long pfn,
					  unsigned long frames)
{
	account(zone, pfn, -(long)frames);
#ifdef CONFIG_PAGE_REPORTING
	if (static_branch_unlikely(&fh_reports))
		fh_unreport(pfn, frames);
#endif
}

void fh_account(unsigned long pfn, long frames)
{
	struct zone *zone = fh_zones[fh_number(pfn)];

	if (frames < 0)
		account_taken(zone, pfn, -frames);
	else
		account(zone, pfn, frames);
}

/* Of those who may have what is kept for atomic requests: all of the slow way. */
static noinline u16 reserve_flags_of(unsigned int alloc_flags, unsigned int order)
{
	u16 flags = 0;

	if (alloc_flags & ALLOC_HIGHATOMIC)
		flags |= FREEHOLD_ALLOC_HIGH_ATOMIC;
	if (alloc_flags & ALLOC_OOM)
		flags |= FREEHOLD_ALLOC_OOM;
	/* Single pages as a last resort; larger chunks are for those above alone. */
	if (alloc_flags & ALLOC_NON_BLOCK && !order)
		flags |= FREEHOLD_ALLOC_NON_BLOCK;
	return flags;
}

/* What the gfp mask does not tell. */
static __always_inline u16 flags_of(unsigned int alloc_flags, unsigned int order)
{
	u16 flags = 0;

#ifdef CONFIG_CMA
	/* A shift. */
	flags = (alloc_flags & ALLOC_CMA) / (ALLOC_CMA / FREEHOLD_ALLOC_CMA);
#endif
	if (unlikely(alloc_flags & (ALLOC_HIGHATOMIC | ALLOC_OOM | ALLOC_NON_BLOCK)))
		flags |= reserve_flags_of(alloc_flags, order);
	return flags;
}

atomic64_t fh_owed_chunks;

/*
 * Whether the zone owes its ordinary chunks of that order to those who may not have CMA pages. For
 * those who may, the marks count free CMA pages, too; so raised huge pages, which stay, would have
 * all others. The kernel's lists have no whole blocks left by then, Freehold has.
 */
bool fh_owes(struct zone *zone, unsigned int order, unsigned int alloc_flags)
{
#ifdef CONFIG_CMA
	unsigned long needed = (1UL << order) + wmark_pages(zone, alloc_flags & ALLOC_WMARK_MASK);

	return order > PAGE_ALLOC_COSTLY_ORDER && READ_ONCE(zone->cma_pages) &&
	       (alloc_flags & ALLOC_CMA) && !(alloc_flags & ALLOC_NO_WATERMARKS) &&
	       zone_page_state(zone, NR_FREE_PAGES) <
		       zone_page_state(zone, NR_FREE_CMA_PAGES) + needed;
#else
	return false;
#endif
}

struct page *fh_page(struct zone *zone, gfp_t gfp, unsigned int order, unsigned int alloc_flags)
{
	unsigned int which = fh_number_of_zone(zone);
	u64 pfn;

	if (fh_alloc_of(which, gfp, flags_of(alloc_flags, order), order, &pfn))
		return NULL;
	if (unlikely(fh_owes(zone, order, alloc_flags)) && !fh_is_cma(pfn)) {
		fh_free_of(which, pfn, order);
		atomic64_inc(&fh_owed_chunks);
		return NULL;
	}
	account_taken(zone, pfn, 1UL << order);
	return pfn_to_page(pfn);
}

int fh_single_frames(struct zone *zone, gfp_t gfp, unsigned int alloc_flags, int count, u64 *pfns)
{
	int got = fh_alloc_bulk_of(fh_number_of_zone(zone), gfp, flags_of(alloc_flags, 0), count,
				   pfns);

	for (int i = 0; i < got; i++)
		account_taken(zone, pfns[i], 1);
	return got;
}

void fh_free_page(unsigned long pfn, unsigned int order)
{
	unsigned int which = fh_number(pfn);
	int status = fh_free_of(which, pfn, order);

	if (!WARN_ONCE(status, "freehold: a free of order %u at %lu is refused: %d\n", order, pfn,
		       status))
		account(fh_zones[which], pfn, 1L << order);
}

bool fh_may_have(struct zone *zone, unsigned int order, unsigned int alloc_flags)
{
	freehold_allocator *fh = fh_of_zone(zone);
	u16 flags = flags_of(alloc_flags, order);

	if (!freehold_may_have_free(fh, 0, order, flags))
		return false;
	if (likely(!fh_owes(zone, order, alloc_flags)))
		return true;
	/* A CMA chunk: where most free pages are CMA ones, or where there is no other. */
	return 2 * zone_page_state(zone, NR_FREE_CMA_PAGES) > zone_page_state(zone, NR_FREE_PAGES) ||
	       !freehold_may_have_free(fh, 0, order, flags & ~FREEHOLD_ALLOC_CMA);
}

void fh_drain_zones(struct zone *zone)
{
	unsigned int which;
	struct zone *each;

	for_each_zone_of_freehold(each, which)
		if (populated_zone(each) && (!zone || zone == each))
			fh_drain_of(which);
}
