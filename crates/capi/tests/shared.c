/* One of each used by 16 threads, while a process is forked off that works on its own: shared IMAGE, an ext4 with "/file". */
#include <casemate.h>

#include "check.h"

#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS 16

static casemate_device *file;
static casemate_ext4 *fs;
static casemate_cipher *cipher;
static casemate_digest expected;

static int finds(void *context, const uint8_t *name, size_t len, uint32_t inode)
{
    (void)inode;
    *(int *)context |= len == 4 && memcmp(name, "file", 4) == 0;
    return 0;
}

static void opens(const char *path)
{
    casemate_device *image = NULL;
    uint8_t key[64];
    int i;
    for (i = 0; i < 64; i++)
        key[i] = (uint8_t)i;
    CHECK(casemate_device_open(path, 0, &image, NULL) == CASEMATE_YES);
    CHECK(casemate_ext4_open(image, NULL, &fs, NULL) == CASEMATE_YES);
    CHECK(casemate_ext4_open_file(fs, "/file", &file, NULL) == CASEMATE_YES);
    CHECK(casemate_cipher_new(key, sizeof(key), NULL, &cipher, NULL) == CASEMATE_YES);
    /* What is above keeps what it needs. */
    casemate_device_free(image);
}

static void *works(void *context)
{
    int round, found = 0;
    (void)context;
    for (round = 0; round < 5; round++) {
        casemate_device *own = NULL;
        casemate_hasher *hasher = NULL;
        casemate_digest digest;
        uint8_t buf[4096];
        uint64_t at, size = casemate_device_size(file);

        CHECK(casemate_fsverity_digest(file, NULL, &digest, NULL) == CASEMATE_YES);
        CHECK(memcmp(&digest, &expected, sizeof(digest)) == 0);
        CHECK(casemate_ext4_open_file(fs, "/file", &own, NULL) == CASEMATE_YES);
        CHECK(casemate_ext4_read_dir(fs, "/", finds, &found, NULL) == CASEMATE_YES && found);
        CHECK(casemate_hasher_new(NULL, &hasher, NULL) == CASEMATE_YES);
        for (at = 0; at < size; at += sizeof(buf)) {
            size_t len = size - at < sizeof(buf) ? (size_t)(size - at) : sizeof(buf);
            CHECK(casemate_device_read(own, buf, len, at, NULL) == CASEMATE_YES);
            CHECK(casemate_hasher_update(hasher, buf, len, NULL) == CASEMATE_YES);
        }
        CHECK(casemate_hasher_digest(hasher, &digest, NULL) == CASEMATE_YES);
        CHECK(memcmp(&digest, &expected, sizeof(digest)) == 0);
        memset(buf, round, sizeof(buf));
        CHECK(casemate_cipher_run(cipher, 1, 7, buf, sizeof(buf), NULL) == CASEMATE_YES);
        CHECK(casemate_cipher_run(cipher, 0, 7, buf, sizeof(buf), NULL) == CASEMATE_YES && buf[5] == round);
        casemate_hasher_free(hasher);
        casemate_device_free(own);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t threads[THREADS];
    uint8_t byte;
    int i, status;
    pid_t child;

    CHECK(argc == 2);
    opens(argv[1]);
    CHECK(casemate_fsverity_digest(file, NULL, &expected, NULL) == CASEMATE_YES);

    for (i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, works, NULL) == 0);
#ifdef __SANITIZE_ADDRESS__
    /* Its allocator can't be used after a fork if another thread was in the midst of it (gcc 12). */
    child = -1;
#else
    child = fork();
    CHECK(child >= 0);
#endif
    if (child == 0) {
        /* Threads that this process does not have may have been in the midst of the old ones. */
        opens(argv[1]);
        works(NULL);
        _exit(0);
    }
    CHECK(child == -1 || waitpid(child, &status, 0) == child);
    CHECK(child == -1 || (WIFEXITED(status) && WEXITSTATUS(status) == 0));
    for (i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    casemate_ext4_free(fs);
    CHECK(casemate_device_read(file, &byte, 1, 0, NULL) == CASEMATE_YES);
    casemate_device_free(file);
    casemate_cipher_free(cipher);
    return 0;
}
