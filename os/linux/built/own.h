/* SPDX-License-Identifier: GPL-2.0 */
/* What freehold.c, serve.c and tell.c know of each other, beside fh.h and hooks.h. */
#pragma once

/* Frames that came to the kernel's lists after the hand-over, and were taken from there. */
extern unsigned long fh_swept;
/* How often page_alloc.c had taken the lock of a zone Normal when Freehold got it. */
extern long fh_locks_before;

void fh_tell_start(void);
