/* Images as the command makes them with descriptions, policies, protectors and parity. The tree, the keys and the files beside it
 * are in the folder. */
#include <casemate.h>

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "check.h"

static uint8_t key[64];

/* A specification of an image of the tree. */
static casemate_build *begun(const char *path)
{
    casemate_build *build = NULL;
    casemate_build_options options;

    memset(&options, 0, sizeof(options));
    options.size = sizeof(options);
    options.seed = "one";
    options.has_owner = 1;
    CHECK(casemate_build_new(path, &build, NULL) == CASEMATE_YES);
    CHECK(casemate_build_add_folder(build, "tree", NULL) == CASEMATE_YES);
    CHECK(casemate_build_set_options(build, &options, NULL) == CASEMATE_YES);
    return build;
}

static void run(casemate_build *build)
{
    casemate_error *error = NULL;

    if (casemate_build_run(build, 0, NULL, &error) != CASEMATE_YES) {
        fprintf(stderr, "%s\n", casemate_error_message(error));
        CHECK(0);
    }
    casemate_build_free(build);
}

int main(void)
{
    casemate_build *build;
    casemate_policy_options policy;
    unsigned i;

    for (i = 0; i < sizeof(key); i++)
        key[i] = (uint8_t)i;
    memset(&policy, 0, sizeof(policy));
    policy.size = sizeof(policy);
    policy.padding = 16;

    build = begun("made.img");
    CHECK(casemate_build_describe(build, "fs_config", "fs_config", NULL) == CASEMATE_YES);
    CHECK(casemate_build_describe(build, "mtree", "mtree", NULL) == CASEMATE_YES);
    CHECK(casemate_build_label(build, "file_contexts", NULL) == CASEMATE_YES);
    CHECK(casemate_build_mount_point(build, "/system", NULL) == CASEMATE_YES);
    policy.data_unit_size = 1024;
    CHECK(casemate_build_encrypt(build, "home", key, 32, &policy, NULL) == CASEMATE_YES);
    CHECK(casemate_build_dm_verity(build, "made.hash", NULL) == CASEMATE_YES);
    CHECK(casemate_build_parity(build, "made.parity", 0, 4, NULL) == CASEMATE_YES);
    run(build);

    build = begun("made.direct");
    memset(&policy, 0, sizeof(policy));
    policy.size = sizeof(policy);
    policy.version = 1;
    policy.ivs = "direct";
    policy.contents_mode = "adiantum";
    policy.names_mode = "adiantum";
    CHECK(casemate_build_encrypt(build, "home", key, 32, &policy, NULL) == CASEMATE_YES);
    run(build);

    build = begun("protected.img");
    memset(&policy, 0, sizeof(policy));
    policy.size = sizeof(policy);
    policy.version = 1;
    CHECK(casemate_build_protect(build, "home", NULL, "secret", 6, NULL, NULL) == CASEMATE_YES);
    CHECK(casemate_build_protect(build, "raw", "raw_key", key, 32, &policy, NULL) == CASEMATE_YES);
    run(build);

    policy.version = 3;
    build = begun("none.img");
    CHECK(casemate_build_encrypt(build, "home", key, 32, &policy, NULL) == CASEMATE_COULD_NOT);
    policy.version = 2;
    policy.ivs = "none";
    CHECK(casemate_build_encrypt(build, "home", key, 32, &policy, NULL) == CASEMATE_COULD_NOT);
    casemate_build_free(build);
    return 0;
}
