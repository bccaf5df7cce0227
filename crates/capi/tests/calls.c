/* What needs an image: changes of each kind, keys, checks, sectors, digests of many files, a server. The folder has "image", an
 * ext4 with the file "/file" and the encrypted directory "/secret", whose key is the bytes 0 to 63; "damaged"; "encrypted", which
 * is "plain" under AES-XTS and the same key. argv[1] copies what a URI leads to into a file. */
#include <casemate.h>

#include "check.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define YES(call)                                                                                  \
    do {                                                                                           \
        casemate_status status = (call);                                                           \
        if (status != CASEMATE_YES)                                                                \
            fprintf(stderr, "%s\n", error ? casemate_error_message(error) : "no error");           \
        CHECK(status == CASEMATE_YES);                                                             \
    } while (0)

static casemate_error *error;

struct heard {
    casemate_digest digests[3];
    int wrong;
    size_t count;
    size_t most;
};

static int hears(void *context, size_t index, const casemate_digest *digest, const casemate_error *wrong)
{
    struct heard *heard = (struct heard *)context;
    CHECK(index == heard->count && (digest == NULL) != (wrong == NULL));
    heard->count++;
    if (digest != NULL)
        heard->digests[index] = *digest;
    else
        heard->wrong = casemate_error_errno(wrong);
    return heard->count == heard->most;
}

static int counts(void *context, const uint8_t *name, size_t len, uint32_t inode)
{
    CHECK(name != NULL && len > 0 && inode > 0);
    ++*(int *)context;
    return 0;
}

static void finds(void *context, int level, const char *kind, const char *place, const char *text)
{
    CHECK(strlen(kind) > 0 && strlen(text) > 0 && place != NULL);
    *(int *)context += level == CASEMATE_LEVEL_FAULT;
}

static void changes(const casemate_keys *keys)
{
    casemate_device *image = NULL, *file = NULL;
    casemate_writer *writer = NULL, *second = NULL;
    casemate_ext4 *fs = NULL;
    casemate_stat stat;
    uint8_t buf[16];
    size_t len = sizeof(buf);
    int count = 0;

    YES(casemate_device_open("image", 1, &image, &error));
    YES(casemate_ext4_change(image, keys, &writer, &error));
    /* A device has one writer at a time. */
    CHECK(casemate_ext4_change(image, keys, &second, &error) == CASEMATE_COULD_NOT);
    CHECK(casemate_error_kind(error) == CASEMATE_KIND_BUSY && casemate_error_errno(error) == EBUSY);
    CHECK(casemate_error_code(error) == 21 && strcmp(casemate_error_code_name(error), "in-use") == 0);
    casemate_error_free(error);
    CHECK(casemate_device_write(image, "x", 1, 0, &error) == CASEMATE_COULD_NOT);
    CHECK(casemate_error_kind(error) == CASEMATE_KIND_BUSY);
    casemate_error_free(error);
    error = NULL;
    CHECK(casemate_writer_put(writer, "image", "/copy", 0, &error) == CASEMATE_COULD_NOT);
    CHECK(strstr(casemate_error_message(error), "is the image itself") != NULL);
    casemate_error_free(error);
    error = NULL;
    YES(casemate_writer_mkdir(writer, "/a/b", 0750, 1, &error));
    YES(casemate_writer_write_file(writer, "/a/b/new", (const uint8_t *)"0123456789", 10, &error));
    YES(casemate_writer_write_file(writer, "/secret/new", (const uint8_t *)"secret", 6, &error));
    YES(casemate_writer_symlink(writer, "b/new", "/a/link", &error));
    YES(casemate_writer_link(writer, "/a/b/new", "/a/second", &error));
    YES(casemate_writer_rename(writer, "/a/second", "/a/third", &error));
    YES(casemate_writer_chown(writer, "/a/third", 70000, UINT32_MAX, 1, &error));
    YES(casemate_writer_chown(writer, "/a/third", UINT32_MAX, 7, 1, &error));
    YES(casemate_writer_chmod(writer, "/a/third", 04711, &error));
    YES(casemate_writer_truncate(writer, "/a/third", 12, &error));
    YES(casemate_writer_set_xattr(writer, "/a/third", "user.one", (const uint8_t *)"1", 1, &error));
    YES(casemate_writer_set_xattr(writer, "/a/third", "user.two", (const uint8_t *)"", 0, &error));
    YES(casemate_writer_set_xattr(writer, "/a/third", "user.one", NULL, 0, &error));
    YES(casemate_writer_remove(writer, "/file", 0, &error));
    CHECK(casemate_writer_remove(writer, "/a", 0, &error) == CASEMATE_COULD_NOT);
    CHECK(casemate_error_errno(error) == ENOTEMPTY);
    casemate_error_free(error);
    error = NULL;
    CHECK(casemate_writer_chmod(writer, "/a", 0100755, NULL) == CASEMATE_COULD_NOT);
    YES(casemate_writer_commit(writer, &error));
    /* These never happen. */
    YES(casemate_writer_remove(writer, "/a", 1, &error));
    casemate_writer_free(writer);

    YES(casemate_ext4_open(image, keys, &fs, &error));
    YES(casemate_ext4_stat(fs, "/a/link", 1, &stat, &error));
    CHECK(stat.mode == 0104711 && stat.uid == 70000 && stat.gid == 7 && stat.size == 12 && stat.links == 2);
    YES(casemate_ext4_get_xattr(fs, "/a/third", "user.two", buf, &len, &error));
    CHECK(len == 0);
    CHECK(casemate_ext4_get_xattr(fs, "/a/third", "user.one", buf, &len, &error) == CASEMATE_COULD_NOT);
    CHECK(casemate_error_errno(error) == ENODATA);
    casemate_error_free(error);
    error = NULL;
    YES(casemate_ext4_open_file(fs, "/secret/new", &file, &error));
    CHECK(casemate_device_size(file) == 6);
    YES(casemate_device_read(file, buf, 6, 0, &error));
    CHECK(memcmp(buf, "secret", 6) == 0);
    casemate_device_free(file);
    casemate_ext4_free(fs);

    /* Without the key there are names, and no contents. */
    YES(casemate_ext4_open(image, NULL, &fs, &error));
    YES(casemate_ext4_read_dir(fs, "/secret", counts, &count, &error));
    CHECK(count == 1);
    CHECK(casemate_ext4_open_file(fs, "/secret/new", &file, NULL) == CASEMATE_COULD_NOT);
    casemate_ext4_free(fs);

    count = 0;
    YES(casemate_ext4_check(image, keys, finds, &count, &error));
    CHECK(count == 0);
    casemate_device_free(image);
    YES(casemate_device_open("damaged", 0, &image, &error));
    CHECK(casemate_ext4_check(image, NULL, finds, &count, &error) == CASEMATE_NO && count > 0 && error == NULL);
    casemate_device_free(image);
}

