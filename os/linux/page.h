/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What the kernel's own allocator does to struct page, of 6.1 without debugging. */
#pragma once

#include "compat.h"

#include <linux/mm.h>
#include <linux/page-flags.h>

/* Nobody uses it: no reference, no mapping, none of these flags. */
static __always_inline bool fh_page_is_unused(struct page *page, unsigned long flags)
{
	return !((unsigned long)page->mapping | (unsigned long)page_ref_count(page) | (*fh_page_flags(page) & flags)) &&
	       atomic_read(&page->_mapcount) == -1;
}

/* One reference, its owner's. */
static __always_inline void fh_page_is_allocated(struct page *page)
{
	set_page_private(page, 0);
	set_page_count(page, 1);
}
