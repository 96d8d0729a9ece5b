/* SPDX-License-Identifier: GPL-2.0 */
/* What a kernel forgets before a recording, besides what its CPUs' lists hold: begin.c. */
#pragma once

/* All pageblocks are the zone's from now on. */
void fh_disown(void);
