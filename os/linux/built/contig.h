/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Contiguous pages of order 0 freed as chunks: what "mm/page_alloc: optimize free_contig_range()"
 * and "vmalloc: optimize vfree with free_pages_bulk()" brought to 7.2, in words of ours, for an older
 * kernel. The rules "contig-free: ..." of threads.json have mm/page_alloc.c include it. Every page
 * drops its own reference and is prepared by itself; the chunks that result are freed whole. With
 * SPARSEMEM_VMEMMAP struct pages are contiguous where frames are, so sections are no matter.
 */
static void fh_free_prepared(struct page *page, unsigned long count)
{
	while (count) {
		unsigned long pfn = page_to_pfn(page);
		unsigned int order = min_t(unsigned int, ilog2(count), MAX_PAGE_ORDER);

		if (pfn)
			order = min_t(unsigned int, order, __ffs(pfn));
		__free_frozen_pages(page, order, FPI_PREPARED);
		page += 1ul << order;
		count -= 1ul << order;
	}
}

/* A page that somebody still has, or that is bad, ends a run. */
static void fh_free_range(struct page *page, unsigned long count, bool frozen)
{
	struct page *end = page + count, *first = page;

	for (; page < end; page++) {
		VM_WARN_ON_ONCE_PAGE(PageHead(page) || PageTail(page), page);
		if ((frozen || put_page_testzero(page)) && __free_pages_prepare(page, 0, FPI_NONE))
			continue;
		fh_free_prepared(first, page - first);
		first = page + 1;
	}
	fh_free_prepared(first, page - first);
}

void free_pages_bulk(struct page **pages, unsigned long count);

void free_pages_bulk(struct page **pages, unsigned long count)
{
	unsigned long run;

	for (; count; pages += run, count -= run) {
		for (run = 1; run < count && pages[run] == pages[0] + run;)
			run++;
		fh_free_range(pages[0], run, false);
		cond_resched();
	}
}
