/* SPDX-License-Identifier: GPL-2.0 */
/* What freehold.c, serve.c and tell.c know of each other, beside fh.h and hooks.h. */
#pragma once

/* Frames that came to the kernel's lists after the hand-over, and were taken from there. */
extern unsigned long fh_swept;

void fh_tell_start(void);
