// SPDX-License-Identifier: GPL-2.0
/*
 * The blocks that are kept for atomic requests of high orders. Freehold keeps them, as many as the
 * kernel would; the kernel says when:
 *
 *   ALLOC_HIGHATOMIC                   is set only where memory is short: such a request takes of
 *                                      them first, and of another block only by keeping that
 *                                      (serve.c passes it on)
 *   unreserve_highatomic_pageblock()   decides when one is given up, and asks here for it
 *   the watermarks                     do not count their free pages, but for those who may have
 *                                      them
 *
 * The kernel counts these pages with its lock, page by page. Here they are summed up where a
 * request goes the slow way, since only there it matters, and once a second: no allocation and no
 * free has anything to do with it. In between, pages that come back to such blocks count as
 * anybody's, which is at most a hundredth of the zone.
 */
#include "fh.h"

#include <linux/mm.h>

#include "../internal.h"
#include "hooks.h"
#include "own.h"

static void note_reserve(struct zone *zone)
{
	freehold_reserve reserve;

	if (freehold_read_reserve(fh_of_zone(zone), 0, &reserve, NULL))
		return;
	if (READ_ONCE(zone->nr_reserved_highatomic) != reserve.blocks << FH_BLOCK_ORDER)
		WRITE_ONCE(zone->nr_reserved_highatomic, reserve.blocks << FH_BLOCK_ORDER);
	if (READ_ONCE(zone->nr_free_highatomic) != reserve.free)
		WRITE_ONCE(zone->nr_free_highatomic, reserve.free);
}

void fh_note_reserves(void)
{
	struct zone *zone;
	unsigned int which;

	for_each_zone_of_freehold(zone, which)
		note_reserve(zone);
}

bool fh_give_up_reserve(struct zone *zone, int migratetype)
{
	/* Both number the ordinary types alike. */
	bool given_up = migratetype < MIGRATE_PCPTYPES &&
			freehold_give_up_reserve(fh_of_zone(zone), 0, migratetype);

	BUILD_BUG_ON(MIGRATE_UNMOVABLE != (int)FREEHOLD_MIGRATETYPE_UNMOVABLE ||
		     MIGRATE_MOVABLE != (int)FREEHOLD_MIGRATETYPE_MOVABLE ||
		     MIGRATE_RECLAIMABLE != (int)FREEHOLD_MIGRATETYPE_RECLAIMABLE);
	note_reserve(zone);
	return given_up;
}
