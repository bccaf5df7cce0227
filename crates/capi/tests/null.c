/* NULL for every pointer, a callback that fails, and options of another size. */
#include <casemate.h>

#include "check.h"

#include <errno.h>
#include <string.h>

static int reads_numbers(void *context, void *buf, size_t len, uint64_t offset)
{
    size_t i;
    uint8_t *bytes = (uint8_t *)buf;
    (void)context;
    for (i = 0; i < len; i++)
        bytes[i] = (uint8_t)(offset + i);
    return 0;
}

static int fails(void *context, void *buf, size_t len, uint64_t offset)
{
    (void)buf;
    (void)len;
    (void)offset;
    return *(int *)context;
}

static void counts(void *context)
{
    ++*(int *)context;
}

static int hears_of_digests(void *context, size_t index, const casemate_digest *digest, const casemate_error *error)
{
    (void)context;
    (void)index;
    return digest == NULL && error == NULL;
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
    casemate_device *device = NULL, *other = NULL, *part = NULL;
    casemate_hasher *hasher = NULL;
    casemate_ext4 *fs = NULL;
    casemate_cipher *cipher = NULL;
    casemate_keys *keys = NULL;
    casemate_writer *writer = NULL;
    casemate_server *server = NULL;
    casemate_build *build = NULL;
    casemate_error *error = NULL;
    const char *none = NULL;
    casemate_fsverity_options how;
    casemate_luks_options luks;
    casemate_verity_options verity;
    casemate_digest digest;
    casemate_stat stat;
    casemate_ext4_info info;
    uint64_t size;
    uint8_t bytes[16];
    char version[48];
    size_t len = 0;
    int number = EACCES;
    struct {
        casemate_fsverity_options known;
        uint64_t unknown;
    } newer;

    sprintf(version, "%d.%d.%d", CASEMATE_VERSION_MAJOR, CASEMATE_VERSION_MINOR, CASEMATE_VERSION_PATCH);
    CHECK(strcmp(casemate_version(), version) == 0);
    CHECK(casemate_error_status(NULL) == 0 && casemate_error_kind(NULL) == 0 && casemate_error_errno(NULL) == 0);
    CHECK(strcmp(casemate_error_message(NULL), "") == 0);
    CHECK(casemate_error_code(NULL) == 0 && strcmp(casemate_error_code_name(NULL), "") == 0);
    casemate_error_free(NULL);
    casemate_device_free(NULL);
    casemate_hasher_free(NULL);
    casemate_ext4_free(NULL);
    CHECK(casemate_device_size(NULL) == 0);
    CHECK(casemate_crc32c(7, NULL, 0) == 7);
    CHECK(casemate_crc32c(0, (const uint8_t *)"123456789", 9) == 0xE3069283u);

    CHECK(casemate_device_from_callback(1000, reads_numbers, NULL, NULL, &device, &error) == CASEMATE_YES);
    CHECK(casemate_device_read(device, bytes, 2, 513, &error) == CASEMATE_YES && bytes[0] == 1 && bytes[1] == 2);
    CHECK(casemate_device_read(device, NULL, 0, 0, NULL) == CASEMATE_YES);

    REFUSED(casemate_device_open(NULL, 0, &other, place));
    REFUSED(casemate_device_open("/dev/null", 0, NULL, place));
    REFUSED(casemate_device_from_callback(1, NULL, NULL, NULL, &other, place));
    REFUSED(casemate_device_from_callback(1, fails, NULL, NULL, NULL, place));
    REFUSED(casemate_device_window(NULL, 0, 1, &other, place));
    REFUSED(casemate_device_window(device, 0, 1, NULL, place));
    REFUSED(casemate_device_partition(NULL, 1, &other, place));
    REFUSED(casemate_device_partition(device, 1, NULL, place));
    REFUSED(casemate_device_crypt(NULL, bytes, 16, NULL, &other, place));
    REFUSED(casemate_device_crypt(device, NULL, 16, NULL, &other, place));
    REFUSED(casemate_device_crypt(device, bytes, 16, NULL, NULL, place));
    REFUSED(casemate_device_open_spec(NULL, bytes, 1, 0, &other, place));
    REFUSED(casemate_device_open_spec("image", NULL, 1, 0, &other, place));
    REFUSED(casemate_device_open_spec("image", bytes, 1, 0, NULL, place));
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
    casemate_build_free(NULL);
    REFUSED(casemate_build_new(NULL, &build, place));
    REFUSED(casemate_build_new("none", NULL, place));
    REFUSED(casemate_build_at(NULL, 0, place));
    REFUSED(casemate_build_in_partition(NULL, 1, place));
    REFUSED(casemate_build_add_folder(NULL, "none", place));
    REFUSED(casemate_build_set_options(NULL, NULL, place));
    REFUSED(casemate_build_verity(NULL, NULL, NULL, place));
    REFUSED(casemate_build_dm_verity(NULL, NULL, place));
    REFUSED(casemate_build_luks(NULL, bytes, 1, NULL, place));
    REFUSED(casemate_build_run(NULL, 0, NULL, place));
    CHECK(casemate_build_new("none/none", &build, NULL) == CASEMATE_YES);
    REFUSED(casemate_build_add_folder(build, NULL, place));
    REFUSED(casemate_build_add_tar(build, NULL, place));
    REFUSED(casemate_build_add_layer(build, NULL, place));
    REFUSED(casemate_build_add_oci(build, NULL, NULL, place));
    REFUSED(casemate_build_verity_manifest(build, NULL, place));
    REFUSED(casemate_build_encrypt(build, NULL, bytes, 16, NULL, place));
    REFUSED(casemate_build_encrypt(build, "a", NULL, 16, NULL, place));
    REFUSED(casemate_build_protect(build, NULL, NULL, bytes, 16, NULL, place));
    REFUSED(casemate_build_protect(build, "a", NULL, NULL, 16, NULL, place));
    CHECK(casemate_build_protect(build, "a", "none", bytes, 16, NULL, NULL) == CASEMATE_COULD_NOT);
    REFUSED(casemate_build_describe(build, NULL, "a", place));
    CHECK(casemate_build_describe(build, "none", "a", NULL) == CASEMATE_COULD_NOT);
    REFUSED(casemate_build_describe(build, "mtree", NULL, place));
    REFUSED(casemate_build_label(build, NULL, place));
    REFUSED(casemate_build_mount_point(build, NULL, place));
    CHECK(casemate_build_parity(build, "without dm-verity", 0, 0, NULL) == CASEMATE_COULD_NOT);
    CHECK(casemate_build_dm_verity(build, NULL, NULL) == CASEMATE_YES);
    REFUSED(casemate_build_parity(build, NULL, 0, 0, place));
    REFUSED(casemate_build_luks(build, NULL, 1, NULL, place));
    memset(&luks, 0, sizeof(luks));
    luks.size = sizeof(luks);
    luks.volume_key_len = 64;
    REFUSED(casemate_build_luks(build, bytes, 1, &luks, place));
    luks.volume_key_len = 0;
    luks.kdf = "pbkdf2";
    for (len = 0; len < 2; len++) {
        luks.memory = len == 0 ? 5000 : 0;
        luks.lanes = len == 0 ? 0 : 4;
        CHECK(casemate_build_luks(build, bytes, 1, &luks, &error) == CASEMATE_COULD_NOT);
        CHECK(strcmp(casemate_error_message(error), "PBKDF2 has neither memory nor lanes") == 0);
        casemate_error_free(error);
        error = NULL;
    }
    len = 0;
    CHECK(casemate_build_add_folder(build, "none", NULL) == CASEMATE_YES);
    CHECK(casemate_build_run(build, 0, NULL, NULL) == CASEMATE_COULD_NOT);
    CHECK(casemate_build_run(build, 0, NULL, &error) == CASEMATE_COULD_NOT);
    CHECK(strstr(casemate_error_message(error), "already") != NULL);
    casemate_error_free(error);
    error = NULL;
    casemate_build_free(build);
    REFUSED(casemate_fsverity_digest(NULL, NULL, &digest, place));
    REFUSED(casemate_fsverity_digest(device, NULL, NULL, place));
    REFUSED(casemate_hasher_new(NULL, NULL, place));
    CHECK(casemate_hasher_new(NULL, &hasher, NULL) == CASEMATE_YES);
    REFUSED(casemate_hasher_update(NULL, bytes, 1, place));
    REFUSED(casemate_hasher_update(hasher, NULL, 1, place));
    REFUSED(casemate_hasher_digest(NULL, &digest, place));
    REFUSED(casemate_hasher_digest(hasher, NULL, place));
    REFUSED(casemate_ext4_open(NULL, NULL, &fs, place));
    REFUSED(casemate_ext4_open(device, NULL, NULL, place));
    REFUSED(casemate_ext4_stat(NULL, "/", 1, &stat, place));
    REFUSED(casemate_ext4_open_file(NULL, "/", &other, place));
    REFUSED(casemate_ext4_read_dir(NULL, "/", NULL, NULL, place));
    REFUSED(casemate_ext4_readlink(NULL, "/", bytes, &len, place));
    REFUSED(casemate_ext4_get_xattr(NULL, "/", "user.x", bytes, &len, place));
    REFUSED(casemate_ext4_check(NULL, NULL, NULL, NULL, place));
    REFUSED(casemate_ext4_get_info(NULL, &info, place));
    REFUSED(casemate_ext4_repair(NULL, NULL, NULL, NULL, NULL, NULL, place));
    REFUSED(casemate_ext4_resize(NULL, NULL, 0, NULL, NULL, place));
    REFUSED(casemate_ext4_minimize(NULL, NULL, NULL, NULL, place));
    REFUSED(casemate_ext4_minimum_size(NULL, NULL, &size, place));
    REFUSED(casemate_ext4_minimum_size(device, NULL, NULL, place));
    REFUSED(casemate_writer_tune(NULL, NULL, place));
    REFUSED(casemate_device_create(NULL, &other, place));
    REFUSED(casemate_device_create("none", NULL, place));
    REFUSED(casemate_device_commit(NULL, place));
    REFUSED(casemate_cipher_new(NULL, 32, NULL, &cipher, place));
    REFUSED(casemate_cipher_new(bytes, 16, NULL, NULL, place));
    REFUSED(casemate_cipher_run(NULL, 1, 0, bytes, 16, place));
    REFUSED(casemate_verity_format(NULL, device, NULL, &digest, place));
    REFUSED(casemate_verity_format(device, NULL, NULL, &digest, place));
    REFUSED(casemate_verity_format(device, device, NULL, NULL, place));
    memset(&verity, 0, sizeof(verity));
    verity.size = sizeof(verity);
    verity.salt_len = 16;
    REFUSED(casemate_verity_format(device, device, &verity, &digest, place));
    REFUSED(casemate_fsverity_digest_files(NULL, 1, NULL, hears_of_digests, NULL, place));
    REFUSED(casemate_fsverity_digest_files(&none, 1, NULL, hears_of_digests, NULL, place));
    REFUSED(casemate_fsverity_digest_files(NULL, 0, NULL, NULL, NULL, place));
    CHECK(casemate_fsverity_digest_files(NULL, 0, NULL, hears_of_digests, NULL, NULL) == CASEMATE_YES);
    REFUSED(casemate_keys_new(NULL, place));
    REFUSED(casemate_keys_add_raw(NULL, bytes, 16, place));
    REFUSED(casemate_keys_add_passphrase(NULL, bytes, 16, place));
    CHECK(casemate_keys_new(&keys, NULL) == CASEMATE_YES);
    REFUSED(casemate_keys_add_raw(keys, NULL, 16, place));
    REFUSED(casemate_keys_add_passphrase(keys, NULL, 16, place));
    REFUSED(casemate_ext4_change(NULL, NULL, &writer, place));
    REFUSED(casemate_ext4_change(device, keys, NULL, place));
    REFUSED(casemate_writer_write_file(NULL, "/a", bytes, 1, place));
    REFUSED(casemate_writer_put(NULL, "a", "/a", 0, place));
    REFUSED(casemate_writer_mkdir(NULL, "/a", 0755, 0, place));
    REFUSED(casemate_writer_symlink(NULL, "a", "/a", place));
    REFUSED(casemate_writer_link(NULL, "/b", "/a", place));
    REFUSED(casemate_writer_rename(NULL, "/b", "/a", place));
    REFUSED(casemate_writer_remove(NULL, "/a", 0, place));
    REFUSED(casemate_writer_chmod(NULL, "/a", 0755, place));
    REFUSED(casemate_writer_chown(NULL, "/a", 0, 0, 0, place));
    REFUSED(casemate_writer_truncate(NULL, "/a", 0, place));
    REFUSED(casemate_writer_set_xattr(NULL, "/a", "user.x", bytes, 1, place));
    REFUSED(casemate_writer_commit(NULL, place));
    REFUSED(casemate_server_unix(NULL, "socket", NULL, &server, place));
    REFUSED(casemate_server_unix(device, NULL, NULL, &server, place));
    REFUSED(casemate_server_unix(device, "socket", NULL, NULL, place));
    REFUSED(casemate_server_tcp(NULL, NULL, 0, NULL, &server, place));
    REFUSED(casemate_server_tcp(device, NULL, 0, NULL, NULL, place));
    REFUSED(casemate_server_stop(NULL, 0, place));
    CHECK(casemate_server_uri(NULL) == NULL);
    casemate_cipher_free(NULL);
    casemate_keys_free(NULL);
    casemate_writer_free(NULL);
    casemate_server_free(NULL);

    /* Lengths that no memory has. */
    CHECK(casemate_device_read(device, bytes, SIZE_MAX, 0, &error) == CASEMATE_COULD_NOT);
    CHECK(casemate_error_kind(error) == CASEMATE_KIND_ARGUMENT);
    casemate_error_free(error);
    error = NULL;
    CHECK(casemate_device_luks(device, "secret", SIZE_MAX, &other, NULL) == CASEMATE_COULD_NOT);
    CHECK(casemate_device_crypt(device, bytes, (size_t)-16, NULL, &other, NULL) == CASEMATE_COULD_NOT);
    CHECK(casemate_hasher_update(hasher, bytes, SIZE_MAX / 2 + 1, NULL) == CASEMATE_COULD_NOT);
    CHECK(casemate_fsverity_digest_files(&none, SIZE_MAX / 8, NULL, hears_of_digests, NULL, NULL) == CASEMATE_COULD_NOT);
    CHECK(casemate_crc32c(7, bytes, SIZE_MAX) == 7);
    CHECK(casemate_keys_add_raw(keys, "key", 3, NULL) == CASEMATE_COULD_NOT);
    CHECK(casemate_keys_add_raw(keys, bytes, sizeof(bytes), NULL) == CASEMATE_YES);

    /* What lies behind the end is told. */
    CHECK(casemate_device_read(device, bytes, 2, 999, &error) == CASEMATE_COULD_NOT);
    CHECK(casemate_error_kind(error) == CASEMATE_KIND_IO && strstr(casemate_error_message(error), "2 bytes at 999") != NULL);
    CHECK(strstr(casemate_error_message(error), "1000") != NULL);
    casemate_error_free(error);
    error = NULL;
    CHECK(casemate_device_read(device, bytes, 2, UINT64_MAX, NULL) == CASEMATE_COULD_NOT);

    /* A context is released with the last thing that lies on the device, and once. */
    number = 0;
    CHECK(casemate_device_from_callback(1000, NULL, &number, counts, &other, NULL) == CASEMATE_COULD_NOT);
    CHECK(casemate_device_from_callback(1000, reads_numbers, &number, counts, &other, NULL) == CASEMATE_YES);
    CHECK(casemate_device_window(other, 10, 10, &part, NULL) == CASEMATE_YES);
    casemate_device_free(other);
    CHECK(number == 0 && casemate_device_read(part, bytes, 1, 0, NULL) == CASEMATE_YES && bytes[0] == 10);
    casemate_device_free(part);
    CHECK(number == 1);
    number = EACCES;

    /* A device that can't be written, damage, and the system's numbers. */
    CHECK(casemate_device_write(device, bytes, 1, 0, &error) == CASEMATE_COULD_NOT);
    casemate_error_free(error);
    error = NULL;
    CHECK(casemate_device_open("/none", 0, &other, &error) == CASEMATE_COULD_NOT);
    CHECK(casemate_error_errno(error) == ENOENT && casemate_error_kind(error) == CASEMATE_KIND_IO);
    casemate_error_free(error);
    error = NULL;
    CHECK(casemate_device_from_callback(1 << 20, reads_numbers, NULL, NULL, &other, NULL) == CASEMATE_YES);
    CHECK(casemate_ext4_open(other, NULL, &fs, &error) == CASEMATE_NO && fs == NULL);
    CHECK(casemate_error_status(error) == CASEMATE_NO && casemate_error_kind(error) == CASEMATE_KIND_CORRUPT);
    casemate_error_free(error);
    error = NULL;
    casemate_device_free(other);
    CHECK(casemate_device_from_callback(10, fails, &number, NULL, &other, NULL) == CASEMATE_YES);
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

    casemate_keys_free(keys);
    casemate_hasher_free(hasher);
    casemate_device_free(other);
    casemate_device_free(device);
    return 0;
}
