/* Copies a file or a folder into an ext4 image, all of it or nothing: put IMAGE SOURCE PATH [HEXKEY]
 * With a master key of hexadecimal digits it may be an encrypted folder that it goes to. */
#include <casemate.h>

#include <stdio.h>

int main(int argc, char **argv)
{
    casemate_device *image = NULL;
    casemate_keys *keys = NULL;
    casemate_writer *writer = NULL;
    casemate_error *error = NULL;
    casemate_status status;
    uint8_t key[64];
    size_t len = 0;
    unsigned int byte;

    if (argc < 4)
        return CASEMATE_COULD_NOT;
    status = casemate_keys_new(&keys, &error);
    if (status == CASEMATE_YES && argc > 4) {
        while (len < sizeof(key) && sscanf(argv[4] + 2 * len, "%2x", &byte) == 1)
            key[len++] = (uint8_t)byte;
        status = casemate_keys_add_raw(keys, key, len, &error);
    }
    if (status == CASEMATE_YES)
        status = casemate_device_open(argv[1], CASEMATE_ACCESS_CHANGE, &image, &error);
    if (status == CASEMATE_YES)
        status = casemate_ext4_change(image, keys, &writer, &error);
    if (status == CASEMATE_YES)
        status = casemate_writer_put(writer, argv[2], argv[3], 1, &error);
    if (status == CASEMATE_YES)
        status = casemate_writer_commit(writer, &error);
    if (status != CASEMATE_YES)
        fprintf(stderr, "%s\n", casemate_error_message(error));
    casemate_error_free(error);
    casemate_writer_free(writer);
    casemate_device_free(image);
    casemate_keys_free(keys);
    return (int)status;
}
