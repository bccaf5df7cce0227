#include <windows.h>
#include <ntsecapi.h>

/* The one function that Rust's standard library wants of this library, which Wine has since version 9. */
__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE data, SIZE_T size)
{
	while (size > 0) {
		ULONG part = size < 1 << 20 ? size : 1 << 20;
		if (!RtlGenRandom(data, part))
			return FALSE;
		data += part;
		size -= part;
	}
	return TRUE;
}
