/* Makes an ext4 image of a folder, and all around it: build IMAGE FOLDER DIRECTORY. The directory is encrypted, every file has
 * fs-verity, a hash area of dm-verity lies behind the file system, and a LUKS volume around both. Keys are fixed here: an example. */
#include <casemate.h>

#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
    casemate_build *build = NULL;
    casemate_build_options options;
    casemate_luks_options luks;
    casemate_built built;
    casemate_error *error = NULL;
    casemate_status status;
    uint8_t key[64];
    uint32_t i;

    if (argc != 4)
        return CASEMATE_COULD_NOT;
    for (i = 0; i < sizeof(key); i++)
        key[i] = (uint8_t)i;
    memset(&options, 0, sizeof(options));
    options.size = sizeof(options);
    options.seed = "one";
    options.label = "root";
    options.has_owner = 1;
    memset(&luks, 0, sizeof(luks));
    luks.size = sizeof(luks);
    luks.volume_key = key;
    luks.volume_key_len = sizeof(key);
    luks.iterations = 4;
    luks.memory = 1024;
    luks.lanes = 1;
    status = casemate_build_new(argv[1], &build, &error);
    if (status == CASEMATE_YES)
        status = casemate_build_add_folder(build, argv[2], &error);
    if (status == CASEMATE_YES)
        status = casemate_build_set_options(build, &options, &error);
    if (status == CASEMATE_YES)
        status = casemate_build_verity(build, NULL, NULL, &error);
    if (status == CASEMATE_YES)
        status = casemate_build_encrypt(build, argv[3], key, 32, NULL, &error);
    if (status == CASEMATE_YES)
        status = casemate_build_dm_verity(build, NULL, &error);
    if (status == CASEMATE_YES)
        status = casemate_build_luks(build, "secret", 6, &luks, &error);
    if (status == CASEMATE_YES)
        status = casemate_build_run(build, 0, &built, &error);
    if (status != CASEMATE_YES)
        fprintf(stderr, "%s\n", casemate_error_message(error));
    for (i = 0; status == CASEMATE_YES && i < built.root_hash.len; i++)
        printf("%02x", built.root_hash.bytes[i]);
    casemate_error_free(error);
    casemate_build_free(build);
    return (int)status;
}
