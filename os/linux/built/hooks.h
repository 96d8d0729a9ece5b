/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What mm/page_alloc.c asks of Freehold, in the kernel that asks it first (freehold.json says where). It includes this, so it has
 * internal.h's names already.
 */
#pragma once

#include <linux/mm.h>
#include <linux/mmzone.h>

/* Since all memory of Freehold's has come. */
extern bool fh_serves;

/* NULL where Freehold has none: then the kernel's own lists are asked. */
struct page *fh_page(gfp_t gfp, unsigned int order);
/* Whether it is of a block that Freehold has. */
bool fh_has_page(unsigned long pfn);
void fh_free_page(unsigned long pfn, unsigned int order);

/* Not for NMIs, which may interrupt a call on the same CPU, nor for those who may use the kernel's reserves. */
static inline bool fh_may_serve(struct zone *zone, unsigned int order, unsigned int alloc_flags)
{
	return READ_ONCE(fh_serves) && order <= pageblock_order && zone_idx(zone) == ZONE_NORMAL &&
	       !(alloc_flags & (ALLOC_TRYLOCK | ALLOC_HIGHATOMIC));
}
