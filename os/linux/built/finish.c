/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Ends the machine with a byte for QEMU's isa-debug-exit: 16 all is well, 17 something is not.
 * Usage: finish BYTE
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/io.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	int byte = argc == 2 ? atoi(argv[1]) : 17;

	sync();
	if (ioperm(0xf4, 1, 1)) {
		perror("ioperm");
		return 1;
	}
	/* The console is written out by interrupts. */
	sleep(1);
	outb(byte, 0xf4);
	return 1;
}
