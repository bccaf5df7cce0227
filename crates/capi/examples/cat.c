/* Prints a file of an ext4 image, and on standard error the fs-verity digest of what was printed: cat IMAGE PATH [HEXKEY]
 * With a key of hexadecimal digits the image is decrypted as dm-crypt does. */
#include <casemate.h>

#include <stdio.h>
#include <string.h>

static int failed(casemate_status status, casemate_error *error)
{
    fprintf(stderr, "%s\n", casemate_error_message(error));
    casemate_error_free(error);
    return (int)status;
}

static size_t decode(const char *hex, uint8_t *bytes, size_t room)
{
    size_t len = 0;
    unsigned int byte;
    while (len < room && sscanf(hex + 2 * len, "%2x", &byte) == 1)
        bytes[len++] = (uint8_t)byte;
    return len;
}

int main(int argc, char **argv)
{
    static uint8_t buf[65536];
    casemate_device *image = NULL, *plain = NULL, *file = NULL;
    casemate_ext4 *fs = NULL;
    casemate_hasher *hasher = NULL;
    casemate_digest digest;
    casemate_error *error = NULL;
    casemate_status status;
    uint64_t at, size;
    uint32_t i;

    if (argc != 3 && argc != 4)
        return CASEMATE_COULD_NOT;
    status = casemate_device_open(argv[1], CASEMATE_ACCESS_READ, &image, &error);
    if (status == CASEMATE_YES && argc == 4) {
        casemate_crypt_options how;
        uint8_t key[64];
        size_t len = decode(argv[3], key, sizeof(key));

        memset(&how, 0, sizeof(how));
        how.size = sizeof(how);
        how.cipher = "aes-xts-plain64";
        status = casemate_device_crypt(image, key, len, &how, &plain, &error);
        casemate_device_free(image);
        image = plain;
    }
    if (status == CASEMATE_YES)
        status = casemate_ext4_open(image, NULL, &fs, &error);
    if (status == CASEMATE_YES)
        status = casemate_ext4_open_file(fs, argv[2], &file, &error);
    if (status == CASEMATE_YES)
        status = casemate_hasher_new(NULL, &hasher, &error);
    size = casemate_device_size(file);
    for (at = 0; status == CASEMATE_YES && at < size; at += i) {
        i = size - at < sizeof(buf) ? (uint32_t)(size - at) : (uint32_t)sizeof(buf);
        status = casemate_device_read(file, buf, i, at, &error);
        if (status == CASEMATE_YES)
            status = casemate_hasher_update(hasher, buf, i, &error);
        if (status == CASEMATE_YES)
            fwrite(buf, 1, i, stdout);
    }
    if (status == CASEMATE_YES)
        status = casemate_hasher_digest(hasher, &digest, &error);
    if (status == CASEMATE_YES) {
        fprintf(stderr, "sha256:");
        for (i = 0; i < digest.len; i++)
            fprintf(stderr, "%02x", digest.bytes[i]);
        fprintf(stderr, "\n");
    }
    casemate_hasher_free(hasher);
    casemate_device_free(file);
    casemate_ext4_free(fs);
    casemate_device_free(image);
    return status == CASEMATE_YES ? 0 : failed(status, error);
}
