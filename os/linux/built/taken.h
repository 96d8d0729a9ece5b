/* SPDX-License-Identifier: GPL-2.0 */
/* Frames that were taken of a block, as the largest chunks that are naturally aligned. */
#pragma once

#include <linux/bitmap.h>
#include <linux/log2.h>

#include "fh.h"

static inline unsigned long count_taken(const freehold_block_frames *taken)
{
	return bitmap_weight((const unsigned long *)taken->words, FH_BLOCK_FRAMES);
}

/* The first chunk from `at` on: where it is, and its order; at the end, FH_BLOCK_FRAMES. */
static inline unsigned int next_taken(const freehold_block_frames *taken, unsigned int at,
				      unsigned int *order)
{
	const unsigned long *bits = (const unsigned long *)taken->words;
	unsigned int end;

	at = find_next_bit(bits, FH_BLOCK_FRAMES, at);
	if (at >= FH_BLOCK_FRAMES)
		return FH_BLOCK_FRAMES;
	end = find_next_zero_bit(bits, FH_BLOCK_FRAMES, at);
	*order = min_t(unsigned int, at ? __ffs(at) : FH_BLOCK_ORDER, ilog2(end - at));
	return at;
}

#define for_each_taken(taken, at, order)				\
	for (at = next_taken(taken, 0, &order); at < FH_BLOCK_FRAMES;	\
	     at = next_taken(taken, at + (1u << order), &order))
