/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Tells QEMU something by its ports. `port BYTE` ends the machine with a byte for isa-debug-exit,
 * 0xf4: 16 all is well, 17 something is not. `port` sends standard input to the debug console,
 * 0xe9: the fast way for files out of a guest without devices.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/io.h>
#include <unistd.h>

int main(int count, char **words)
{
	static unsigned char bytes[1 << 16];
	size_t size;

	if (ioperm(0xe9, 1, 1) || ioperm(0xf4, 1, 1)) {
		perror("ioperm");
		return 1;
	}
	if (count == 2) {
		sync();
		/* The console is written out by interrupts. */
		sleep(1);
		outb(atoi(words[1]), 0xf4);
		return 1;
	}
	while ((size = fread(bytes, 1, sizeof(bytes), stdin)) > 0)
		outsb(0xe9, bytes, size);
	return 0;
}
