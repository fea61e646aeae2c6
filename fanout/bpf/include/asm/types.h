/* <linux/types.h> asks for the machine's own; clang has none for BPF. */
#include <asm-generic/types.h>
