// SPDX-License-Identifier: GPL-2.0
/*
 * Allocations and frees of Freehold's zone, and the count of its free pages.
 *
 * Every page that is free is counted as free at once, whoever has it in hand: the count has no lock, each CPU adds what it did to a
 * number of its own, as the kernel does for all such counts. So watermarks, kswapd and reclaim go on as they were. The marks are the
 * kernel's own and are kept by it, ahead of the call; Freehold is told of none.
 */
#include "fh.h"

#include <linux/mm.h>
#include <linux/vmstat.h>

#include "../internal.h"
#include "hooks.h"

struct zone *fh_zone __read_mostly;

bool fh_has_page(unsigned long pfn)
{
	return READ_ONCE(fh_zone) && fh_has(pfn);
}

void fh_account(unsigned long pfn, long frames)
{
	mod_zone_page_state(fh_zone, NR_FREE_PAGES, frames);
#ifdef CONFIG_CMA
	if (READ_ONCE(fh_zone->cma_pages) && fh_is_cma(pfn))
		mod_zone_page_state(fh_zone, NR_FREE_CMA_PAGES, frames);
#endif
#ifdef CONFIG_PAGE_REPORTING
	if (static_branch_unlikely(&fh_reports) && frames < 0)
		fh_unreport(pfn, -frames);
#endif
}

/* What the gfp mask does not tell. HIGHATOMIC requests are as all others: there is no reserve for them. */
static u16 flags_of(unsigned int alloc_flags)
{
#ifdef CONFIG_CMA
	if (alloc_flags & ALLOC_CMA)
		return FREEHOLD_ALLOC_CMA;
#endif
	return 0;
}

struct page *fh_page(gfp_t gfp, unsigned int order, unsigned int alloc_flags)
{
	u64 pfn;

	if (fh_alloc_with(gfp, flags_of(alloc_flags), order, &pfn))
		return NULL;
	fh_account(pfn, -(1L << order));
	return pfn_to_page(pfn);
}

int fh_single_frames(gfp_t gfp, unsigned int alloc_flags, int count, u64 *pfns)
{
	int got = fh_alloc_bulk_with(gfp, flags_of(alloc_flags), count, pfns);

	for (int i = 0; i < got; i++)
		fh_account(pfns[i], -1);
	return got;
}

void fh_free_page(unsigned long pfn, unsigned int order)
{
	int status = fh_free(pfn, order);

	if (!WARN_ONCE(status, "freehold: a free of order %u at %lu is refused: %d\n", order, pfn, status))
		fh_account(pfn, 1L << order);
}

bool fh_may_have(unsigned int order, unsigned int alloc_flags)
{
	return freehold_may_have_free(fh, 0, order, flags_of(alloc_flags) & FREEHOLD_ALLOC_CMA);
}

void fh_drain_zone(void)
{
	fh_drain();
}
