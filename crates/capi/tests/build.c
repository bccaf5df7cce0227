/* Images as the command makes them with descriptions, policies, protectors and parity. The tree, the keys and the files beside it
 * are in the folder. */
#include <casemate.h>

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

static uint8_t key[64];

static void run(casemate_build *build);

/* A specification of an image of the tree with so many bytes free. */
static casemate_build *begun_with_room(const char *path, int has_owner, uint64_t free_bytes)
{
    casemate_build *build = NULL;
    casemate_build_options options;

    memset(&options, 0, sizeof(options));
    options.size = sizeof(options);
    options.seed = "one";
    options.has_owner = has_owner;
    options.free_bytes = free_bytes;
    CHECK(casemate_build_new(path, &build, NULL) == CASEMATE_YES);
    CHECK(casemate_build_add_folder(build, "tree", NULL) == CASEMATE_YES);
    CHECK(casemate_build_set_options(build, &options, NULL) == CASEMATE_YES);
    return build;
}

/* A specification of an image of the tree. */
static casemate_build *begun_with(const char *path, int has_owner)
{
    return begun_with_room(path, has_owner, 0);
}

static casemate_build *begun(const char *path)
{
    return begun_with(path, 1);
}

/* All of a file, which is small. */
static size_t contents(const char *path, void *buf, size_t room)
{
    FILE *file = fopen(path, "rb");
    size_t len;

    CHECK(file != NULL);
    len = fread(buf, 1, room, file);
    CHECK(len < room && fclose(file) == 0);
    return len;
}

static void keep(const char *path, const void *data, size_t len)
{
    FILE *file = fopen(path, "wb");

    CHECK(file != NULL && fwrite(data, 1, len, file) == len && fclose(file) == 0);
}

/* A token, in whose place openssl signs. */
static int sign(void *context, const char *hash, const void *message, size_t message_len, void *signature, size_t *len)
{
    const char *command = context;

    if (command == NULL || strcmp(hash, "sha256") != 0)
        return EIO;
    keep("message", message, message_len);
    if (system(command) != 0)
        return EIO;
    *len = contents("bare", signature, *len);
    return 0;
}

static int sign_too_long(void *context, const char *hash, const void *message, size_t message_len, void *signature, size_t *len)
{
    (void)context, (void)hash, (void)message, (void)message_len, (void)signature;
    *len = *len + 1;
    return 0;
}

/* What a new image is made with that is signed. */
static casemate_build *to_sign(const char *path, const char *hash)
{
    casemate_build *build = begun_with(path, 0);

    CHECK(casemate_build_map_users(build, 5000, (uint32_t)getuid(), 1, NULL) == CASEMATE_YES);
    CHECK(casemate_build_map_groups(build, 6000, (uint32_t)getgid(), 1, NULL) == CASEMATE_YES);
    CHECK(casemate_build_no_xattrs(build, NULL) == CASEMATE_YES);
    CHECK(casemate_build_mode(build, "bin/*", "u+x,go=r", NULL) == CASEMATE_YES);
    CHECK(casemate_build_mode(build, "home", "700", NULL) == CASEMATE_YES);
    CHECK(casemate_build_xattr(build, "bin/tool", "user.origin", "ci", 2, NULL) == CASEMATE_YES);
    CHECK(casemate_build_verity(build, "bin/tool", NULL, NULL) == CASEMATE_YES);
    CHECK(casemate_build_dm_verity(build, hash, NULL) == CASEMATE_YES);
    return build;
}