static void sectors(const uint8_t *key)
{
    casemate_device *encrypted = NULL, *plain = NULL;
    casemate_cipher *cipher = NULL;
    uint8_t found[2048], expected[2048];

    YES(casemate_device_open("encrypted", 0, &encrypted, &error));
    YES(casemate_device_open("plain", 0, &plain, &error));
    YES(casemate_device_read(encrypted, found, sizeof(found), 5 * 512, &error));
    YES(casemate_device_read(plain, expected, sizeof(expected), 5 * 512, &error));
    YES(casemate_cipher_new(key, 64, NULL, &cipher, &error));
    YES(casemate_cipher_run(cipher, 0, 5, found, sizeof(found), &error));
    CHECK(memcmp(found, expected, sizeof(found)) == 0);
    YES(casemate_cipher_run(cipher, 1, 5, found, sizeof(found), &error));
    YES(casemate_device_read(encrypted, expected, sizeof(expected), 5 * 512, &error));
    CHECK(memcmp(found, expected, sizeof(found)) == 0);
    CHECK(casemate_cipher_run(cipher, 1, 5, found, 100, NULL) == CASEMATE_COULD_NOT);
    casemate_cipher_free(cipher);
    casemate_device_free(encrypted);

    /* All layers in one word. */
    YES(casemate_device_open_spec("encrypted,crypt=aes-xts-plain64,key-file=disk.key,key-size=512,offset=512", NULL, 0,
                                  0, &encrypted, &error));
    CHECK(casemate_device_size(encrypted) == casemate_device_size(plain) - 512);
    YES(casemate_device_read(plain, expected, sizeof(expected), 6 * 512, &error));
    YES(casemate_device_read(encrypted, found, sizeof(found), 5 * 512, &error));
    CHECK(memcmp(found, expected, sizeof(found)) == 0);
    casemate_device_free(encrypted);
    encrypted = NULL;
    CHECK(casemate_device_open_spec("encrypted,lusk", NULL, 0, 0, &encrypted, &error) == CASEMATE_COULD_NOT);
    CHECK(casemate_error_kind(error) == CASEMATE_KIND_ARGUMENT && encrypted == NULL);
    CHECK(strstr(casemate_error_message(error), "did you mean luks?") != NULL);
    casemate_error_free(error);
    error = NULL;
    CHECK(casemate_device_open_spec("plain,crypt=aes-xts-plain64", NULL, 0, 0, &encrypted, NULL) == CASEMATE_COULD_NOT);
    YES(casemate_device_open_spec("plain,crypt=aes-xts-plain64", "secret", 6, 0, &encrypted, &error));
    casemate_device_free(encrypted);
    /* A passphrase that opens nothing. */
    CHECK(casemate_device_open_spec("plain,offset=512", "secret", 6, 0, &encrypted, &error) == CASEMATE_COULD_NOT);
    CHECK(casemate_error_kind(error) == CASEMATE_KIND_ARGUMENT);
    casemate_error_free(error);
    error = NULL;
    /* A file without a name. */
    CHECK(casemate_device_create("", &encrypted, &error) == CASEMATE_COULD_NOT && casemate_error_errno(error) == ENOENT);
    casemate_error_free(error);
    error = NULL;
    casemate_device_free(plain);
}

