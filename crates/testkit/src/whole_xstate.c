/* Lets User-Mode-Linux 6.1 set the registers of a process on processors with AMX: it has room for those up to AVX-512, and Linux
 * takes all of them or none. For LD_PRELOAD. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>

static long (*next)(int request, long pid, void *address, void *data);

__attribute__((constructor)) static void find(void)
{
	next = (long (*)(int, long, void *, void *))dlsym(RTLD_NEXT, "ptrace");
}

long ptrace(enum __ptrace_request request, ...)
{
	static char registers[1 << 16];
	struct iovec all = { registers, sizeof(registers) }, *given;
	__builtin_va_list list;
	void *address, *data;
	long pid;

	__builtin_va_start(list, request);
	pid = __builtin_va_arg(list, long);
	address = __builtin_va_arg(list, void *);
	data = __builtin_va_arg(list, void *);
	__builtin_va_end(list);
	if ((int)request == PTRACE_SETREGSET && (long)address == NT_X86_XSTATE) {
		given = data;
		if (next(PTRACE_GETREGSET, pid, address, &all) == 0 && given->iov_len < all.iov_len) {
			memcpy(registers, given->iov_base, given->iov_len);
			data = &all;
		}
	}
	return next(request, pid, address, data);
}
