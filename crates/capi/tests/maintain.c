/* File systems that are repaired, tuned and resized: maintain repair|tune|resize|build. The folder has "shared", an ext4 in which two files
 * have the same blocks; "damaged", an ext4 with other damage; and "image", a sound one; "disk", which has two partitions; and the folder "tree". What e2fsprogs is to say of the result is
 * printed. */
#include <casemate.h>

#include "check.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define YES(call)                                                                                  \
    do {                                                                                           \
        casemate_status status = (call);                                                           \
        if (status != CASEMATE_YES)                                                                \
            fprintf(stderr, "%s\n", error ? casemate_error_message(error) : "no error");           \
        CHECK(status == CASEMATE_YES);                                                             \
    } while (0)

/* The call could not be done, for a reason of this kind, and its text has these words. */
#define REFUSED(call, why, words)                                                                  \
    do {                                                                                           \
        CHECK((call) == CASEMATE_COULD_NOT);                                                       \
        if (casemate_error_kind(error) != (why) || strstr(casemate_error_message(error), words) == NULL) \
            fprintf(stderr, "%s\n", casemate_error_message(error));                                \
        CHECK(casemate_error_kind(error) == (why));                                                \
        CHECK(strstr(casemate_error_message(error), words) != NULL);                               \
        casemate_error_free(error);                                                                \
        error = NULL;                                                                              \
    } while (0)

static casemate_error *error;

struct seen {
    uint64_t levels[3];
    uint64_t kinds;
    uint64_t calls;
    int answer;
};

static void finds(void *context, int level, const char *kind, const char *place, const char *text)
{
    struct seen *seen = (struct seen *)context;
    CHECK(level >= CASEMATE_LEVEL_NOTE && level <= CASEMATE_LEVEL_FIXED);
    CHECK(strlen(kind) > 0 && strlen(text) > 0 && place != NULL);
    seen->levels[level]++;
}

static int decides(void *context, const char *kind, size_t count)
{
    struct seen *seen = (struct seen *)context;
    CHECK(strlen(kind) > 0 && count > 0);
    seen->kinds++;
    return seen->answer;
}

static int hears(void *context, uint64_t bytes)
{
    struct seen *seen = (struct seen *)context;
    (void)bytes;
    seen->calls++;
    return 0;
}

static int stops(void *context, uint64_t bytes)
{
    (void)context;
    (void)bytes;
    return 1;
}

static uint32_t sum(const casemate_device *device)
{
    static uint8_t buf[65536];
    uint64_t at, size = casemate_device_size(device);
    uint32_t crc = 0;
    for (at = 0; at < size; at += sizeof(buf)) {
        size_t len = size - at < sizeof(buf) ? (size_t)(size - at) : sizeof(buf);
        YES(casemate_device_read(device, buf, len, at, &error));
        crc = casemate_crc32c(crc, buf, len);
    }
    return crc;
}

struct altered {
    unsigned cut, shared, others;
    uint64_t last;
};

static void alters(void *context, uint64_t inode, const char *change)
{
    struct altered *altered = context;
    if (strcmp(change, "cut") == 0)
        altered->cut++;
    else if (strcmp(change, "shared") == 0)
        altered->shared++;
    else
        altered->others++;
    altered->last = inode;
}

