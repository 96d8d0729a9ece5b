/* SPDX-License-Identifier: GPL-2.0 */
/*
 * For those who walk the pages of a zone and look for free ones among them, where the zone is
 * Freehold's and free pages carry no mark of the kernel's lists. walkers.json says where each is
 * called, os/linux/README.md what each finds.
 *
 * All of them answer for any page: where it is not Freehold's they say so, and the kernel goes on
 * by itself.
 */
#pragma once

#include "hooks.h"

struct compact_control;
struct page_reporting_dev_info;
struct scatterlist;

/*
 * fh_free_run(): so many pages from that one on, to the end of its block, are free in Freehold. No
 * lock; out of date a moment later.
 * fh_mark_free(): all free pages get the mark of the kernel's lists, or lose it. No other CPU runs.
 * fh_isolate_block(): false where somebody else is isolating the block, or part of it is none of the
 * zone's; may wait for other CPUs.
 * fh_restore_block(): from any context, only by whoever has isolated it.
 * fh_not_isolated(): that, and what page_isolation.c returns then.
 * fh_take_offline(): of isolated blocks of which no page is in use. 0, or -EBUSY where one is;
 * nothing is taken then.
 */
#ifdef CONFIG_PAGE_ALLOC_FREEHOLD
unsigned long fh_free_run(unsigned long pfn);
void fh_mark_free(bool marked);
bool fh_isolate_block(struct page *page);
void fh_restore_block(struct page *page);
static inline int fh_not_isolated(struct page *page)
{
	fh_restore_block(page);
	return -EBUSY;
}

int fh_take_offline(unsigned long start_pfn, unsigned long end_pfn);
#else
#define fh_free_run(pfn) 0ul
#define fh_mark_free(marked) do { } while (0)
#define fh_isolate_block(page) true
#define fh_restore_block(page) do { } while (0)
#define fh_not_isolated(page) (-EBUSY)
#define fh_take_offline(start_pfn, end_pfn) 0
#endif
/*
 * A bit for each page of the block that is free in Freehold, of both zones where two meet in it;
 * false where it is not Freehold's.
 */
#define FH_PAGES_OF_BLOCK 512
bool fh_free_frames(unsigned long start, unsigned long *frames);
/*
 * compaction.c: all free pages of a part of a block, into the lists of their orders; 0 where one of
 * the part is not free.
 */
unsigned long fh_isolate_freepages(struct compact_control *cc, unsigned long *start_pfn,
				   unsigned long end_pfn, struct list_head *freelist);

/* Whether a request for chunks of that order is served by whole blocks only. */
static inline bool fh_needs_all(int order)
{
	return order < 0 || order >= pageblock_order;
}

/* Pages of a part of a block that are in use. No lock; out of date a moment later. */
unsigned long fh_used_in(unsigned long start, unsigned long end);
/* Whether a chunk of that order in the block is free, or all of it. */
bool fh_block_serves(unsigned long start, int order);

/* Those who want a block that is being emptied. */
extern atomic_t fh_waiting;

/* Blocks from which nobody allocates, and which of them is emptied now. */
#define FH_AT_ONCE 8ul
struct fh_sources {
	unsigned int at, count;
	unsigned long last, blocks[FH_AT_ONCE];
	/* Pages of each that were free when it was begun. */
	unsigned int free[FH_AT_ONCE];
};

static inline bool fh_is_begun(const struct fh_sources *sources)
{
	return sources->at < sources->count;
}

/*
 * sources->last: the block with least in use that is not noted; for more than a block the other half
 * of the last one. False where there is none.
 */
bool fh_next_source(struct compact_control *cc, struct fh_sources *sources);
/* Of that one. Noted: it could not be emptied. */
void fh_end_source(struct fh_sources *sources, bool noted);
/* Of those that were begun and that nobody wants any more. */
void fh_end_sources(struct fh_sources *sources);
/* A place for a folio of that order is in cc's lists; false where there is none. */
bool fh_isolate_target(struct compact_control *cc, unsigned int order);
/* Those of cc's lists that nobody moved to have been freed. */
void fh_places_are_free(struct compact_control *cc);
/* What is asked for, out of a block that is being emptied; NULL where it is not to be had. */
struct page *fh_capture(struct compact_control *cc, unsigned long block);

/* page_alloc.c, for hwpoison. May wait for other CPUs. */
bool fh_take_page_off(struct page *page);
bool fh_put_page_back(struct page *page);

/*
 * page_reporting.c: whole blocks of the zone that were not reported yet. freehold.c: those that
 * were used since are reported again.
 */
int fh_report_free(struct page_reporting_dev_info *device, struct zone *zone,
		   struct scatterlist *list);
#ifdef CONFIG_PAGE_REPORTING
void fh_report_again(void);
#else
static inline void fh_report_again(void)
{
}
#endif
