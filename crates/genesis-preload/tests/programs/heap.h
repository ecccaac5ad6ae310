/* What heap.c and the programs that use it share. */
#ifndef GENESIS_PRELOAD_TEST_HEAP_H
#define GENESIS_PRELOAD_TEST_HEAP_H

/* The one block, of device 0. */
#define HEAP_BLOCK ((void *)0x700000000000)

#endif