static void repairs(void)
{
    struct altered altered;
    casemate_device *image = NULL;
    casemate_writer *writer = NULL;
    casemate_repair_options how;
    casemate_repaired repaired;
    struct seen seen;
    uint32_t before;

    memset(&how, 0, sizeof(how));
    how.size = sizeof(how);
    how.context = &seen;

    YES(casemate_device_open("damaged", 0, &image, &error));
    REFUSED(casemate_ext4_repair(image, NULL, NULL, NULL, NULL, NULL, &error), CASEMATE_KIND_ARGUMENT, "reading");
    casemate_device_free(image);

    YES(casemate_device_open("damaged", 1, &image, &error));
    before = sum(image);
    how.depth = "nonsense";
    REFUSED(casemate_ext4_repair(image, NULL, &how, NULL, NULL, NULL, &error), CASEMATE_KIND_ARGUMENT, "'safe' or 'all'");
    how.depth = NULL;
    /* A size that no structure has is not read up to. */
    how.size = 0xffffffff;
    REFUSED(casemate_ext4_repair(image, NULL, &how, NULL, NULL, NULL, &error), CASEMATE_KIND_ARGUMENT, "4294967295 bytes");
    how.size = sizeof(how);
    /* A function that wants no more. */
    how.progress = stops;
    CHECK(casemate_ext4_repair(image, NULL, &how, NULL, NULL, NULL, &error) == CASEMATE_INTERRUPTED);
    CHECK(casemate_error_kind(error) == CASEMATE_KIND_INTERRUPTED);
    casemate_error_free(error);
    error = NULL;
    /* A function that wants nothing fixed. */
    how.progress = hears;
    how.approve = decides;
    memset(&seen, 0, sizeof(seen));
    memset(&repaired, 255, sizeof(repaired));
    CHECK(casemate_ext4_repair(image, NULL, &how, finds, &seen, &repaired, &error) == CASEMATE_NO && error == NULL);
    CHECK(repaired.fixed == 0 && repaired.faults > 0 && repaired.reserved[0] == 0);
    CHECK(seen.levels[CASEMATE_LEVEL_FAULT] == repaired.faults && seen.levels[CASEMATE_LEVEL_FIXED] == 0);
    CHECK(seen.kinds > 3 && seen.calls > 0 && sum(image) == before);
    /* What is neither yes nor no is no yes. */
    seen.answer = -1;
    REFUSED(casemate_ext4_repair(image, NULL, &how, NULL, NULL, NULL, &error), CASEMATE_KIND_ARGUMENT, "approve returned -1");
    CHECK(sum(image) == before);
    /* Everything fixed, and kept. */
    memset(&seen, 0, sizeof(seen));
    seen.answer = 1;
    how.undo = "damaged.undo";
    YES(casemate_ext4_repair(image, NULL, &how, finds, &seen, &repaired, &error));
    CHECK(repaired.fixed > 3 && repaired.faults == 0 && repaired.withheld == 0 && repaired.altered == 0);
    CHECK(seen.levels[CASEMATE_LEVEL_FIXED] == repaired.fixed && sum(image) != before);
    /* An undo file is never replaced. */
    CHECK(casemate_ext4_repair(image, NULL, &how, NULL, NULL, NULL, &error) == CASEMATE_COULD_NOT);
    CHECK(casemate_error_errno(error) == EEXIST);
    casemate_error_free(error);
    error = NULL;
    /* Nobody else changes it meanwhile. */
    YES(casemate_ext4_change(image, NULL, &writer, &error));
    how.undo = NULL;
    REFUSED(casemate_ext4_repair(image, NULL, &how, NULL, NULL, NULL, &error), CASEMATE_KIND_BUSY, "");
    casemate_writer_free(writer);
    casemate_device_free(image);

    /* What needs a decision. */
    YES(casemate_device_open("shared", 1, &image, &error));
    CHECK(casemate_ext4_repair(image, NULL, NULL, NULL, NULL, &repaired, &error) == CASEMATE_NO && error == NULL);
    CHECK(repaired.faults > 0);
    how.depth = "all";
    how.undo = "shared.undo";
    how.approve = NULL;
    how.progress = NULL;
    how.context = &altered;
    how.altered = alters;
    memset(&altered, 0, sizeof(altered));
    YES(casemate_ext4_repair(image, NULL, &how, NULL, NULL, &repaired, &error));
    CHECK(repaired.fixed > 0 && repaired.faults == 0);
    /* Both files had blocks of the other one. */
    CHECK(altered.shared == 2 && altered.cut + altered.others == 0 && altered.last > 11);
    CHECK(repaired.altered == 2 && repaired.reserved[0] == 0);
    YES(casemate_ext4_check(image, NULL, NULL, NULL, &error));
    casemate_device_free(image);
}

static casemate_status tune(casemate_writer *writer, const casemate_tune_options *how)
{
    return casemate_writer_tune(writer, how, &error);
}

