/* freehold.h asks for the C library's header; the kernel has the same names elsewhere. */
#pragma once
#include <linux/stddef.h>
#include <linux/types.h>
