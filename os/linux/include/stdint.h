/* freehold.h asks for the C library's header; the kernel has the same names elsewhere. */
#pragma once
#include <linux/limits.h>
#include <linux/types.h>
