/* Makes a dm-verity hash area and prints the root hash: format DATA HASHES [HEXSALT UUID]. The file of the hashes is there when
 * it is whole. */
#include <casemate.h>

#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
    casemate_device *data = NULL, *hash = NULL;
    casemate_verity_options options;
    casemate_digest root_hash = {0, {0}};
    casemate_error *error = NULL;
    casemate_status status;
    uint8_t salt[256];
    unsigned int byte;
    uint32_t i;

    if (argc != 3 && argc != 5)
        return CASEMATE_COULD_NOT;
    memset(&options, 0, sizeof(options));
    options.size = sizeof(options);
    if (argc == 5) {
        while (options.salt_len < sizeof(salt) && sscanf(argv[3] + 2 * options.salt_len, "%2x", &byte) == 1)
            salt[options.salt_len++] = (uint8_t)byte;
        options.salt = salt;
        options.uuid = argv[4];
    }
    status = casemate_device_open(argv[1], CASEMATE_ACCESS_READ, &data, &error);
    if (status == CASEMATE_YES)
        status = casemate_device_create(argv[2], &hash, &error);
    if (status == CASEMATE_YES)
        status = casemate_verity_format(data, hash, &options, &root_hash, &error);
    if (status == CASEMATE_YES)
        status = casemate_device_commit(hash, &error);
    if (status != CASEMATE_YES)
        fprintf(stderr, "%s\n", casemate_error_message(error));
    for (i = 0; status == CASEMATE_YES && i < root_hash.len; i++)
        printf("%02x", root_hash.bytes[i]);
    casemate_error_free(error);
    casemate_device_free(hash);
    casemate_device_free(data);
    return (int)status;
}