static void tunes(void)
{
    casemate_device *image = NULL;
    casemate_writer *writer = NULL;
    casemate_ext4 *fs = NULL;
    casemate_ext4_info before, info;
    casemate_tune_options how;
    size_t i;

    YES(casemate_device_open("image", 1, &image, &error));
    YES(casemate_ext4_open(image, NULL, &fs, &error));
    YES(casemate_ext4_get_info(fs, &before, &error));
    CHECK(before.block_size == 1024 && strcmp(before.label, "first") == 0);
    casemate_ext4_free(fs);
    YES(casemate_ext4_change(image, NULL, &writer, &error));
    memset(&how, 0, sizeof(how));
    how.size = sizeof(how);
    how.label = "of more than sixteen";
    REFUSED(tune(writer, &how), CASEMATE_KIND_ARGUMENT, "at most 16");
    how.label = "second";
    how.uuid = "no UUID";
    REFUSED(tune(writer, &how), CASEMATE_KIND_ARGUMENT, "no UUID");
    how.uuid = "00010203-0405-0607-0809-0a0b0c0d0e0f";
    how.on_errors = "ignore";
    REFUSED(tune(writer, &how), CASEMATE_KIND_ARGUMENT, "remount-ro");
    how.on_errors = "panic";
    how.set = 1u << 31;
    REFUSED(tune(writer, &how), CASEMATE_KIND_UNSUPPORTED, "newer");
    how.set = CASEMATE_TUNE_MAX_MOUNTS;
    how.max_mounts = 16001;
    REFUSED(tune(writer, &how), CASEMATE_KIND_ARGUMENT, "16000");
    how.max_mounts = 0;
    how.set = CASEMATE_TUNE_LAST_CHECK;
    how.last_check = -1;
    REFUSED(tune(writer, &how), CASEMATE_KIND_ARGUMENT, "since 1970");
    how.last_check = (int64_t)1 << 40;
    REFUSED(tune(writer, &how), CASEMATE_KIND_ARGUMENT, "since 1970");
    how.last_check = 0;
    how.set = 0;
    how.features = "^extent";
    REFUSED(tune(writer, &how), CASEMATE_KIND_UNSUPPORTED, "extent");
    /* Nothing is set that has no flag. */
    how.features = "verity,^metadata_csum_seed";
    how.mount_options = "discard,^acl";
    how.extended = "stride=4,stripe_width=8";
    how.last_mounted = "/mnt";
    how.mounts = 99;
    how.set = CASEMATE_TUNE_RESERVED_BLOCKS | CASEMATE_TUNE_RESERVED_USER | CASEMATE_TUNE_RESERVED_GROUP |
              CASEMATE_TUNE_MAX_MOUNTS | CASEMATE_TUNE_CHECK_INTERVAL | CASEMATE_TUNE_LAST_CHECK;
    how.reserved_blocks = 123;
    how.reserved_user = 7;
    how.reserved_group = 8;
    how.max_mounts = 5;
    how.check_interval = 86400;
    how.last_check = 1577836800;
    YES(tune(writer, &how));
    YES(casemate_writer_commit(writer, &error));
    /* This never happens. */
    memset(&how, 0, sizeof(how));
    how.size = sizeof(how);
    how.label = "";
    YES(tune(writer, &how));
    casemate_writer_free(writer);

    YES(casemate_ext4_open(image, NULL, &fs, &error));
    YES(casemate_ext4_get_info(fs, &info, &error));
    CHECK(strcmp(info.label, "second") == 0 && info.reserved_blocks == 123);
    CHECK(info.blocks == before.blocks && info.inodes == before.inodes && info.free_inodes < info.inodes);
    CHECK(info.free_blocks < info.blocks && info.reserved == 0 && info.reserved_numbers[3] == 0);
    for (i = 0; i < sizeof(info.uuid); i++)
        CHECK(info.uuid[i] == i);
    casemate_ext4_free(fs);
    casemate_device_free(image);
}