static void digests(void)
{
    const char *paths[] = {"plain", "none", "encrypted"};
    struct heard heard;
    casemate_device *device = NULL;
    casemate_digest digest;

    memset(&heard, 0, sizeof(heard));
    YES(casemate_fsverity_digest_files(paths, 3, NULL, hears, &heard, &error));
    CHECK(heard.count == 3 && heard.wrong == ENOENT);
    YES(casemate_device_open("encrypted", 0, &device, &error));
    YES(casemate_fsverity_digest(device, NULL, &digest, &error));
    CHECK(memcmp(&digest, &heard.digests[2], sizeof(digest)) == 0 && digest.len == 32);
    casemate_device_free(device);
    memset(&heard, 0, sizeof(heard));
    heard.most = 1;
    CHECK(casemate_fsverity_digest_files(paths, 3, NULL, hears, &heard, &error) == CASEMATE_INTERRUPTED);
    CHECK(heard.count == 1 && casemate_error_kind(error) == CASEMATE_KIND_INTERRUPTED);
    casemate_error_free(error);
    error = NULL;
}

static void serves(const char *copy)
{
    casemate_device *device = NULL;
    casemate_server *server = NULL, *second = NULL;
    char command[4096];
#ifndef __SANITIZE_ADDRESS__
    int status;
    pid_t child;
#endif

    YES(casemate_device_open("plain", 0, &device, &error));
    YES(casemate_server_unix(device, "socket", "disk", &server, &error));
    CHECK(snprintf(command, sizeof(command), "%s '%s' copy", copy, casemate_server_uri(server)) > 0);
    CHECK(system(command) == 0);
#ifndef __SANITIZE_ADDRESS__
    /* A child has neither the server nor its name. */
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        YES(casemate_server_stop(server, 1000, &error));
        casemate_server_free(server);
        /* What the threads had, which a child has not, is lost to valgrind at an ordinary end. */
        raise(SIGTERM);
        _exit(1);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
    CHECK(system(command) == 0);
#endif
    YES(casemate_server_tcp(device, "127.0.0.1", 0, NULL, &second, &error));
    CHECK(strncmp(casemate_server_uri(second), "nbd://127.0.0.1:", 16) == 0);
    casemate_device_free(device);
    casemate_server_free(second);
    YES(casemate_server_stop(server, 1000, &error));
    YES(casemate_server_stop(server, 1000, &error));
    casemate_server_free(server);
}

static int loses(void *context, void *buf, size_t len, uint64_t offset)
{
    (void)buf;
    (void)len;
    (void)offset;
    return *(int *)context;
}

/* A store that has lost an object says nothing about files in the image. */
static void stores(void)
{
    static int answers[] = {ENOENT, ENOTDIR, ELOOP, EACCES};
    casemate_device *device = NULL;
    uint8_t byte;
    size_t i;

    for (i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
        YES(casemate_device_from_callback(4096, loses, &answers[i], NULL, &device, &error));
        CHECK(casemate_device_read(device, &byte, 1, 0, &error) == CASEMATE_COULD_NOT);
        CHECK(casemate_error_errno(error) == (answers[i] == EACCES ? EACCES : EIO));
        casemate_error_free(error);
        error = NULL;
        casemate_device_free(device);
    }
}

int main(int argc, char **argv)
{
    casemate_keys *keys = NULL;
    uint8_t key[64];
    size_t i;

    CHECK(argc == 2);
    for (i = 0; i < sizeof(key); i++)
        key[i] = (uint8_t)i;
    YES(casemate_keys_new(&keys, &error));
    YES(casemate_keys_add_raw(keys, key, sizeof(key), &error));
    changes(keys);
    casemate_keys_free(keys);
    sectors(key);
    digests();
    stores();
    serves(argv[1]);
    return 0;
}
