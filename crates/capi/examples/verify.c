/* Checks data against a dm-verity hash area: verify DATA HASHES ROOTHASH. Exit status 0 yes, 1 no, 2 could not. */
#include <casemate.h>

#include <stdio.h>

int main(int argc, char **argv)
{
    casemate_device *data = NULL, *hash = NULL;
    casemate_error *error = NULL;
    casemate_status status;
    uint8_t root_hash[64];
    uint64_t bad = 0;
    size_t len = 0;
    unsigned int byte;

    if (argc != 4)
        return CASEMATE_COULD_NOT;
    while (len < sizeof(root_hash) && sscanf(argv[3] + 2 * len, "%2x", &byte) == 1)
        root_hash[len++] = (uint8_t)byte;
    status = casemate_device_open(argv[1], CASEMATE_ACCESS_READ, &data, &error);
    if (status == CASEMATE_YES)
        status = casemate_device_open(argv[2], CASEMATE_ACCESS_READ, &hash, &error);
    if (status == CASEMATE_YES)
        status = casemate_verity_verify(data, hash, root_hash, len, 0, &bad, &error);
    if (error != NULL)
        fprintf(stderr, "%s\n", casemate_error_message(error));
    else if (status == CASEMATE_NO)
        printf("%lu blocks are wrong\n", (unsigned long)bad);
    casemate_error_free(error);
    casemate_device_free(hash);
    casemate_device_free(data);
    return (int)status;
}
