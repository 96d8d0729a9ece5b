// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * What rustc calls and the kernel does not bring: the division of 128-bit numbers, for statistics
 * only.
 */
#include <linux/types.h>

unsigned __int128 __udivti3(unsigned __int128 dividend, unsigned __int128 divisor);

unsigned __int128 __udivti3(unsigned __int128 dividend, unsigned __int128 divisor)
{
	unsigned __int128 quotient = 0, rest = 0;
	int bit;

	for (bit = 127; bit >= 0; bit--) {
		rest = rest << 1 | (dividend >> bit & 1);
		if (rest >= divisor) {
			rest -= divisor;
			quotient |= (unsigned __int128)1 << bit;
		}
	}
	return quotient;
}
