/* What the functions return, with declarations of the program's own: the original's header may not be there. */
#include <assert.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct callbacks {
	void *ctx;
	int (*size)(void *ctx, uint64_t size);
	int (*block)(void *ctx, const void *block, size_t size, uint64_t offset);
	int (*descriptor)(void *ctx, const void *descriptor, size_t size);
};

struct params {
	uint32_t version, algorithm;
	uint64_t file_size;
	uint32_t block_size, salt_size;
	const uint8_t *salt;
	uint64_t reserved1[8];
	const struct callbacks *callbacks;
	uintptr_t reserved2[7];
};

struct digest {
	uint16_t algorithm, size;
	uint8_t bytes[];
};

typedef int (*read_fn)(void *fd, void *buf, size_t count);
int libfsverity_compute_digest(void *fd, read_fn read, const struct params *params, struct digest **digest);
int libfsverity_sign_digest(const struct digest *digest, const void *params, uint8_t **sig, size_t *size);
int libfsverity_enable(int fd, const struct params *params);
uint32_t libfsverity_find_hash_alg_by_name(const char *name);
int libfsverity_get_digest_size(uint32_t algorithm);
const char *libfsverity_get_hash_name(uint32_t algorithm);
void libfsverity_set_error_callback(void (*tell)(const char *text));

static int told;
static uint64_t blocks, bytes;

static void tell(const char *text) { told += text[0] != 0; }
static int fives(void *fd, void *buf, size_t count)
{
	(void)fd;
	memset(buf, 5, count);
	return 0;
}
static int fails(void *fd, void *buf, size_t count) { (void)fd; (void)buf; (void)count; return -ENXIO; }
static int size(void *ctx, uint64_t size) { (void)ctx; bytes = size; return 0; }
static int block(void *ctx, const void *block, size_t size, uint64_t offset)
{
	(void)ctx; (void)block;
	assert(offset % 4096 == 0 && size == 4096);
	blocks++;
	return 0;
}
static int refuse(void *ctx, const void *descriptor, size_t size) { (void)ctx; (void)descriptor; (void)size; return -ENOSPC; }

int main(void)
{
	struct callbacks callbacks = { 0, size, block, 0 };
	struct params params = { .version = 1, .file_size = 2000000 };
	struct digest *digest = NULL, *other = NULL;

	libfsverity_set_error_callback(tell);
	assert(libfsverity_compute_digest(0, fives, &params, &digest) == 0 && digest->size == 32 && digest->algorithm == 1);
	params.callbacks = &callbacks;
	assert(libfsverity_compute_digest(0, fives, &params, &other) == 0);
	assert(memcmp(digest->bytes, other->bytes, 32) == 0 && bytes == blocks * 4096 && blocks == 5);
	free(other);
	assert(told == 0);
	callbacks.descriptor = refuse;
	assert(libfsverity_compute_digest(0, fives, &params, &other) == -ENOSPC);
	params.callbacks = NULL;
	assert(libfsverity_compute_digest(0, fails, &params, &other) == -ENXIO);
	assert(libfsverity_compute_digest(0, NULL, &params, &other) == -EINVAL);
	assert(libfsverity_compute_digest(0, fives, NULL, &other) == -EINVAL);
	assert(libfsverity_compute_digest(0, fives, &params, NULL) == -EINVAL);
	params.version = 2;
	assert(libfsverity_compute_digest(0, fives, &params, &other) == -EINVAL);
	params.version = 1;
	params.reserved2[6] = 1;
	assert(libfsverity_compute_digest(0, fives, &params, &other) == -EINVAL);
	params.reserved2[6] = 0;
	params.salt_size = 33;
	params.salt = (const uint8_t *)"a salt that is longer than thirty-two bytes";
	assert(libfsverity_compute_digest(0, fives, &params, &other) == -EINVAL);
	assert(libfsverity_sign_digest(digest, NULL, NULL, NULL) == -EINVAL);
	assert(libfsverity_enable(-1, NULL) == -EINVAL && libfsverity_enable(-1, &params) < 0);
	assert(told == 11);
	assert(libfsverity_find_hash_alg_by_name("sha512") == 2 && libfsverity_find_hash_alg_by_name("md5") == 0);
	assert(libfsverity_find_hash_alg_by_name(NULL) == 0);
	assert(libfsverity_get_digest_size(2) == 64 && libfsverity_get_digest_size(3) == -1);
	assert(strcmp(libfsverity_get_hash_name(1), "sha256") == 0 && libfsverity_get_hash_name(0) == NULL);
	free(digest);
	return 0;
}
