/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What the parts of the benchmark share. */
#pragma once

#include <linux/types.h>

#define FH_BENCH_CPUS 4

/* bench.c */
void fh_bench_note(const char *work, const char *side, u64 nanoseconds, u64 operations);

/* bench_cpus.c */
bool fh_bench_several(void);
