/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the kernel's memory management asks of Freehold, which is the allocator of each node's zones
 * DMA32, Normal and Movable (freehold.json says where). mm/page_alloc.c, mm/vmstat.c and
 * mm/show_mem.c include this.
 *
 *   freehold.c   the hand-over: all of these zones, once, at the end of the boot
 *   serve.c      allocations and frees, and the count of free pages
 *   reserve.c    blocks that are kept for atomic requests of high orders
 *   tell.c       what /proc tells of the zones' free pages
 *   lists.h      the part that needs page_alloc.c's own functions: included there, at its end
 */
#pragma once

#include <linux/jump_label.h>
#include <linux/mm.h>
#include <linux/mmzone.h>
#include <linux/nodemask.h>
#include <linux/util_macros.h>

/*
 * Freehold's zones by the number of their allocator, from the hand-over on; none before, and where
 * Freehold does not serve it.
 */
extern struct zone *fh_zones[MAX_NUMNODES * MAX_NR_ZONES];
/* One more than the last of these numbers. */
extern unsigned int fh_zones_end;

static inline unsigned int fh_number_of_zone(const struct zone *zone)
{
	return zone_to_nid(zone) * MAX_NR_ZONES + zone_idx(zone);
}

/*
 * Where Freehold is not configured no zone and no page is its, which the compiler knows: nothing is
 * left of what is asked behind these two. Macros: an inline function moves code elsewhere.
 */
#ifdef CONFIG_PAGE_ALLOC_FREEHOLD
static inline bool fh_is_allocator_of(const struct zone *zone)
{
	return READ_ONCE(fh_zones[fh_number_of_zone(zone)]);
}
#else
#define fh_is_allocator_of(zone) false
#endif

#define for_each_zone_of_freehold(zone, which)			\
	for (which = 0; which < fh_zones_end; which++)		\
		for_each_if((zone = READ_ONCE(fh_zones[which])))

/* Whether a frame is one of these zones' that Freehold has, free or not. */
#ifdef CONFIG_PAGE_ALLOC_FREEHOLD
bool fh_has_page(unsigned long pfn);
#else
#define fh_has_page(pfn) false
#endif
/*
 * Of the zone and of no other, from any context. NULL where there is none: the zone's lists are
 * empty, so that is the zone's answer.
 */
struct page *fh_page(struct zone *zone, gfp_t gfp, unsigned int order, unsigned int alloc_flags);
/* At most so many single frames of the zone, into an array; how many. */
int fh_single_frames(struct zone *zone, gfp_t gfp, unsigned int alloc_flags, int count, u64 *pfns);
/*
 * lists.h: fills the empty entries of an array, in their order, as far as the zone has memory; how
 * many were filled.
 */
int fh_fill_pages(struct zone *zone, gfp_t gfp, unsigned int alloc_flags, int count,
		  struct page **pages);
/* From any context. The page is prepared: nothing of its former life is left in its struct page. */
void fh_free_page(unsigned long pfn, unsigned int order);
/*
 * So many frames of the block of that one have become free, or fewer than none: its zone's
 * NR_FREE_PAGES and NR_FREE_CMA_PAGES.
 */
void fh_account(unsigned long pfn, long frames);

/* lists.h: whether a pageblock is of a CMA area, be it isolated or not. */
bool fh_is_cma(unsigned long pfn);

/*
 * report.c: once pages of Freehold's are reported, each allocation says what is to be reported
 * again.
 */
DECLARE_STATIC_KEY_FALSE(fh_reports);
void fh_unreport(unsigned long pfn, unsigned long frames);

/* Whether trying the zone for a chunk of that order makes sense: for watermarks. */
bool fh_may_have(struct zone *zone, unsigned int order, unsigned int alloc_flags);
/* Whether what it has of that order has to stay for others, though its marks are met. */
bool fh_owes(struct zone *zone, unsigned int order, unsigned int alloc_flags);
/*
 * reserve.c: the zones' counts of blocks kept for atomic requests, and of their free pages, as
 * Freehold has them now.
 */
#ifdef CONFIG_PAGE_ALLOC_FREEHOLD
void fh_note_reserves(void);
/* All CPUs give back what they have in hand of that zone, or of all where it is NULL. */
void fh_drain_zones(struct zone *zone);
#else
#define fh_note_reserves() do { } while (0)
#define fh_drain_zones(zone) do { } while (0)
#endif
/*
 * One of the blocks kept in a zone of Freehold's that has free pages becomes an ordinary one of
 * that type; false where there is none.
 */
bool fh_give_up_reserve(struct zone *zone, int migratetype);

/* Free chunks of a zone of Freehold's by order, with those in its lists; of a migratetype. */
void fh_read_free(struct zone *zone, unsigned long nr_free[NR_PAGE_ORDERS]);
/* About as many, without a walk over all blocks: for those who ask often. */
void fh_estimate_free(struct zone *zone, unsigned long nr_free[NR_PAGE_ORDERS]);
void fh_read_free_of(struct zone *zone, int migratetype, unsigned long nr_free[NR_PAGE_ORDERS]);
/* What a count of a zone's lacks, or of all zones': pages in whole free blocks, of Freehold's. */
#ifdef CONFIG_PAGE_ALLOC_FREEHOLD
unsigned long fh_count_of(struct zone *zone, int item);
unsigned long fh_count_of_all(int item);
#else
#define fh_count_of(zone, item) 0
#define fh_count_of_all(item) 0
#endif
/* Blocks by migratetype, of a zone of Freehold's. */
void fh_read_blocks(struct zone *zone, unsigned long count[MIGRATE_TYPES]);

/*
 * lists.h: takes all that the kernel's lists of a zone have, by fh_give(). `stopped`: no other CPU
 * runs. How many frames.
 */
unsigned long fh_empty_lists(struct zone *zone, bool stopped);
/* How many frames they have, about. */
unsigned long fh_in_lists(struct zone *zone);
/* What the kernel has kept for atomic requests is anybody's; Freehold keeps blocks anew. */
void fh_forget_highatomic(struct zone *zone);
/* freehold.c: a free page of such a zone becomes Freehold's. */
void fh_give(unsigned long pfn, unsigned int order);

/*
 * With its lock a zone's marks are set, against those who read lists and boosts of it; and a
 * gigantic page is looked for, since chunks of the lists are passed over. Freehold's zones have
 * neither. Who has begun without the lock says so in the flags: a zone may be handed over
 * meanwhile.
 */
#define FH_UNLOCKED ULONG_MAX

#define fh_lock_lists(zone, flags)					\
do {									\
	if (fh_is_allocator_of(zone))					\
		flags = FH_UNLOCKED;					\
	else								\
		fh_zone_lock(zone, flags);				\
} while (0)

#define fh_unlock_lists(zone, flags)					\
do {									\
	if (!IS_ENABLED(CONFIG_PAGE_ALLOC_FREEHOLD) || flags != FH_UNLOCKED)	\
		spin_unlock_irqrestore(&(zone)->lock, flags);		\
} while (0)
