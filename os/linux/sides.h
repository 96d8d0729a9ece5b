/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What is measured beside each other: the kernel's own allocator, ours, and ours with what the kernel does to struct page. */
#pragma once

#include "fh.h"
#include "page.h"

struct fh_side {
	const char *name;
	u64 (*alloc)(unsigned int order);
	void (*free)(u64 pfn, unsigned int order);
	size_t (*alloc_bulk)(size_t count, u64 *pfns);
	void (*free_bulk)(const u64 *pfns, size_t count);
};

#define FH_NOTHING U64_MAX

static __always_inline u64 kernel_alloc(unsigned int order)
{
	struct page *page = alloc_pages(GFP_KERNEL | __GFP_NOWARN | __GFP_NORETRY, order);

	return page ? page_to_pfn(page) : FH_NOTHING;
}

static __always_inline void kernel_free(u64 pfn, unsigned int order)
{
	__free_pages(pfn_to_page(pfn), order);
}

/* The kernel exports no free of many pages by the list: one after the other. */
static __always_inline void kernel_free_bulk(const u64 *pfns, size_t count)
{
	while (count--)
		__free_page(pfn_to_page(*pfns++));
}

/* Into an array of pages, which becomes one of frame numbers: a subtraction each. */
static __always_inline size_t kernel_alloc_bulk(size_t count, u64 *pfns)
{
	struct page **pages = (struct page **)pfns;
	size_t i, got;

	memset(pages, 0, count * sizeof(*pages));
	got = alloc_pages_bulk_array(GFP_KERNEL, count, pages);
	for (i = 0; i < got; i++)
		pfns[i] = page_to_pfn(pages[i]);
	return got;
}

static __always_inline u64 ours_alloc(unsigned int order)
{
	u64 pfn;

	return fh_alloc(GFP_KERNEL, order, &pfn) ? FH_NOTHING : pfn;
}

static __always_inline void ours_free(u64 pfn, unsigned int order)
{
	fh_free(pfn, order);
}

static __always_inline size_t ours_alloc_bulk(size_t count, u64 *pfns)
{
	return fh_alloc_bulk(GFP_KERNEL, count, pfns);
}

static __always_inline void ours_free_bulk(const u64 *pfns, size_t count)
{
	fh_free_bulk(pfns, count);
}

/*
 * What 6.1 does to struct page without debugging on. At the allocation: private = 0 and one reference, for the first page
 * (those on its per-CPU lists have been checked before). At the free: the reference is dropped by an atomic operation; then,
 * page by page, flags, mapping, count and map count must be those of a page that nobody uses, and the flags are cleared.
 */
static __always_inline void page_state_free(u64 pfn, unsigned int order)
{
	struct page *page = pfn_to_page(pfn);
	unsigned int i;

	if (!put_page_testzero(page))
		atomic64_inc(&fh_refused);
	for (i = 0; i < 1u << order; i++) {
		if (unlikely(!fh_page_is_unused(page + i, PAGE_FLAGS_CHECK_AT_FREE)))
			atomic64_inc(&fh_refused);
		*fh_page_flags(page + i) &= ~PAGE_FLAGS_CHECK_AT_PREP;
	}
}

static __always_inline u64 paged_alloc(unsigned int order)
{
	u64 pfn = ours_alloc(order);

	if (likely(pfn != FH_NOTHING))
		fh_page_is_allocated(pfn_to_page(pfn));
	return pfn;
}

static __always_inline void paged_free(u64 pfn, unsigned int order)
{
	page_state_free(pfn, order);
	ours_free(pfn, order);
}

static __always_inline size_t paged_alloc_bulk(size_t count, u64 *pfns)
{
	size_t i, got = ours_alloc_bulk(count, pfns);

	for (i = 0; i < got; i++)
		fh_page_is_allocated(pfn_to_page(pfns[i]));
	return got;
}

static __always_inline void paged_free_bulk(const u64 *pfns, size_t count)
{
	size_t i;

	for (i = 0; i < count; i++)
		page_state_free(pfns[i], 0);
	ours_free_bulk(pfns, count);
}
