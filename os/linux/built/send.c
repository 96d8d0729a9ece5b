/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Sends standard input to QEMU's debug console, port 0xe9: the fast way for files out of a guest
 * without devices.
 */
#include <stdio.h>
#include <sys/io.h>

int main(void)
{
	static unsigned char bytes[1 << 16];
	size_t size;

	if (ioperm(0xe9, 1, 1)) {
		perror("ioperm");
		return 1;
	}
	while ((size = fread(bytes, 1, sizeof(bytes), stdin)) > 0)
		outsb(0xe9, bytes, size);
	return 0;
}
