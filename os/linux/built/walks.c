/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The loads that ask the kernel for pages that somebody names, and not for any that is free:
 * contiguous ranges, CMA, broken pages, pages that are shown to a device as free.
 * mm/freehold/trials.c has what programs cannot ask for.
 */
#include "loads.h"

#include <stdint.h>

#define DEBUG "/sys/kernel/debug/"

/* Of /proc/kpageflags (Documentation/admin-guide/mm/pagemap.rst). */
#define IS_FREE (1ull << 10)
#define IS_BROKEN (1ull << 19)

static long random_number(void)
{
	static unsigned int random = 2026;

	random = random * 1664525 + 1013904223;
	return random >> 8;
}

struct frames zone_of_round(int round)
{
	FILE *file = fopen("/proc/zoneinfo", "r");
	char line[128];
	struct frames zones[64] = {};
	int found = 0;

	must(file != NULL, "/proc/zoneinfo");
	while (fgets(line, sizeof(line), file)) {
		if (found == 64)
			continue;
		sscanf(line, " spanned %ld", &zones[found].count);
		sscanf(line, " present %ld", &zones[found].present);
		/* The last line of a zone that has pages. */
		if (sscanf(line, " start_pfn: %ld", &zones[found].first) == 1 && zones[found].count)
			found++;
	}
	fclose(file);
	must(found > 0, "zones");
	return zones[round % found];
}

static void ranges_come_and_go(void)
{
	static const long lengths[] = { 1, 64, 512, 700, 2048 };
	long had = 0, busy = 0;

	for (int round = 0; round < rounds; round++) {
		struct frames zone = zone_of_round(round);
		long length = lengths[round % 5];
		char words[64];

		snprintf(words, sizeof(words), "%ld %ld",
			 zone.first + random_number() % (zone.present - length), length);
		if (put(DEBUG "contig_trial", words))
			had++;
		else
			busy++;
	}
	reached("ranges_had", had);
	reached("ranges_busy", busy);
	must(had > 0, "no contiguous range could be had");
}

void load_contig(void)
{
	must(put(DEBUG "isolation_trial", "1"), "a block that is isolated");
	while_others_allocate(ranges_come_and_go);
}

static void areas_come_and_go(void)
{
	long had = 0;

	for (int round = 0; round < rounds; round++) {
		/* Of 4,096 pages. */
		if (!put(DEBUG "cma/reserved/alloc", "1500"))
			continue;
		had++;
		must(put(DEBUG "cma/reserved/free", "1500"), "cma/reserved/free");
	}
	reached("cma_had", had);
	must(had > 0, "nothing of the CMA area could be had");
}

void load_cma(void)
{
	must(put(DEBUG "cma_trial", "1"), "who gets CMA memory");
	while_others_allocate(areas_come_and_go);
}

static uint64_t flags_of(long pfn)
{
	int file = open("/proc/kpageflags", O_RDONLY);
	uint64_t flags = 0;

	must(file >= 0 && pread(file, &flags, sizeof(flags), pfn * sizeof(flags)) == sizeof(flags),
	     "/proc/kpageflags");
	close(file);
	return flags;
}

/* From that frame on, the middle of the next block of which every frame is free; or 0. */
static long in_free_block(long from, long end)
{
	for (long pfn = (from + 511) & ~511l; pfn + 512 <= end; pfn += 512) {
		int free = 0;

		while (free < 512 && (flags_of(pfn + free) & IS_FREE))
			free++;
		if (free == 512)
			return pfn + 300;
	}
	return 0;
}

/*
 * Broken pages are nobody's, however much is allocated; and somebody's again where they were not
 * broken after all.
 */
void load_poison(void)
{
	size_t size = number_in("/proc/meminfo", "MemAvailable") * 1024 / 4 * 3;
	long next = 0, pfns[rounds];
	char *memory;

	for (int round = 0; round < rounds; round++) {
		struct frames zone = zone_of_round(round);

		/*
		 * A round looks behind what the one before it broke, if that was in the same zone.
		 */
		next = next < zone.first || next >= zone.first + zone.count ? zone.first : next;
		pfns[round] = in_free_block(next, zone.first + zone.count);
		must(pfns[round] > 0, "a block that is free");
		next = pfns[round] + 512;
		must(put_number(DEBUG "hwpoison/corrupt-pfn", pfns[round]), "corrupt-pfn");
		must((flags_of(pfns[round]) & (IS_FREE | IS_BROKEN)) == IS_BROKEN,
		     "a broken page was not taken away");
	}
	memory = map(size, MADV_NOHUGEPAGE);
	touch(memory, size);
	for (int round = 0; round < rounds; round++)
		must((flags_of(pfns[round]) & (IS_FREE | IS_BROKEN)) == IS_BROKEN,
		     "a broken page is somebody's");
	munmap(memory, size);
	for (int round = 0; round < rounds; round++) {
		must(put_number(DEBUG "hwpoison/unpoison-pfn", pfns[round]), "unpoison-pfn");
		must(!(flags_of(pfns[round]) & IS_BROKEN), "a page stays broken");
	}
	reached("broken_pages", rounds);
}

#define TRIAL DEBUG "reporting_trial"

/* Until the device was shown nothing new for some seconds. */
static long shown_in_all(void)
{
	long before = -1, now = number_of(TRIAL);

	while (now != before) {
		sleep(7);
		before = now;
		now = number_of(TRIAL);
	}
	return now;
}

/* A device is shown what is free, and what is freed later. */
void load_report(void)
{
	size_t size = 64 * BLOCK;
	long before = number_of(TRIAL), first, second;

	must(put(TRIAL, "1"), TRIAL);
	first = second = shown_in_all();
	touch(map(size, MADV_HUGEPAGE), size);
	/*
	 * Single pages need not come together to a block: the rest of it may be in use. So every
	 * other time they are whole blocks.
	 */
	for (int attempt = 0; attempt < 5 && second == first; attempt++) {
		if (!child(0)) {
			touch(map(size, attempt % 2 ? MADV_HUGEPAGE : MADV_NOHUGEPAGE), size);
			_exit(0);
		}
		children_end();
		second = shown_in_all();
	}
	must(put(TRIAL, "0"), TRIAL);
	reached("reported_MiB", (first - before) / 256);
	reached("reported_later_MiB", (second - first) / 256);
	must(first > before && second > first, "a device was not shown what is free");
}