static void resizes(void)
{
    casemate_device *image = NULL, *other = NULL;
    casemate_resize_options how;
    casemate_resized resized;
    struct seen seen;
    uint64_t bytes = 0, estimated = 0;

    memset(&how, 0, sizeof(how));
    how.size = sizeof(how);
    YES(casemate_device_open("image", 0, &image, &error));
    REFUSED(casemate_ext4_resize(image, NULL, 8 << 20, NULL, NULL, &error), CASEMATE_KIND_ARGUMENT, "reading");
    YES(casemate_ext4_minimum_size(image, NULL, &bytes, &error));
    /* Who reads keeps others from changes, and shares that with readers. */
    REFUSED(casemate_device_open("image", CASEMATE_ACCESS_CHANGE, &other, &error), CASEMATE_KIND_BUSY, "");
    YES(casemate_device_open("image", CASEMATE_ACCESS_READ, &other, &error));
    casemate_device_free(other);
    casemate_device_free(image);
    YES(casemate_device_open("image", CASEMATE_ACCESS_CHANGE, &image, &error));
    REFUSED(casemate_device_open("image", CASEMATE_ACCESS_READ, &other, &error), CASEMATE_KIND_BUSY, "");
    YES(casemate_device_open("image", CASEMATE_ACCESS_READ_UNLOCKED, &other, &error));
    casemate_device_free(other);
    REFUSED(casemate_device_open("image", 3, &other, &error), CASEMATE_KIND_ARGUMENT, "CASEMATE_ACCESS");
    REFUSED(casemate_ext4_resize(image, NULL, 1, NULL, NULL, &error), CASEMATE_KIND_ARGUMENT, "");
    CHECK(casemate_ext4_resize(image, NULL, bytes / 2, NULL, NULL, &error) == CASEMATE_COULD_NOT);
    CHECK(casemate_error_errno(error) == ENOSPC && strcmp(casemate_error_code_name(error), "no-room") == 0);
    casemate_error_free(error);
    error = NULL;
    how.progress = stops;
    CHECK(casemate_ext4_resize(image, NULL, 12 << 20, &how, NULL, &error) == CASEMATE_INTERRUPTED);
    CHECK(casemate_error_kind(error) == CASEMATE_KIND_INTERRUPTED);
    casemate_error_free(error);
    error = NULL;
    memset(&seen, 0, sizeof(seen));
    how.progress = hears;
    how.context = &seen;
    YES(casemate_ext4_resize(image, NULL, 12 << 20, &how, &resized, &error));
    CHECK(resized.bytes == 12 << 20 && resized.block_size == 1024 && resized.blocks == 12 << 10);
    CHECK(resized.blocks_before == 16 << 10 && resized.reserved[6] == 0 && seen.calls > 0);
    CHECK(casemate_device_size(image) == 16 << 20);
    how.truncate = 1;
    YES(casemate_ext4_resize(image, NULL, 11 << 20, &how, &resized, &error));
    CHECK(casemate_device_size(image) == 11 << 20);
    /* A file grows with its file system, and a file system to the size of its file. */
    YES(casemate_ext4_resize(image, NULL, 20 << 20, NULL, &resized, &error));
    CHECK(casemate_device_size(image) == 20 << 20 && resized.blocks == 20 << 10);
    YES(casemate_ext4_resize(image, NULL, 0, NULL, &resized, &error));
    CHECK(resized.blocks_before == resized.blocks);
    YES(casemate_ext4_minimum_size(image, NULL, &estimated, &error));
    YES(casemate_ext4_minimize(image, NULL, NULL, &resized, &error));
    CHECK(casemate_device_size(image) == resized.bytes && estimated <= resized.bytes && resized.bytes < 11 << 20);
    printf("%" PRIu64 " %" PRIu64 "\n", bytes, resized.blocks);
    casemate_device_free(image);
}

/* A file system is built into a partition, and never over those behind it. */
static void builds(void)
{
    casemate_build *build = NULL;
    casemate_build_options how;

    memset(&how, 0, sizeof(how));
    how.size = sizeof(how);
    how.bytes = 6 << 20;
    YES(casemate_build_new("disk", &build, &error));
    YES(casemate_build_at(build, 1 << 20, &error));
    YES(casemate_build_add_folder(build, "tree", &error));
    YES(casemate_build_set_options(build, &how, &error));
    CHECK(casemate_build_run(build, 1, NULL, &error) == CASEMATE_COULD_NOT);
    CHECK(casemate_error_kind(error) == CASEMATE_KIND_ARGUMENT);
    CHECK(strcmp(casemate_error_code_name(error), "overlap") == 0);
    CHECK(strstr(casemate_error_message(error), "partition 1 begins at offset 1048576") != NULL);
    casemate_error_free(error);
    error = NULL;
    casemate_build_free(build);
    YES(casemate_build_new("disk", &build, &error));
    YES(casemate_build_in_partition(build, 1, &error));
    YES(casemate_build_add_folder(build, "tree", &error));
    YES(casemate_build_run(build, 1, NULL, &error));
    casemate_build_free(build);
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    if (strcmp(argv[1], "repair") == 0)
        repairs();
    else if (strcmp(argv[1], "tune") == 0)
        tunes();
    else if (strcmp(argv[1], "build") == 0)
        builds();
    else
        resizes();
    return 0;
}
