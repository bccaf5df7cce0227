/* NULL for every pointer, a callback that fails, and options of another size. */
#include <casemate.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                 \
    do {                                                                 \
        if (!(condition)) {                                              \
            fprintf(stderr, "line %d: %s\n", __LINE__, #condition);      \
            exit(1);                                                     \
        }                                                                \
    } while (0)

static int reads_numbers(void *context, uint8_t *buf, size_t len, uint64_t offset)
{
    size_t i;
    (void)context;
    for (i = 0; i < len; i++)
        buf[i] = (uint8_t)(offset + i);
    return 0;
}

static int fails(void *context, uint8_t *buf, size_t len, uint64_t offset)
{
    (void)buf;
    (void)len;
    (void)offset;
    return *(int *)context;
}

/* The call could not be done, says why, and takes NULL for the error, too. */
#define REFUSED(call)                                                    \
    do {                                                                 \
        casemate_error *error = NULL;                                    \
        casemate_error **place = &error;                                 \
        CHECK((call) == CASEMATE_COULD_NOT);                             \
        CHECK(casemate_error_kind(error) == CASEMATE_KIND_ARGUMENT);     \
        CHECK(strstr(casemate_error_message(error), "NULL") != NULL);    \
        casemate_error_free(error);                                      \
        place = NULL;                                                    \
        CHECK((call) == CASEMATE_COULD_NOT);                             \
    } while (0)

int main(void)
{
    casemate_device *device = NULL, *other = NULL;
    casemate_hasher *hasher = NULL;
    casemate_ext4 *fs = NULL;
    casemate_error *error = NULL;
    casemate_fsverity_options how;
    casemate_digest digest;
    casemate_stat stat;
    uint8_t bytes[16];
    size_t len = 0;
    int number = EACCES;
    struct {
        casemate_fsverity_options known;
        uint64_t unknown;
    } newer;

    CHECK(strlen(casemate_version()) > 2);
    CHECK(casemate_error_status(NULL) == 0 && casemate_error_kind(NULL) == 0 && casemate_error_errno(NULL) == 0);
    CHECK(casemate_error_message(NULL) == NULL);
    casemate_error_free(NULL);
    casemate_device_free(NULL);
    casemate_hasher_free(NULL);
    casemate_ext4_free(NULL);
    CHECK(casemate_device_size(NULL) == 0);
    CHECK(casemate_crc32c(7, NULL, 0) == 7);
    CHECK(casemate_crc32c(0, (const uint8_t *)"123456789", 9) == 0xE3069283u);

    CHECK(casemate_device_from_callback(1000, reads_numbers, NULL, &device, &error) == CASEMATE_YES);
    CHECK(casemate_device_read(device, bytes, 2, 513, &error) == CASEMATE_YES && bytes[0] == 1 && bytes[1] == 2);
    CHECK(casemate_device_read(device, NULL, 0, 0, NULL) == CASEMATE_YES);

    REFUSED(casemate_device_open(NULL, 0, &other, place));
    REFUSED(casemate_device_open("/dev/null", 0, NULL, place));
    REFUSED(casemate_device_from_callback(1, NULL, NULL, &other, place));
    REFUSED(casemate_device_from_callback(1, fails, NULL, NULL, place));
    REFUSED(casemate_device_window(NULL, 0, 1, &other, place));
    REFUSED(casemate_device_window(device, 0, 1, NULL, place));
    REFUSED(casemate_device_partition(NULL, 1, &other, place));
    REFUSED(casemate_device_partition(device, 1, NULL, place));
    REFUSED(casemate_device_crypt(NULL, bytes, 16, NULL, &other, place));
    REFUSED(casemate_device_crypt(device, NULL, 16, NULL, &other, place));
    REFUSED(casemate_device_crypt(device, bytes, 16, NULL, NULL, place));
    REFUSED(casemate_device_luks(NULL, bytes, 1, &other, place));
    REFUSED(casemate_device_luks(device, NULL, 1, &other, place));
    REFUSED(casemate_device_luks(device, bytes, 1, NULL, place));
    REFUSED(casemate_device_verity(NULL, device, bytes, 1, 0, &other, place));
    REFUSED(casemate_device_verity(device, NULL, bytes, 1, 0, &other, place));
    REFUSED(casemate_device_verity(device, device, NULL, 1, 0, &other, place));
    REFUSED(casemate_device_verity(device, device, bytes, 1, 0, NULL, place));
    REFUSED(casemate_device_read(NULL, bytes, 1, 0, place));
    REFUSED(casemate_device_read(device, NULL, 1, 0, place));
    REFUSED(casemate_device_write(NULL, bytes, 1, 0, place));
    REFUSED(casemate_device_write(device, NULL, 1, 0, place));
    REFUSED(casemate_device_flush(NULL, place));
    REFUSED(casemate_verity_verify(NULL, device, bytes, 1, 0, NULL, place));
    REFUSED(casemate_verity_verify(device, NULL, bytes, 1, 0, NULL, place));
    REFUSED(casemate_verity_verify(device, device, NULL, 1, 0, NULL, place));
    REFUSED(casemate_fsverity_digest(NULL, NULL, &digest, place));
    REFUSED(casemate_fsverity_digest(device, NULL, NULL, place));
    REFUSED(casemate_hasher_new(NULL, NULL, place));
    CHECK(casemate_hasher_new(NULL, &hasher, NULL) == CASEMATE_YES);
    REFUSED(casemate_hasher_update(NULL, bytes, 1, place));
    REFUSED(casemate_hasher_update(hasher, NULL, 1, place));
    REFUSED(casemate_hasher_digest(NULL, &digest, place));
    REFUSED(casemate_hasher_digest(hasher, NULL, place));
    REFUSED(casemate_ext4_open(NULL, &fs, place));
    REFUSED(casemate_ext4_open(device, NULL, place));
    REFUSED(casemate_ext4_stat(NULL, "/", 1, &stat, place));
    REFUSED(casemate_ext4_open_file(NULL, "/", &other, place));
    REFUSED(casemate_ext4_read_dir(NULL, "/", NULL, NULL, place));
    REFUSED(casemate_ext4_readlink(NULL, "/", bytes, &len, place));

    /* A device that can't be written, damage, and the system's numbers. */
    CHECK(casemate_device_write(device, bytes, 1, 0, &error) == CASEMATE_COULD_NOT);
    casemate_error_free(error);
    error = NULL;
    CHECK(casemate_device_open("/none", 0, &other, &error) == CASEMATE_COULD_NOT);
    CHECK(casemate_error_errno(error) == ENOENT && casemate_error_kind(error) == CASEMATE_KIND_IO);
    casemate_error_free(error);
    error = NULL;
    CHECK(casemate_device_from_callback(1 << 20, reads_numbers, NULL, &other, NULL) == CASEMATE_YES);
    CHECK(casemate_ext4_open(other, &fs, &error) == CASEMATE_NO && fs == NULL);
    CHECK(casemate_error_status(error) == CASEMATE_NO && casemate_error_kind(error) == CASEMATE_KIND_CORRUPT);
    casemate_error_free(error);
    error = NULL;
    casemate_device_free(other);
    CHECK(casemate_device_from_callback(10, fails, &number, &other, NULL) == CASEMATE_YES);
    CHECK(casemate_device_read(other, bytes, 1, 0, &error) == CASEMATE_COULD_NOT);
    CHECK(casemate_error_errno(error) == EACCES);
    casemate_error_free(error);
    error = NULL;

    /* A structure that has grown is taken while what has come is zero; one without a size is not. */
    memset(&newer, 0, sizeof(newer));
    newer.known.size = sizeof(newer);
    CHECK(casemate_fsverity_digest(device, &newer.known, &digest, NULL) == CASEMATE_YES && digest.len == 32);
    newer.unknown = 1;
    CHECK(casemate_fsverity_digest(device, &newer.known, &digest, &error) == CASEMATE_COULD_NOT);
    CHECK(casemate_error_kind(error) == CASEMATE_KIND_UNSUPPORTED);
    casemate_error_free(error);
    memset(&how, 0, sizeof(how));
    CHECK(casemate_fsverity_digest(device, &how, &digest, NULL) == CASEMATE_COULD_NOT);
    how.size = 8;
    how.block_size = 1024;
    how.algorithm = "nonsense behind the size that was said";
    CHECK(casemate_fsverity_digest(device, &how, &digest, NULL) == CASEMATE_YES && digest.len == 32);
    how.size = sizeof(how);
    how.algorithm = "sha512";
    CHECK(casemate_fsverity_digest(device, &how, &digest, NULL) == CASEMATE_YES && digest.len == 64);

    casemate_hasher_free(hasher);
    casemate_device_free(other);
    casemate_device_free(device);
    return 0;
}