/* Images with signed digests and a signed root hash; `command` signs in place of a token, if there is one that can. */
static void sign_images(const char *command)
{
    static uint8_t pem[8192], certificate[8192], signature[4096];
    size_t pem_len = contents("signing.key", pem, sizeof(pem));
    size_t certificate_len = contents("signing.cert", certificate, sizeof(certificate));
    size_t len = 0;
    int i;
    casemate_build *build = to_sign("made.signed", "made.signed.hash");
    casemate_error *error = NULL;

    CHECK(casemate_build_root_hash_signature(build, NULL, &len, NULL) == CASEMATE_COULD_NOT);
    CHECK(casemate_build_signing_key(build, pem, pem_len, certificate, certificate_len, NULL) == CASEMATE_YES);
    CHECK(casemate_build_run(build, 0, NULL, &error) == CASEMATE_YES);
    CHECK(casemate_build_root_hash_signature(build, NULL, &len, NULL) == CASEMATE_YES && len > 256);
    len--;
    CHECK(casemate_build_root_hash_signature(build, signature, &len, NULL) == CASEMATE_COULD_NOT);
    CHECK(casemate_build_root_hash_signature(build, signature, &len, NULL) == CASEMATE_YES);
    keep("made.sig", signature, len);
    casemate_build_free(build);

    if (command != NULL) {
        build = to_sign("token.signed", "token.signed.hash");
        CHECK(casemate_build_signer(build, sign, (void *)command, certificate, certificate_len, NULL) == CASEMATE_YES);
        run(build);
    }
    /* A token that fails, and one that is wrong. */
    build = to_sign("none.signed", "none.signed.hash");
    CHECK(casemate_build_signer(build, sign, NULL, certificate, certificate_len, NULL) == CASEMATE_YES);
    CHECK(casemate_build_run(build, 0, NULL, NULL) == CASEMATE_COULD_NOT);
    casemate_build_free(build);
    build = to_sign("none.signed", "none.signed.hash");
    CHECK(casemate_build_signer(build, sign_too_long, NULL, certificate, certificate_len, NULL) == CASEMATE_YES);
    CHECK(casemate_build_run(build, 0, NULL, NULL) == CASEMATE_COULD_NOT);
    casemate_build_free(build);
    /* What is there stays where the root hash can't be signed; a key of another certificate is known before. */
    certificate_len = contents("other.cert", certificate, sizeof(certificate));
    for (i = 0; i < 2; i++) {
        keep("kept.signed", "old", 3);
        keep("kept.hash", "old", 3);
        build = begun("kept.signed");
        CHECK(casemate_build_dm_verity(build, "kept.hash", NULL) == CASEMATE_YES);
        if (i == 0)
            CHECK(casemate_build_signer(build, sign, NULL, certificate, certificate_len, NULL) == CASEMATE_YES);
        else
            CHECK(casemate_build_signing_key(build, pem, pem_len, certificate, certificate_len, NULL) == CASEMATE_YES);
        CHECK(casemate_build_run(build, 1, NULL, &error) != CASEMATE_YES);
        CHECK(i == 0 || strstr(casemate_error_message(error), "does not belong") != NULL);
        casemate_error_free(error);
        error = NULL;
        casemate_build_free(build);
        CHECK(contents("kept.signed", signature, sizeof(signature)) == 3 && memcmp(signature, "old", 3) == 0);
        CHECK(contents("kept.hash", signature, sizeof(signature)) == 3 && memcmp(signature, "old", 3) == 0);
    }
    certificate_len = contents("signing.cert", certificate, sizeof(certificate));
    /* What has no effect is refused, and so is what can't be read. */
    build = begun("none.signed");
    CHECK(casemate_build_signing_key(build, pem, pem_len, certificate, certificate_len, NULL) == CASEMATE_YES);
    CHECK(casemate_build_run(build, 0, NULL, NULL) == CASEMATE_COULD_NOT);
    casemate_build_free(build);
    build = begun("none.signed");
    CHECK(casemate_build_mode(build, "bin/*", "u+q", NULL) == CASEMATE_COULD_NOT);
    CHECK(casemate_build_signing_key(build, certificate, certificate_len, pem, pem_len, NULL) != CASEMATE_YES);
    CHECK(casemate_build_signer(build, NULL, NULL, certificate, certificate_len, NULL) == CASEMATE_COULD_NOT);
    CHECK(casemate_build_mode(build, "none", "700", NULL) == CASEMATE_YES);
    CHECK(casemate_build_run(build, 0, NULL, NULL) == CASEMATE_COULD_NOT);
    casemate_build_free(build);
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

int main(int argc, char **argv)
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

    run(begun_with_room("made.free", 1, 1 << 20));

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

    sign_images(argc > 1 ? argv[1] : NULL);
    return 0;
}
