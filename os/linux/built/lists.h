/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Included at the end of mm/page_alloc.c, for its own functions: takes a zone's free pages off the
 * kernel's lists and gives them to Freehold, and prepares pages that are allocated in bulk.
 *
 * At the hand-over no other CPU runs. A task that was preempted between looking whether Freehold
 * has the zone and putting its page into a list may do the latter afterwards: so freehold.c looks
 * at the lists from time to time, and empties them again.
 */

#ifdef CONFIG_PAGE_ALLOC_FREEHOLD
static void fh_empty_area(struct zone *zone, unsigned int order, unsigned long *frames)
{
	struct free_area *area = &zone->free_area[order];
	struct page *page;

	for (int type = 0; type < MIGRATE_TYPES; type++) {
		while ((page = get_page_from_free_area(area, type))) {
			del_page_from_free_list(page, zone, order, type);
			fh_give(page_to_pfn(page), order);
			*frames += 1ul << order;
		}
	}
}

unsigned long fh_empty_lists(struct zone *zone, bool stopped)
{
	struct llist_node *deferred;
	struct page *page, *next;
	unsigned long flags, frames = 0;

	if (stopped) {
		int cpu;

		for_each_possible_cpu(cpu) {
			struct per_cpu_pages *pcp = per_cpu_ptr(zone->per_cpu_pageset, cpu);

			if (pcp->count)
				free_pcppages_bulk(zone, pcp->count, pcp, 0);
		}
	} else {
		drain_all_pages(zone);
	}
	fh_zone_lock(zone, flags);
	/* Of those who could not wait for the lock. */
	deferred = llist_del_all(&zone->trylock_free_pages);
	llist_for_each_entry_safe(page, next, deferred, pcp_llist) {
		unsigned int order = page->private;

		page->private = 0;
		__count_vm_events(PGFREE, 1 << order);
		fh_give(page_to_pfn(page), order);
		frames += 1ul << order;
	}
	for (int order = NR_PAGE_ORDERS - 1; order >= 0; order--)
		fh_empty_area(zone, order, &frames);
	spin_unlock_irqrestore(&zone->lock, flags);
	return frames;
}

unsigned long fh_in_lists(struct zone *zone)
{
	unsigned long frames = 0;
	int cpu;

	for_each_possible_cpu(cpu)
		frames += data_race(per_cpu_ptr(zone->per_cpu_pageset, cpu)->count);
	for (int order = 0; order < NR_PAGE_ORDERS; order++)
		frames += data_race(zone->free_area[order].nr_free) << order;
	return frames + !llist_empty(&zone->trylock_free_pages);
}

void fh_forget_highatomic(struct zone *zone)
{
	unsigned long pfn;

	zone->nr_reserved_highatomic = 0;
	for (pfn = zone->zone_start_pfn; pfn < zone_end_pfn(zone); pfn += pageblock_nr_pages) {
		struct page *page = pfn_to_online_page(pfn);

		if (page && page_zone(page) == zone &&
		    get_pageblock_migratetype(page) == MIGRATE_HIGHATOMIC)
			set_pageblock_migratetype(page, MIGRATE_MOVABLE);
	}
}

#ifdef CONFIG_CMA
bool fh_is_cma(unsigned long pfn)
{
	return is_migrate_cma(__get_pfnblock_flags_mask(pfn_to_page(pfn), pfn, MIGRATETYPE_MASK));
}
#endif

/* So many at a time are asked for, and wait on the stack. */
#define FH_FILLED_AT_ONCE 32

int fh_fill_pages(struct zone *zone, gfp_t gfp, unsigned int alloc_flags, int count,
		  struct page **pages)
{
	u64 pfns[FH_FILLED_AT_ONCE];
	int at = 0, filled = 0;

	for (;;) {
		int wanted = 0, got;

		for (int i = at; i < count && wanted < FH_FILLED_AT_ONCE; i++)
			wanted += !pages[i];
		got = wanted ? fh_single_frames(zone, gfp, alloc_flags, wanted, pfns) : 0;
		for (int i = 0; i < got; i++) {
			struct page *page = pfn_to_page(pfns[i]);

			/* A page in a bad state is nobody's from now on. */
			if (unlikely(check_new_pages(page, 0)))
				continue;
			prep_new_page(page, 0, gfp, 0);
			set_page_refcounted(page);
			while (pages[at])
				at++;
			pages[at++] = page;
			filled++;
		}
		if (got < FH_FILLED_AT_ONCE)
			return filled;
	}
}
#endif
