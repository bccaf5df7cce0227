/*
 * casemate: the Linux storage-protection stack in user space, as a C library.
 *
 * Rules for all functions:
 *
 * - Status. A function returns the exit status of the command `casemate`: 0 yes, 1 no (a mismatch or damage was found),
 *   2 could not, 130 interrupted, 101 a bug in the library.
 * - Errors. `error` may be NULL. Otherwise set it to NULL before the call. If the status is not CASEMATE_YES, the function
 *   stores an error there, and the caller frees it with casemate_error_free(). If CASEMATE_NO is the answer to a question,
 *   as of casemate_verity_verify(), no error is stored.
 * - NULL where a value is needed is an error (CASEMATE_COULD_NOT), never a crash. So is an impossible length. Functions
 *   that free accept NULL.
 * - Ownership. The caller owns each handle that a function stores, and frees it once. A device keeps what it needs of the
 *   device below it, so the handles may be freed in any order. Bytes and strings that are passed in are copied if needed.
 * - Threads. Any number of threads may use a handle at once. Exceptions: builds, hashers, keys and writers belong to one thread at
 *   a time.
 * - fork(). The child may create handles, and use those that no thread was in a call with. Writers stay with the process that
 *   opened them: elsewhere a commit fails with CASEMATE_KIND_BUSY. The lock of a device is common to both processes: of a
 *   writable one, one of them may change it. Only servers, and writers of file systems with multiple mount protection, have threads
 *   between calls.
 * - State. The library keeps nothing between calls but the handles: no per-thread state, no errno.
 * - Paths are bytes that end with a zero. Other strings are UTF-8.
 * - Option structures begin with `size`: set it to sizeof, and everything else to 0 (memset). A field that is 0 has its
 *   default. NULL means all defaults.
 */

#ifndef CASEMATE_H
#define CASEMATE_H

#include <stddef.h>
#include <stdint.h>

/**
 * To read, while no other process changes the file: readers share a lock.
 */
#define CASEMATE_ACCESS_READ 0

/**
 * To change, while no other process uses the file.
 */
#define CASEMATE_ACCESS_CHANGE 1

/**
 * To read without a lock, whatever others write meanwhile: to look at a header, say, of what is in use.
 */
#define CASEMATE_ACCESS_READ_UNLOCKED 2

/**
 * The system or a path failed; casemate_error_errno() has its number.
 */
#define CASEMATE_KIND_IO 1

/**
 * A structure contradicts its format, or its checksum does not fit.
 */
#define CASEMATE_KIND_CORRUPT 2

/**
 * The library lacks a feature that the format allows.
 */
#define CASEMATE_KIND_UNSUPPORTED 3

/**
 * All was read, and a digest, signature or secret does not match.
 */
#define CASEMATE_KIND_MISMATCH 4

/**
 * A key is missing.
 */
#define CASEMATE_KIND_LOCKED 5

/**
 * Another process or handle uses the file or device.
 */
#define CASEMATE_KIND_BUSY 6

/**
 * An argument is outside its range, or arguments exclude each other.
 */
#define CASEMATE_KIND_ARGUMENT 7

/**
 * A signal or a callback stopped the work.
 */
#define CASEMATE_KIND_INTERRUPTED 8

/**
 * The library's version that a program is compiled for: the first number.
 */
#define CASEMATE_VERSION_MAJOR 0

/**
 * The second number.
 */
#define CASEMATE_VERSION_MINOR 1

/**
 * The third number.
 */
#define CASEMATE_VERSION_PATCH 0

/**
 * A finding that is an oddity and does no harm.
 */
#define CASEMATE_LEVEL_NOTE 0

/**
 * A finding that is damage.
 */
#define CASEMATE_LEVEL_FAULT 1

/**
 * Damage that a repair has fixed.
 */
#define CASEMATE_LEVEL_FIXED 2

/**
 * The number `reserved_blocks` is set.
 */
#define CASEMATE_TUNE_RESERVED_BLOCKS 1

/**
 * The number `reserved_user` is set.
 */
#define CASEMATE_TUNE_RESERVED_USER 2

/**
 * The number `reserved_group` is set.
 */
#define CASEMATE_TUNE_RESERVED_GROUP 4

/**
 * The number `max_mounts` is set.
 */
#define CASEMATE_TUNE_MAX_MOUNTS 8

/**
 * The number `mounts` is set.
 */
#define CASEMATE_TUNE_MOUNTS 16

/**
 * The number `check_interval` is set.
 */
#define CASEMATE_TUNE_CHECK_INTERVAL 32

/**
 * The number `last_check` is set.
 */
#define CASEMATE_TUNE_LAST_CHECK 64

/**
 * A specification of a new file system, its contents, and layers around it. It is built once; the signature of its root hash stays.
 */
typedef struct casemate_build casemate_build;

/**
 * A dm-crypt cipher with its key.
 */
typedef struct casemate_cipher casemate_cipher;

/**
 * A device: anything that holds bytes and is read and written at positions.
 */
typedef struct casemate_device casemate_device;

/**
 * An error: status, family, number and text.
 */
typedef struct casemate_error casemate_error;

/**
 * A file system that is open for reading.
 */
typedef struct casemate_ext4 casemate_ext4;

/**
 * A hasher: the fs-verity digest of a stream of bytes.
 */
typedef struct casemate_hasher casemate_hasher;

/**
 * Keys that open encrypted folders.
 */
typedef struct casemate_keys casemate_keys;

/**
 * An NBD server.
 */
typedef struct casemate_server casemate_server;

/**
 * Changes of a file system, in memory until they are committed.
 */
typedef struct casemate_writer casemate_writer;

/**
 * The status that every function returns: the command's exit status, and 101 for a fault of the library itself.
 */
typedef int32_t casemate_status;

/**
 * A digest and its length.
 */
typedef struct {
    uint32_t len;
    uint8_t bytes[64];
} casemate_digest;

/**
 * Numbers of a new file system, and its digests.
 */
typedef struct {
    /**
     * Bytes of the file system.
     */
    uint64_t size;
    uint64_t files;
    uint64_t directories;
    uint64_t others;
    uint8_t uuid[16];
    /**
     * Of dm-verity; without it of no bytes.
     */
    casemate_digest root_hash;
    /**
     * Zeros, for what comes later.
     */
    uint64_t reserved[4];
} casemate_built;

/**
 * Policy of an encrypted directory, but for its key; a field that is 0 or NULL has its default.
 */
typedef struct {
    uint32_t size;
    /**
     * 2, or 1
     */
    uint32_t version;
    /**
     * Bytes that names are padded to a multiple of: 32, or 4, 8, 16
     */
    uint32_t padding;
    /**
     * Bytes of a data unit; 0: of a block.
     */
    uint32_t data_unit_size;
    /**
     * "aes-256-xts"
     */
    const char *contents_mode;
    /**
     * "aes-256-cts"
     */
    const char *names_mode;
    /**
     * "file": a key for each file; or "direct", "inode64", "inode32": one for all, and IVs with the nonce or the inode's number
     */
    const char *ivs;
} casemate_policy_options;

/**
 * Options of a LUKS2 volume around a new file system. A field that is 0 or NULL has its default.
 */
typedef struct {
    uint32_t size;
    /**
     * 512
     */
    uint32_t sector_size;
    /**
     * NULL, with a length of 0: a random one. With one the volume follows from the seed of the build.
     */
    const void *volume_key;
    size_t volume_key_len;
    /**
     * "argon2id", or "argon2i", "pbkdf2"
     */
    const char *kdf;
    /**
     * Of the KDF.
     */
    uint32_t iterations;
    /**
     * Of Argon2, in KiB; 0 with "pbkdf2".
     */
    uint32_t memory;
    /**
     * Of Argon2; 0 with "pbkdf2".
     */
    uint32_t lanes;
    /**
     * 0
     */
    uint32_t reserved;
} casemate_luks_options;

/**
 * Options of a new file system. A field that is 0 or NULL has its default.
 */
typedef struct {
    uint32_t size;
    /**
     * 4096
     */
    uint32_t block_size;
    /**
     * "ext4", or "ext2", "ext3"
     */
    const char *kind;
    /**
     * Features to add, or with a ^ to take away, with commas.
     */
    const char *features;
    const char *label;
    /**
     * NULL: of the contents.
     */
    const char *uuid;
    /**
     * Text that identity, salts and nonces follow from.
     */
    const char *seed;
    /**
     * Bytes of the file system; 0: as few as there can be, or all of a device.
     */
    uint64_t bytes;
    /**
     * Bytes that are free in the end, at least, as with `casemate ext4 build --min-free`; `bytes` that have no room for them are
     * refused.
     */
    uint64_t free_bytes;
    /**
     * Whether `uid` and `gid` own everything; 0: the owners are those of the sources, and `uid` and `gid` have no effect.
     */
    uint32_t has_owner;
    uint32_t uid;
    uint32_t gid;
    /**
     * Whether the image is a sparse one of Android.
     */
    uint32_t android_sparse;
} casemate_build_options;

/**
 * Signs `message` with a hash, "sha256" or "sha512": stores an RSA PKCS#1 v1.5 block, or ECDSA's (r, s) in DER, in `signature`,
 * which has room for `*signature_len` bytes, and its length there. Returns 0, or a number of errno.h.
 */
typedef int (*casemate_sign_fn)(void *context,
                                const char *hash,
                                const void *message,
                                size_t message_len,
                                void *signature,
                                size_t *signature_len);

/**
 * Options of an fs-verity tree. A field that is 0 or NULL has its default.
 */
typedef struct {
    uint32_t size;
    /**
     * Block size in bytes; default 4096.
     */
    uint32_t block_size;
    /**
     * "sha256" (default) or "sha512".
     */
    const char *algorithm;
    const void *salt;
    size_t salt_len;
} casemate_fsverity_options;

/**
 * Options of a dm-crypt mapping. A field that is 0 or NULL has its default.
 */
typedef struct {
    uint32_t size;
    /**
     * Sector size in bytes; default 512.
     */
    uint32_t sector_size;
    /**
     * Cipher specification; default "aes-xts-plain64".
     */
    const char *cipher;
    /**
     * First sector of the data, in sectors of 512 bytes.
     */
    uint64_t offset;
    uint64_t iv_offset;
} casemate_crypt_options;

/**
 * Fills `buf` with the `len` bytes at `offset`. Returns 0, or a number of errno.h. Numbers that are answers about a path, such
 * as ENOENT, count as EIO: a device that can't be read says nothing about files on it.
 */
typedef int (*casemate_read_fn)(void *context, void *buf, size_t len, uint64_t offset);

/**
 * Releases the context of a callback.
 */
typedef void (*casemate_release_fn)(void *context);

/**
 * Parameters of a file system.
 */
typedef struct {
    /**
     * Bytes of a block.
     */
    uint32_t block_size;
    uint32_t inodes;
    uint32_t free_inodes;
    /**
     * Reserved; 0.
     */
    uint32_t reserved;
    /**
     * Size in blocks.
     */
    uint64_t blocks;
    uint64_t free_blocks;
    /**
     * Blocks that only root may use.
     */
    uint64_t reserved_blocks;
    uint8_t uuid[16];
    /**
     * Label in UTF-8, ended by a zero; bytes that are not UTF-8 are replaced.
     */
    char label[64];
    /**
     * Reserved; 0.
     */
    uint64_t reserved_numbers[4];
} casemate_ext4_info;

/**
 * The fields of an inode.
 */
typedef struct {
    uint64_t size;
    /**
     * Allocated space, in sectors of 512 bytes.
     */
    uint64_t blocks;
    int64_t modified_seconds;
    int64_t accessed_seconds;
    int64_t changed_seconds;
    uint32_t modified_nanoseconds;
    uint32_t accessed_nanoseconds;
    uint32_t changed_nanoseconds;
    uint32_t inode;
    /**
     * File type and permissions, as st_mode of stat(2).
     */
    uint32_t mode;
    uint32_t links;
    uint32_t uid;
    uint32_t gid;
    /**
     * Major number of a device node; otherwise 0.
     */
    uint32_t device_major;
    uint32_t device_minor;
    /**
     * Reserved; 0.
     */
    uint64_t reserved[4];
} casemate_stat;

/**
 * Receives an entry of a directory: its name, of `len` bytes without a zero at the end, and its inode number.
 * Returns 0 to continue.
 */
typedef int (*casemate_name_fn)(void *context, const uint8_t *name, size_t len, uint32_t inode);

/**
 * Receives a finding: a CASEMATE_LEVEL value, its kind, its place, and a text. The strings live as long as the call.
 */
typedef void (*casemate_finding_fn)(void *context, int level, const char *kind, const char *place, const char *text);

/**
 * Receives the result of the file at `index`: its digest, or the error that kept it from being read; the other one
 * is NULL. The callee frees neither. Returns 0 to continue.
 */
typedef int (*casemate_digest_fn)(void *context,
                                  size_t index,
                                  const casemate_digest *digest,
                                  const casemate_error *error);

/**
 * Decides about `count` findings of a kind, such as "block-count"; docs/checks.md has all kinds. Each kind is asked for
 * once. The string lives as long as the call. Returns 1 to fix them, 0 to leave them; another value ends the repair with an
 * error.
 */
typedef int (*casemate_approve_fn)(void *context, const char *kind, size_t count);

/**
 * Receives how many bytes have been worked on, at most 20 times a second. Any thread calls it, one call at a time.
 * Returns 0 to continue; another value stops the work with the status CASEMATE_INTERRUPTED.
 */
typedef int (*casemate_progress_fn)(void *context, uint64_t bytes);

/**
 * Receives a file whose contents or attributes a repair changed, or that may be others': its inode and the change, "cut", "shared",
 * "map", "size", "cleared" or "attributes", which docs/checks.md explains. The string lives as long as the call.
 */
typedef void (*casemate_altered_fn)(void *context, uint64_t inode, const char *change);

/**
 * Options of a repair. A field that is 0 or NULL has its default.
 */
typedef struct {
    uint32_t size;
    /**
     * 0
     */
    uint32_t reserved;
    /**
     * Damage that is fixed: "safe", what needs no guess; or "all", by the rules of docs/checks.md where something must be
     * decided.
     */
    const char *depth;
    /**
     * Path of a new file that keeps the blocks that change, as they were before: `e2undo FILE IMAGE` of e2fsprogs puts them
     * back. NULL: none.
     */
    const char *undo;
    /**
     * Block of the copy of the superblock that becomes the primary one. 0: a sound copy is found if the primary one is
     * damaged.
     */
    uint64_t superblock;
    /**
     * Asked before findings of each kind are fixed. NULL: all are.
     */
    casemate_approve_fn approve;
    /**
     * Told of bytes of inode tables; each round of the repair reads them once.
     */
    casemate_progress_fn progress;
    /**
     * Passed to `approve`, `progress` and `altered`.
     */
    void *context;
    /**
     * Called after the repair for each file whose contents were changed, or may be others', one call at a time; or NULL.
     */
    casemate_altered_fn altered;
} casemate_repair_options;

/**
 * Numbers of findings after a repair.
 */
typedef struct {
    /**
     * Faults that were fixed.
     */
    uint64_t fixed;
    /**
     * Faults that are left; 0 if the file system is sound.
     */
    uint64_t faults;
    /**
     * Faults of these that can't be fixed because other damage makes unsure what is right.
     */
    uint64_t withheld;
    /**
     * Oddities that do no harm.
     */
    uint64_t notes;
    /**
     * Files whose contents were changed, or may be others'; each is counted once for each kind of change.
     */
    uint64_t altered;
    /**
     * Reserved; 0.
     */
    uint64_t reserved[3];
} casemate_repaired;

/**
 * Options of another size. A field that is 0 or NULL has its default.
 */
typedef struct {
    uint32_t size;
    /**
     * 1 to cut the file behind a file system that shrinks; refused if something was behind it before.
     */
    uint32_t truncate;
    /**
     * 1 to grow into bytes that hold something, which is lost.
     */
    uint32_t overwrite;
    /**
     * 0
     */
    uint32_t reserved;
    /**
     * Told of bytes of inode tables, which are checked before a file system shrinks.
     */
    casemate_progress_fn progress;
    /**
     * Passed to `progress`.
     */
    void *context;
} casemate_resize_options;

/**
 * Sizes of a file system before and now.
 */
typedef struct {
    /**
     * Size in bytes.
     */
    uint64_t bytes;
    /**
     * Size in blocks before.
     */
    uint64_t blocks_before;
    /**
     * Size in blocks.
     */
    uint64_t blocks;
    /**
     * Blocks of files and of their maps that were moved.
     */
    uint64_t blocks_moved;
    /**
     * Inodes that have another number now.
     */
    uint64_t inodes_moved;
    /**
     * Bytes of a block.
     */
    uint32_t block_size;
    /**
     * Reserved; 0.
     */
    uint32_t reserved[7];
} casemate_resized;

/**
 * Parameters of a file system that change. A string that is NULL, and a number that `set` does not name, stay as they are.
 */
typedef struct {
    uint32_t size;
    /**
     * Numbers below that change: CASEMATE_TUNE values, joined with |.
     */
    uint32_t set;
    /**
     * Label of at most 16 bytes; "" removes it.
     */
    const char *label;
    /**
     * A UUID, or "random", "time" or "clear".
     */
    const char *uuid;
    /**
     * Features to add, or with a ^ to remove, with commas.
     */
    const char *features;
    /**
     * Default mount options to set, or with a ^ to clear, with commas: acl, user_xattr, discard and others.
     */
    const char *mount_options;
    /**
     * Extended options with commas: stride, stripe_width, hash_alg, mount_opts, test_fs, force_fsck.
     */
    const char *extended;
    /**
     * Behaviour of the kernel on errors: "continue", "remount-ro" or "panic".
     */
    const char *on_errors;
    /**
     * Path where the file system was mounted last, of at most 64 bytes.
     */
    const char *last_mounted;
    /**
     * Bytes of a new journal, which is added; 0: none, or one of the usual size with the feature has_journal.
     */
    uint64_t journal_size;
    /**
     * Blocks that only root may use: at most half of all.
     */
    uint64_t reserved_blocks;
    /**
     * When the file system was checked last, in seconds since 1970: from 0 to 2^40 - 1.
     */
    int64_t last_check;
    /**
     * Seconds after which the file system is checked; 0 for never.
     */
    uint32_t check_interval;
    /**
     * Mounts after which the file system is checked, at most 16000; 0 or -1 for never.
     */
    int32_t max_mounts;
    /**
     * Mounts since the last check.
     */
    uint16_t mounts;
    /**
     * User that may use reserved blocks, too.
     */
    uint16_t reserved_user;
    /**
     * Group that may use reserved blocks, too.
     */
    uint16_t reserved_group;
    /**
     * 0
     */
    uint16_t reserved;
} casemate_tune_options;

/**
 * Options of a hash area. A field that is 0 or NULL has its default.
 */
typedef struct {
    uint32_t size;
    /**
     * 4096
     */
    uint32_t data_block_size;
    /**
     * 4096
     */
    uint32_t hash_block_size;
    /**
     * 0
     */
    uint32_t reserved;
    /**
     * "sha256"
     */
    const char *algorithm;
    /**
     * NULL: 32 random bytes.
     */
    const void *salt;
    size_t salt_len;
    /**
     * NULL: a random one.
     */
    const char *uuid;
    /**
     * 0: as many as the data have.
     */
    uint64_t data_blocks;
    /**
     * Of the superblock, in bytes.
     */
    uint64_t hash_offset;
} casemate_verity_options;

#define CASEMATE_YES 0

/**
 * A mismatch or damage was found.
 */
#define CASEMATE_NO 1

#define CASEMATE_COULD_NOT 2

/**
 * A fault of the library itself.
 */
#define CASEMATE_FAULT 101

#define CASEMATE_INTERRUPTED 130

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Begins to specify an image in a file, which appears only when it is complete, or on a block device.
 *
 * @param path the file or block device
 * @param build where the specification is stored; the caller frees it with casemate_build_free()
 * @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
 * @return CASEMATE_YES, or the status of `error`
 */
casemate_status casemate_build_new(const char *path, casemate_build **build, casemate_error **error);

/**
 * Puts the file system into an existing file or device, from a byte on; the other bytes stay.
 *
 * @param build the specification
 * @param offset first byte of the file system
 * @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
 * @return CASEMATE_YES, or the status of `error`
 */
casemate_status casemate_build_at(casemate_build *build, uint64_t offset, casemate_error **error);

/**
 * Puts the file system into a partition, counted from 1, of an existing file or device.
 *
 * @param build the specification
 * @param number number of the partition
 * @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
 * @return CASEMATE_YES, or the status of `error`
 */
casemate_status casemate_build_in_partition(casemate_build *build, uint32_t number, casemate_error **error);

/**
 * Makes the image with all threads. Other contents of the target are refused without `overwrite`. `built` may be NULL.
 *
 * @param build the specification
 * @param overwrite whether something else at the target may be lost
 * @param built where numbers, UUID and root hash are stored, or NULL
 * @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
 * @return CASEMATE_YES, or the status of `error`
 */
casemate_status casemate_build_run(casemate_build *build, int overwrite, casemate_built *built, casemate_error **error);

/**
 * Copies the PKCS#7 signature of the root hash in DER, once casemate_build_run() has returned CASEMATE_YES for a build with dm-verity
 * and a signer.
 *
 * @param build the specification
 * @param signature where the signature is stored, or NULL to ask for its length alone
 * @param len room at `signature` in bytes; the length of the signature is stored there
 * @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
 * @return CASEMATE_YES, or the status of `error`; its kind is CASEMATE_KIND_ARGUMENT without a signature, or without room
 */
casemate_status casemate_build_root_hash_signature(const casemate_build *build,
                                                   void *signature,
                                                   size_t *len,
                                                   casemate_error **error);

/**
 * Frees a specification, and wipes its keys.
 *
 * @param build the specification, or NULL
 */
void casemate_build_free(casemate_build *build);

/**
 * Changes permission bits of files that match a pattern, of which there must be one. Each call adds a rule.
 *
 * @param build the specification
 * @param pattern a pattern, or NULL for all files
 * @param mode octal bits, or changes as of chmod(1), such as "u+x,go=r"
 * @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
 * @return CASEMATE_YES, or the status of `error`
 */
casemate_status casemate_build_mode(casemate_build *build,
                                    const char *pattern,
                                    const char *mode,
                                    casemate_error **error);

/**
 * Sets an extended attribute on files that match a pattern, of which there must be one. Each call adds a rule.
 *
 * @param build the specification
 * @param pattern a pattern, or NULL for all files
 * @param name name of the attribute, such as "user.origin"
 * @param value its value
 * @param value_len length of the value in bytes
 * @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
 * @return CASEMATE_YES, or the status of `error`
 */
casemate_status casemate_build_xattr(casemate_build *build,
                                     const char *pattern,
                                     const char *name,
                                     const void *value,
                                     size_t value_len,
                                     casemate_error **error);

/**
 * Changes owners, modes and other attributes of files as a description in a file says; each call adds one.
 *
 * @param build the specification
 * @param format "fs_config", "device_table", "mtree" or "composefs_dump"
 * @param description the file
 * @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
 * @return CASEMATE_YES, or the status of `error`
 */
casemate_status casemate_build_describe(casemate_build *build,
                                        const char *format,
                                        const char *description,
                                        casemate_error **error);

/**
 * Labels everything for SELinux as a file in the format of file_contexts says.
 *
 * @param build the specification
 * @param file_contexts the file
 * @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
 * @return CASEMATE_YES, or the status of `error`
 */
casemate_status casemate_build_label(casemate_build *build, const char *file_contexts, casemate_error **error);

/**
 * Tells where the file system will be mounted: paths of descriptions in the format fs_config, and of labels, begin there.
 *
 * @param build the specification
 * @param mount_point the path; without this call it is "/"
 * @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
 * @return CASEMATE_YES, or the status of `error`
 */
casemate_status casemate_build_mount_point(casemate_build *build,
                                           const char *mount_point,
                                           casemate_error **error);

/**
 * Encrypts a directory, with its contents, with a raw master key of 16 to 64 bytes.
 *
 * @param build the specification
 * @param directory the directory in the file system
 * @param key the key; it is copied, and wiped by casemate_build_free()
 * @param key_len its length in bytes
 * @param policy the policy, or NULL for the usual values
 * @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
 * @return CASEMATE_YES, or the status of `error`
 */
casemate_status casemate_build_encrypt(casemate_build *build,
                                       const char *directory,
                                       const void *key,
                                       size_t key_len,
                                       const casemate_policy_options *policy,
                                       casemate_error **error);

/**
 * Encrypts a directory, with its contents, with a random key that google/fscrypt opens with a secret. The files of that tool
 * are put into the file system.
 *
 * @param build the specification
 * @param directory the directory in the file system
 * @param source "custom_passphrase", or "raw_key" for a key of 32 bytes; NULL is a passphrase
 * @param secret the passphrase or key; it is copied, and wiped by casemate_build_free()
 * @param secret_len its length in bytes
 * @param policy the policy, or NULL for the usual values
 * @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
 * @return CASEMATE_YES, or the status of `error`
 */
casemate_status casemate_build_protect(casemate_build *build,
                                       const char *directory,
                                       const char *source,
                                       const void *secret,
                                       size_t secret_len,
                                       const casemate_policy_options *policy,
                                       casemate_error **error);

/**
 * Makes a LUKS2 volume around everything, which a passphrase opens.
 *
 * @param build the specification
 * @param passphrase the passphrase; it is copied, and wiped by casemate_build_free()
 * @param passphrase_len its length in bytes
 * @param options options, or NULL for the usual values
 * @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
 * @return CASEMATE_YES, or the status of `error`
 */
casemate_status casemate_build_luks(casemate_build *build,
                                    const void *passphrase,
                                    size_t passphrase_len,
                                    const casemate_luks_options *options,
                                    casemate_error **error);

/**
 * Sets options of the file system.
 *
 * @param build the specification
 * @param options options, or NULL for the usual values
 * @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
 * @return CASEMATE_YES, or the status of `error`
 */
casemate_status casemate_build_set_options(casemate_build *build,
                                           const casemate_build_options *options,
                                           casemate_error **error);

/**
 * Signs the digests of files with fs-verity, and the root hash of dm-verity, with a private key.
 *
 * @param build the specification
 * @param key the private key in PEM: RSA of 2048 to 4096 bits, or ECDSA on P-256 or P-384; it is copied, and wiped by
 *   casemate_build_free()
 * @param key_len its length in bytes
 * @param certificate the certificate in PEM or DER
 * @param certificate_len its length in bytes
 * @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
 * @return CASEMATE_YES, or the status of `error`
 */
casemate_status casemate_build_signing_key(casemate_build *build,
                                           const void *key,
                                           size_t key_len,
                                           const void *certificate,
                                           size_t certificate_len,
                                           casemate_error **error);

/**
 * Has a function of the caller sign the digests of files with fs-verity, and the root hash of dm-verity, such as with a token.
 * Each signature is verified with the certificate.
 *
 * @param build the specification
 * @param sign called by any thread, and by several at the same time
 * @param context passed to `sign`; must live until casemate_build_run() returns
 * @param certificate the certificate in PEM or DER
 * @param certificate_len its length in bytes
 * @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
 * @return CASEMATE_YES, or the status of `error`
 */
casemate_status casemate_build_signer(casemate_build *build,
                                      casemate_sign_fn sign,
                                      void *context,
                                      const void *certificate,
                                      size_t certificate_len,
                                      casemate_error **error);

/**
 * Adds the contents of a folder of the host. They replace files of earlier sources.
 *
 * @param build the specification
 * @param folder the folder
 * @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
 * @return CASEMATE_YES, or the status of `error`
 */
casemate_status casemate_build_add_folder(casemate_build *build, const char *folder, casemate_error **error);

/**
 * Adds the contents of a tar stream, plain or compressed with gzip or zstd; "-" is standard input.
 *
 * @param build the specification
 * @param tar the file, or "-"
 * @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
 * @return CASEMATE_YES, or the status of `error`
 */
casemate_status casemate_build_add_tar(casemate_build *build, const char *tar, casemate_error **error);

/**
 * Adds a layer of an OCI image: a tar stream whose whiteouts remove files of earlier sources.
 *
 * @param build the specification
 * @param layer the file
 * @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
 * @return CASEMATE_YES, or the status of `error`
 */
casemate_status casemate_build_add_layer(casemate_build *build, const char *layer, casemate_error **error);

/**
 * Adds all layers of an image in an OCI layout folder: the only one for NULL, or the one with this name, digest or platform.
 *
 * @param build the specification
 * @param folder the folder
 * @param image name, digest or platform of the image, or NULL
 * @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
 * @return CASEMATE_YES, or the status of `error`
 */
casemate_status casemate_build_add_oci(casemate_build *build,
                                       const char *folder,
                                       const char *image,
                                       casemate_error **error);

/**
 * Maps user IDs of the sources. Each call adds a range.
 *
 * @param build the specification
 * @param to first ID in the image
 * @param from first ID of the source
 * @param count how many IDs
 * @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
 * @return CASEMATE_YES, or the status of `error`
 */
casemate_status casemate_build_map_users(casemate_build *build,
                                         uint32_t to,
                                         uint32_t from,
                                         uint32_t count,
                                         casemate_error **error);

/**
 * Maps group IDs of the sources. Each call adds a range.
 *
 * @param build the specification
 * @param to first ID in the image
 * @param from first ID of the source
 * @param count how many IDs
 * @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
 * @return CASEMATE_YES, or the status of `error`
 */
casemate_status casemate_build_map_groups(casemate_build *build,
                                          uint32_t to,
                                          uint32_t from,
                                          uint32_t count,
                                          casemate_error **error);

/**
 * Copies no extended attributes of the sources.
 *
 * @param build the specification
 * @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
 * @return CASEMATE_YES, or the status of `error`
 */
casemate_status casemate_build_no_xattrs(casemate_build *build, casemate_error **error);

/**
 * Enables fs-verity on regular files that match a pattern, of which there must be one, or on all for NULL. Each call adds a
 * pattern. The block size follows from the file system: it is 0 in the options, of which the last ones count.
 *
 * @param build the specification
 * @param pattern a pattern, or NULL for all files
 * @param options options, or NULL for the usual values
 * @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
 * @return CASEMATE_YES, or the status of `error`
 */
casemate_status casemate_build_verity(casemate_build *build,
                                      const char *pattern,
                                      const casemate_fsverity_options *options,
                                      casemate_error **error);

/**
 * Enables fs-verity on the files of a manifest. Files with other digests are refused.
 *
 * @param build the specification
 * @param manifest the file
 * @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
 * @return CASEMATE_YES, or the status of `error`
 */
casemate_status casemate_build_verity_manifest(casemate_build *build, const char *manifest, casemate_error **error);

/**
 * Makes dm-verity over the file system, with a hash area in a file or on a device, or behind the file system for NULL.
 *
 * @param build the specification
 * @param hash the file or block device, or NULL
 * @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
 * @return CASEMATE_YES, or the status of `error`
 */
casemate_status casemate_build_dm_verity(casemate_build *build, const char *hash, casemate_error **error);

/**
 * Makes parity for error correction of dm-verity, which was asked for before, in a file or on a device.
 *
 * @param build the specification
 * @param parity the file or block device
 * @param offset first byte of the parity there
 * @param roots parity bytes for each codeword of 255: 2 to 24; 0 is 2
 * @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
 * @return CASEMATE_YES, or the status of `error`
 */
casemate_status casemate_build_parity(casemate_build *build,
                                      const char *parity,
                                      uint64_t offset,
                                      uint32_t roots,
                                      casemate_error **error);

/**
 * Creates a cipher for data that the caller holds in memory.
 *
 * @param key the key; it is copied, and wiped when the cipher is freed
 * @param key_len length of the key in bytes
 * @param options options, or NULL for the usual values; `offset` must be 0
 * @param cipher where the new cipher is stored; the caller frees it with casemate_cipher_free()
 * @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
 * @return CASEMATE_YES, or the status of `error`
 */
casemate_status casemate_cipher_new(const void *key,
                                    size_t key_len,
                                    const casemate_crypt_options *options,
                                    casemate_cipher **cipher,
                                    casemate_error **error);

/**
 * Encrypts or decrypts whole sectors in place. Any number of threads may use one cipher at once.
 *
 * @param cipher the cipher
 * @param encrypt 1 to encrypt, 0 to decrypt
 * @param sector number of the first sector, in units of 512 bytes
 * @param data the bytes to transform
 * @param len length of the data in bytes, a multiple of the sector size
 * @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
 * @return CASEMATE_YES, or the status of `error`
 */
casemate_status casemate_cipher_run(const casemate_cipher *cipher,
                                    int encrypt,
                                    uint64_t sector,
                                    void *data,
                                    size_t len,
                                    casemate_error **error);

/**
 * Frees a cipher and wipes its key.
 *
 * @param cipher the cipher, or NULL
 */
void casemate_cipher_free(casemate_cipher *cipher);

/**
 * Opens an image file or a block device, and locks it until it is freed. CASEMATE_KIND_BUSY: another process has it locked.
 *
 * @param path path on the host
 * @param access CASEMATE_ACCESS_READ, _CHANGE or _READ_UNLOCKED
 * @param device where the new handle is stored; the caller frees it with casemate_device_free()
 * @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
 * @return CASEMATE_YES, or the status of `error`
 */
casemate_status casemate_device_open(const char *path,
                                     int access,
                                     casemate_device **device,
                                     casemate_error **error);

/**
 * Opens an image with the layers that an image specification says, such as "disk.img,partition=2,luks,key-file=pw". Two
 * commas are one comma of a name.
 *
 * @param spec the specification, ended by a zero
 * @param passphrase the passphrase of layers that name no key file, and an error if there are none such; it is not kept. NULL if
 *   there is none
 * @param passphrase_len its length in bytes
 * @param access CASEMATE_ACCESS_READ, _CHANGE or _READ_UNLOCKED
 * @param device where the new handle is stored; the caller frees it with casemate_device_free()
 * @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
 * @return CASEMATE_YES, or the status of `error`; its kind is CASEMATE_KIND_ARGUMENT if the specification is wrong
 */
casemate_status casemate_device_open_spec(const char *spec,
                                          const void *passphrase,
                                          size_t passphrase_len,
                                          int access,
                                          casemate_device **device,
                                          casemate_error **error);

/**
 * Opens an image for changes, or creates it. A new file grows as it is written, and gets its name with
 * casemate_device_commit(). Freed without a commit, a new file leaves nothing behind.
 *
 * @param path path on the host
 * @param device where the new handle is stored; the caller frees it with casemate_device_free()
 * @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
 * @return CASEMATE_YES, or the status of `error`
 */
casemate_status casemate_device_create(const char *path, casemate_device **device, casemate_error **error);

/**
 * Flushes a device to stable storage, and gives a new file its name. A file that has its name is flushed only.
 *
 * @param device a device from casemate_device_create()
 * @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
 * @return CASEMATE_YES, or the status of `error`
 */
casemate_status casemate_device_commit(const casemate_device *device, casemate_error **error);

/**
 * Creates a device of `size` bytes that a function reads. Any thread may call `read`, several at once, never
 * with a range behind the end.
 *
 * @param size size in bytes
 * @param read fills a buffer; must be safe to call from several threads
 * @param context passed to `read` and `release`; must live until `release` is called
 * @param release called once with the context, by any thread, when the device and every device on it are
 *   freed; not called if this function fails; may be NULL
 * @param device where the new handle is stored; the caller frees it with casemate_device_free()
 * @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
 * @return CASEMATE_YES, or the status of `error`
 */
casemate_status casemate_device_from_callback(uint64_t size,
                                              casemate_read_fn read,
                                              void *context,
                                              casemate_release_fn release,
                                              casemate_device **device,
                                              casemate_error **error);

/**
 * Creates a device that is a part of another one.
 *
 * @param below the device to read from; the new device keeps what it needs of it, so the caller may free
 *   `below`
 * @param offset first byte of the part
 * @param len length of the part in bytes
 * @param device where the new handle is stored; the caller frees it with casemate_device_free()
 * @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
 * @return CASEMATE_YES, or the status of `error`
 */
casemate_status casemate_device_window(const casemate_device *below,
                                       uint64_t offset,
                                       uint64_t len,
                                       casemate_device **device,
                                       casemate_error **error);

/**
 * Creates a device that is a GPT or MBR partition of another one.
 *
 * @param below the device to read from; the new device keeps what it needs of it, so the caller may free
 *   `below`
 * @param number number of the partition, counted from 1
 * @param device where the new handle is stored; the caller frees it with casemate_device_free()
 * @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
 * @return CASEMATE_YES, or the status of `error`
 */
casemate_status casemate_device_partition(const casemate_device *below,
                                          uint32_t number,
                                          casemate_device **device,
                                          casemate_error **error);

/**
 * Creates a dm-crypt mapping on a device.
 *
 * @param below the device to read from; the new device keeps what it needs of it, so the caller may free
 *   `below`
 * @param key the key; it is copied, and wiped when the last device that needs it is freed
 * @param key_len length of the key in bytes
 * @param options options, or NULL for the usual values
 * @param device where the new handle is stored; the caller frees it with casemate_device_free()
 * @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
 * @return CASEMATE_YES, or the status of `error`
 */
casemate_status casemate_device_crypt(const casemate_device *below,
                                      const void *key,
                                      size_t key_len,
                                      const casemate_crypt_options *options,
                                      casemate_device **device,
                                      casemate_error **error);

/**
 * Opens the data of a LUKS1 or LUKS2 volume.
 *
 * @param below the device to read from; the new device keeps what it needs of it, so the caller may free
 *   `below`
 * @param passphrase the passphrase, or all bytes of a key file; it is not kept
 * @param passphrase_len its length in bytes
 * @param device where the new handle is stored; the caller frees it with casemate_device_free()
 * @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
 * @return CASEMATE_YES, or the status of `error`; its kind is CASEMATE_KIND_MISMATCH if the passphrase opens
 *   no key slot
 */
casemate_status casemate_device_luks(const casemate_device *below,
                                     const void *passphrase,
                                     size_t passphrase_len,
                                     casemate_device **device,
                                     casemate_error **error);

/**
 * Creates a dm-verity device, which verifies every block that is read.
 *
 * @param below the device to read from; the new device keeps what it needs of it, so the caller may free
 *   `below`
 * @param hash the device with the hash area; may be `below`
 * @param root_hash the trusted root hash
 * @param root_hash_len its length in bytes
 * @param hash_offset first byte of the superblock on `hash`
 * @param device where the new handle is stored; the caller frees it with casemate_device_free()
 * @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
 * @return CASEMATE_YES, or the status of `error`
 */
casemate_status casemate_device_verity(const casemate_device *below,
                                       const casemate_device *hash,
                                       const void *root_hash,
                                       size_t root_hash_len,
                                       uint64_t hash_offset,
                                       casemate_device **device,
                                       casemate_error **error);

/**
 * Returns the size of a device.
 *
 * @param device a device, or NULL
 * @return the size in bytes; 0 for NULL
 */
uint64_t casemate_device_size(const casemate_device *device);

/**
 * Reads exactly `len` bytes.
 *
 * @param device a device
 * @param buf where the bytes are stored
 * @param len number of bytes
 * @param offset first byte to read
 * @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
 * @return CASEMATE_YES, or the status of `error`
 */
casemate_status casemate_device_read(const casemate_device *device,
                                     void *buf,
                                     size_t len,
                                     uint64_t offset,
                                     casemate_error **error);

/**
 * Writes exactly `len` bytes. A regular file that nothing is laid on grows if they lie behind its end; anything else refuses that.
 *
 * @param device a writable device
 * @param buf the bytes to write
 * @param len number of bytes
 * @param offset first byte to write
 * @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
 * @return CASEMATE_YES, or the status of `error`; its kind is CASEMATE_KIND_BUSY while a writer or a server
 *   may change the device
 */
casemate_status casemate_device_write(const casemate_device *device,
                                      const void *buf,
                                      size_t len,
                                      uint64_t offset,
                                      casemate_error **error);

/**
 * Waits until everything that was written is on stable storage.
 *
 * @param device a device
 * @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
 * @return CASEMATE_YES, or the status of `error`
 */
casemate_status casemate_device_flush(const casemate_device *device, casemate_error **error);

/**
 * Frees a device. Devices and file systems on it stay usable.
 *
 * @param device a device, or NULL
 */
void casemate_device_free(casemate_device *device);

/**
 * Returns the version of the library that is running, such as "0.1.0". The string is static.
 */
const char *casemate_version(void);

/**
 * Returns the status that a function returned with this error.
 *
 * @param error an error, or NULL
 * @return the status; CASEMATE_YES for NULL
 */
casemate_status casemate_error_status(const casemate_error *error);

/**
 * Returns the kind of an error.
 *
 * @param error an error, or NULL
 * @return a CASEMATE_KIND value; 0 for NULL
 */
int32_t casemate_error_kind(const casemate_error *error);

/**
 * Returns the system error of an error.
 *
 * @param error an error, or NULL
 * @return a number of errno.h; 0 if there is none
 */
int32_t casemate_error_errno(const casemate_error *error);

/**
 * Returns the code of an error: what happened, for programs that branch on it. Numbers stay. docs/errors.md lists
 * all codes with their names.
 *
 * @param error an error, or NULL
 * @return the code; 0 for NULL
 */
int32_t casemate_error_code(const casemate_error *error);

/**
 * Returns the name of the code of an error, such as "no-room" or "wrong-key".
 *
 * @param error an error, or NULL
 * @return a string that lives as long as the error; empty for NULL
 */
const char *casemate_error_code_name(const casemate_error *error);

/**
 * Returns the message of an error: complete without context, in English, UTF-8.
 *
 * @param error an error, or NULL
 * @return a string that lives as long as the error; empty for NULL
 */
const char *casemate_error_message(const casemate_error *error);

/**
 * Frees an error and its message.
 *
 * @param error an error, or NULL
 */
void casemate_error_free(casemate_error *error);

/**
 * Opens the ext2, ext3 or ext4 file system on a device for reading. A journal that needs it is replayed in
 * memory.
 *
 * @param device the device; the caller may free it
 * @param keys keys for encrypted folders, which are copied; NULL for none: names are then as the kernel shows
 *   them without the key
 * @param fs where the file system is stored; the caller frees it with casemate_ext4_free()
 * @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
 * @return CASEMATE_YES, or the status of `error`
 */
casemate_status casemate_ext4_open(const casemate_device *device,
                                   const casemate_keys *keys,
                                   casemate_ext4 **fs,
                                   casemate_error **error);

/**
 * Reads parameters of a file system from its superblock.
 *
 * @param fs the file system
 * @param info where the result is stored
 * @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
 * @return CASEMATE_YES, or the status of `error`
 */
casemate_status casemate_ext4_get_info(const casemate_ext4 *fs, casemate_ext4_info *info, casemate_error **error);

/**
 * Reads the inode at a path.
 *
 * @param fs the file system
 * @param path path in the image, ended by a zero
 * @param follow 1 to follow a symbolic link at the end of the path
 * @param stat where the result is stored
 * @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
 * @return CASEMATE_YES, or the status of `error`
 */
casemate_status casemate_ext4_stat(const casemate_ext4 *fs,
                                   const char *path,
                                   int follow,
                                   casemate_stat *stat,
                                   casemate_error **error);

/**
 * Opens a regular file as a device. A file with fs-verity is verified while it is read.
 *
 * @param fs the file system; the caller may free it
 * @param path path in the image, ended by a zero
 * @param device where the new handle is stored; the caller frees it with casemate_device_free()
 * @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
 * @return CASEMATE_YES, or the status of `error`
 */
casemate_status casemate_ext4_open_file(const casemate_ext4 *fs,
                                        const char *path,
                                        casemate_device **device,
                                        casemate_error **error);

/**
 * Calls a function for each entry of a directory, except "." and "..".
 *
 * @param fs the file system
 * @param path path in the image, ended by a zero
 * @param each called by this thread; a value other than 0 ends the list, which is CASEMATE_YES, too
 * @param context passed to `each`
 * @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
 * @return CASEMATE_YES, or the status of `error`
 */
casemate_status casemate_ext4_read_dir(const casemate_ext4 *fs,
                                       const char *path,
                                       casemate_name_fn each,
                                       void *context,
                                       casemate_error **error);

/**
 * Reads the target of a symbolic link, without a zero at its end.
 *
 * @param fs the file system
 * @param path path in the image, ended by a zero
 * @param buf where the target is stored
 * @param len in: size of `buf`; out: length of the target. Too small a buffer is an error
 * @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
 * @return CASEMATE_YES, or the status of `error`
 */
casemate_status casemate_ext4_readlink(const casemate_ext4 *fs,
                                       const char *path,
                                       void *buf,
                                       size_t *len,
                                       casemate_error **error);

/**
 * Reads the value of an extended attribute.
 *
 * @param fs the file system
 * @param path path in the image, ended by a zero
 * @param name name with its prefix, such as "user.comment"
 * @param buf where the value is stored
 * @param len in: size of `buf`; out: length of the value. Too small a buffer is an error
 * @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
 * @return CASEMATE_YES, or the status of `error`; casemate_error_errno() is ENODATA if there is no such
 *   attribute
 */
casemate_status casemate_ext4_get_xattr(const casemate_ext4 *fs,
                                        const char *path,
                                        const char *name,
                                        void *buf,
                                        size_t *len,
                                        casemate_error **error);

/**
 * Checks the file system on a device with all threads. Nothing is written.
 *
 * @param device the device
 * @param keys keys for encrypted folders, or NULL
 * @param each called for each finding, one call at a time; or NULL
 * @param context passed to `each`
 * @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
 * @return CASEMATE_YES if the file system is sound, CASEMATE_NO if there are faults (no error is stored then),
 *   or the status of `error`
 */
casemate_status casemate_ext4_check(const casemate_device *device,
                                    const casemate_keys *keys,
                                    casemate_finding_fn each,
                                    void *context,
                                    casemate_error **error);

/**
 * Frees a file system. Files that were opened as devices stay usable.
 *
 * @param fs a file system, or NULL
 */
void casemate_ext4_free(casemate_ext4 *fs);

/**
 * Computes the fs-verity digest of all bytes of a device, with all threads.
 *
 * @param device the device
 * @param options options, or NULL for the usual values
 * @param digest where the digest is stored
 * @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
 * @return CASEMATE_YES, or the status of `error`
 */
casemate_status casemate_fsverity_digest(const casemate_device *device,
                                         const casemate_fsverity_options *options,
                                         casemate_digest *digest,
                                         casemate_error **error);

/**
 * Computes the fs-verity digests of many files. Small files are read by all threads at once.
 *
 * @param paths array of paths on the host
 * @param count number of paths
 * @param options options, or NULL for the usual values
 * @param each called by this thread, in the order of `paths`; a value other than 0 ends the work
 * @param context passed to `each`
 * @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
 * @return CASEMATE_YES if `each` was called for every file, or the status of `error`; its kind is CASEMATE_KIND_INTERRUPTED if
 *   `each` ended the work
 */
casemate_status casemate_fsverity_digest_files(const char *const *paths,
                                               size_t count,
                                               const casemate_fsverity_options *options,
                                               casemate_digest_fn each,
                                               void *context,
                                               casemate_error **error);

/**
 * Creates a hasher for the fs-verity digest of a stream of bytes.
 *
 * @param options options, or NULL for the usual values
 * @param hasher where the hasher is stored; the caller frees it with casemate_hasher_free(). One thread uses
 *   it at a time
 * @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
 * @return CASEMATE_YES, or the status of `error`
 */
casemate_status casemate_hasher_new(const casemate_fsverity_options *options,
                                    casemate_hasher **hasher,
                                    casemate_error **error);

/**
 * Adds bytes to a hasher.
 *
 * @param hasher the hasher
 * @param data the bytes
 * @param len number of bytes
 * @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
 * @return CASEMATE_YES, or the status of `error`
 */
casemate_status casemate_hasher_update(casemate_hasher *hasher, const void *data, size_t len, casemate_error **error);

/**
 * Returns the digest of all bytes so far. The hasher is unchanged, and takes more bytes.
 *
 * @param hasher the hasher
 * @param digest where the digest is stored
 * @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
 * @return CASEMATE_YES, or the status of `error`
 */
casemate_status casemate_hasher_digest(const casemate_hasher *hasher, casemate_digest *digest, casemate_error **error);

/**
 * Frees a hasher.
 *
 * @param hasher a hasher, or NULL
 */
void casemate_hasher_free(casemate_hasher *hasher);

/**
 * Creates an empty set of keys.
 *
 * @param keys where the set is stored; the caller frees it with casemate_keys_free(). One thread uses it at a
 *   time
 * @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
 * @return CASEMATE_YES, or the status of `error`
 */
casemate_status casemate_keys_new(casemate_keys **keys, casemate_error **error);

/**
 * Adds a raw master key.
 *
 * @param keys the set
 * @param key the key; it is copied, and wiped when the last user of the set is freed
 * @param key_len its length, 16 to 64 bytes
 * @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
 * @return CASEMATE_YES, or the status of `error`
 */
casemate_status casemate_keys_add_raw(casemate_keys *keys, const void *key, size_t key_len, casemate_error **error);

/**
 * Adds a secret that opens protectors of google/fscrypt in the file system.
 *
 * @param keys the set
 * @param passphrase a passphrase, or the 32 bytes of a raw key; it is copied and wiped as raw keys are
 * @param passphrase_len its length in bytes
 * @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
 * @return CASEMATE_YES, or the status of `error`
 */
casemate_status casemate_keys_add_passphrase(casemate_keys *keys,
                                             const void *passphrase,
                                             size_t passphrase_len,
                                             casemate_error **error);

/**
 * Frees a set of keys and wipes them.
 *
 * @param keys a set, or NULL
 */
void casemate_keys_free(casemate_keys *keys);

/**
 * Continues a CRC-32C over more bytes.
 *
 * @param crc CRC of the bytes before; 0 at the beginning
 * @param data the bytes; may be NULL if `len` is 0
 * @param len number of bytes
 * @return the CRC of all bytes
 */
uint32_t casemate_crc32c(uint32_t crc, const void *data, size_t len);

/**
 * Computes the CRC-32C of two parts that are joined, from the CRCs of the parts.
 *
 * @param first CRC of the first part
 * @param second CRC of the second part
 * @param second_len length of the second part in bytes
 * @return the CRC of both parts together
 */
uint32_t casemate_crc32c_combine(uint32_t first, uint32_t second, uint64_t second_len);

/**
 * Repairs the file system on a device, after its journal was replayed: all at once if the journal has room for that. Without a journal a
 * file beside the image keeps the changes until they are complete.
 *
 * @param device a writable device
 * @param keys keys for encrypted folders, or NULL
 * @param options options, or NULL for the usual values
 * @param each called for each fault that was fixed, then for each finding that is left, one call at a time; or NULL
 * @param context passed to `each`
 * @param repaired where numbers of findings are stored, or NULL
 * @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
 * @return CASEMATE_YES if the file system is sound now, CASEMATE_NO if faults are left (no error is stored then), or the
 *   status of `error`; its kind is CASEMATE_KIND_BUSY while a writer or a server may change the device
 */
casemate_status casemate_ext4_repair(const casemate_device *device,
                                     const casemate_keys *keys,
                                     const casemate_repair_options *options,
                                     casemate_finding_fn each,
                                     void *context,
                                     casemate_repaired *repaired,
                                     casemate_error **error);

/**
 * Makes the file system on a device larger or smaller. A file that is too small is extended by a hole. A file system that shrinks is
 * checked first, and files behind its new end are moved. What is interrupted is completed by the next writer of this library; until
 * then neither e2fsck nor the kernel should have the file system.
 *
 * @param device a writable device
 * @param keys keys for encrypted folders, or NULL
 * @param bytes the new size in bytes; 0 is the size of the device
 * @param options options, or NULL for the usual values
 * @param resized where the sizes are stored, or NULL
 * @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
 * @return CASEMATE_YES, or the status of `error`: its kind is CASEMATE_KIND_ARGUMENT, or its system error ENOSPC, for a size
 *   that is too small for the files; CASEMATE_KIND_CORRUPT for damage that the check found; CASEMATE_KIND_BUSY while a
 *   writer or a server may change the device
 */
casemate_status casemate_ext4_resize(const casemate_device *device,
                                     const casemate_keys *keys,
                                     uint64_t bytes,
                                     const casemate_resize_options *options,
                                     casemate_resized *resized,
                                     casemate_error **error);

/**
 * Makes the file system on a device as small as it can be, and cuts its file. The file keeps its size if something other
 * than the file system is behind it, such as a hash tree.
 *
 * @param device a writable device
 * @param keys keys for encrypted folders, or NULL
 * @param options options, or NULL for the usual values; only `progress` counts
 * @param resized where the sizes are stored, or NULL
 * @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
 * @return CASEMATE_YES, or the status of `error`, as of casemate_ext4_resize()
 */
casemate_status casemate_ext4_minimize(const casemate_device *device,
                                       const casemate_keys *keys,
                                       const casemate_resize_options *options,
                                       casemate_resized *resized,
                                       casemate_error **error);

/**
 * Estimates the fewest bytes that the file system on a device can have. Nothing is written.
 *
 * @param device the device
 * @param keys keys for encrypted folders, or NULL
 * @param bytes where the size in bytes is stored
 * @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
 * @return CASEMATE_YES, or the status of `error`; its kind is CASEMATE_KIND_UNSUPPORTED for features with which the size
 *   can't change
 */
casemate_status casemate_ext4_minimum_size(const casemate_device *device,
                                           const casemate_keys *keys,
                                           uint64_t *bytes,
                                           casemate_error **error);

/**
 * Serves a device over NBD on a Unix socket, with threads of its own, until the server is stopped. Clients may
 * write if the device is writable.
 *
 * @param device the device; the caller may free it
 * @param socket path of the socket on the host
 * @param name name of the export; NULL is the empty name
 * @param server where the server is stored; the caller ends it with casemate_server_stop() and frees it with
 *   casemate_server_free()
 * @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
 * @return CASEMATE_YES, or the status of `error`
 */
casemate_status casemate_server_unix(const casemate_device *device,
                                     const char *socket,
                                     const char *name,
                                     casemate_server **server,
                                     casemate_error **error);

/**
 * Serves a device over NBD on a TCP port, as casemate_server_unix() does on a socket. Connections are not
 * encrypted: with a host that is not loopback, whoever reaches the port reads the device, and writes it if it is writable.
 *
 * @param device the device; the caller may free it
 * @param host address to listen on; NULL is localhost
 * @param port port to listen on; 0 picks a free one
 * @param name name of the export; NULL is the empty name
 * @param server where the server is stored; the caller ends it with casemate_server_stop() and frees it with
 *   casemate_server_free()
 * @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
 * @return CASEMATE_YES, or the status of `error`
 */
casemate_status casemate_server_tcp(const casemate_device *device,
                                    const char *host,
                                    uint16_t port,
                                    const char *name,
                                    casemate_server **server,
                                    casemate_error **error);

/**
 * Returns the address for clients, such as "nbd+unix:///?socket=/run/disk.sock".
 *
 * @param server the server
 * @return a string that lives as long as the server; NULL for NULL
 */
const char *casemate_server_uri(const casemate_server *server);

/**
 * Accepts no more clients, answers the requests that have arrived, and flushes the device to stable storage.
 * The handle must still be freed.
 *
 * @param server the server
 * @param patience_ms time in milliseconds for clients to take their replies; then they are disconnected
 * @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
 * @return CASEMATE_YES, or the status of `error`
 */
casemate_status casemate_server_stop(casemate_server *server, uint32_t patience_ms, casemate_error **error);

/**
 * Frees a server. One that is running is stopped at once.
 *
 * @param server a server, or NULL
 */
void casemate_server_free(casemate_server *server);

/**
 * Changes parameters of the file system, such as its label and UUID: all of them with the next commit, or none. Another UUID makes all
 * checksums other ones, which are computed anew, unless the file system has the feature metadata_csum_seed.
 *
 * @param writer a writer, used by one thread at a time
 * @param options parameters that change
 * @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
 * @return CASEMATE_YES, or the status of `error`: its kind is CASEMATE_KIND_ARGUMENT for values that no file system can
 *   have, CASEMATE_KIND_UNSUPPORTED for features that can't be added or removed. Nothing is changed then
 */
casemate_status casemate_writer_tune(casemate_writer *writer,
                                     const casemate_tune_options *options,
                                     casemate_error **error);

/**
 * Writes a dm-verity hash area, as veritysetup does, with all threads.
 *
 * @param data the device with the data
 * @param hash the device for the hash area; may be `data`, with an offset in the options
 * @param options options, or NULL for the usual values
 * @param root_hash where the root hash is stored
 * @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
 * @return CASEMATE_YES, or the status of `error`
 */
casemate_status casemate_verity_format(const casemate_device *data,
                                       const casemate_device *hash,
                                       const casemate_verity_options *options,
                                       casemate_digest *root_hash,
                                       casemate_error **error);

/**
 * Verifies all data and hash blocks, with all threads.
 *
 * @param data the device with the data
 * @param hash the device with the hash area; may be `data`
 * @param root_hash the trusted root hash
 * @param root_hash_len its length in bytes
 * @param hash_offset first byte of the superblock on `hash`
 * @param bad_blocks where the number of wrong blocks is stored, or NULL
 * @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
 * @return CASEMATE_YES if all blocks match, CASEMATE_NO if some do not (no error is stored then), or the
 *   status of `error`
 */
casemate_status casemate_verity_verify(const casemate_device *data,
                                       const casemate_device *hash,
                                       const void *root_hash,
                                       size_t root_hash_len,
                                       uint64_t hash_offset,
                                       uint64_t *bad_blocks,
                                       casemate_error **error);

/**
 * Opens the file system on a device for changes. Changes stay in memory until casemate_writer_commit(). But contents of
 * 1 MiB and more are committed in steps, and all changes so far are committed before them.
 *
 * @param device a writable device; the caller may free it
 * @param keys keys for encrypted folders, which are copied; or NULL
 * @param writer where the writer is stored; the caller frees it with casemate_writer_free(). One thread uses
 *   it at a time
 * @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
 * @return CASEMATE_YES, or the status of `error`; its kind is CASEMATE_KIND_BUSY while another writer is open
 */
casemate_status casemate_ext4_change(const casemate_device *device,
                                     const casemate_keys *keys,
                                     casemate_writer **writer,
                                     casemate_error **error);

/**
 * Creates a file with these bytes, or replaces one, whose mode, owner and attributes it keeps.
 *
 * @param writer a writer, used by one thread at a time
 * @param path path in the image, ended by a zero
 * @param data the bytes
 * @param len number of bytes
 * @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
 * @return CASEMATE_YES, or the status of `error`
 */
casemate_status casemate_writer_write_file(casemate_writer *writer,
                                           const char *path,
                                           const void *data,
                                           size_t len,
                                           casemate_error **error);

/**
 * Copies a file or a folder of the host into the image. A large copy is committed in parts.
 *
 * @param writer a writer, used by one thread at a time
 * @param source path on the host; "folder/." copies the contents of the folder into `path`
 * @param path target path in the image
 * @param recursive 1 to copy a folder with its contents
 * @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
 * @return CASEMATE_YES, or the status of `error`
 */
casemate_status casemate_writer_put(casemate_writer *writer,
                                    const char *source,
                                    const char *path,
                                    int recursive,
                                    casemate_error **error);

/**
 * Creates a directory.
 *
 * @param writer a writer, used by one thread at a time
 * @param path path in the image, ended by a zero
 * @param mode permission bits
 * @param parents 1 to create missing parents, and to accept a directory that exists
 * @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
 * @return CASEMATE_YES, or the status of `error`
 */
casemate_status casemate_writer_mkdir(casemate_writer *writer,
                                      const char *path,
                                      uint32_t mode,
                                      int parents,
                                      casemate_error **error);

/**
 * Creates a symbolic link.
 *
 * @param writer a writer, used by one thread at a time
 * @param target what the link contains
 * @param path path of the link in the image
 * @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
 * @return CASEMATE_YES, or the status of `error`
 */
casemate_status casemate_writer_symlink(casemate_writer *writer,
                                        const char *target,
                                        const char *path,
                                        casemate_error **error);

/**
 * Creates a hard link.
 *
 * @param writer a writer, used by one thread at a time
 * @param existing path of the file in the image
 * @param path path of the new name
 * @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
 * @return CASEMATE_YES, or the status of `error`
 */
casemate_status casemate_writer_link(casemate_writer *writer,
                                     const char *existing,
                                     const char *path,
                                     casemate_error **error);

/**
 * Renames a file or directory, as rename(2) does.
 *
 * @param writer a writer, used by one thread at a time
 * @param from path in the image
 * @param to new path
 * @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
 * @return CASEMATE_YES, or the status of `error`
 */
casemate_status casemate_writer_rename(casemate_writer *writer,
                                       const char *from,
                                       const char *to,
                                       casemate_error **error);

/**
 * Removes a file or an empty directory.
 *
 * @param writer a writer, used by one thread at a time
 * @param path path in the image, ended by a zero
 * @param recursive 1 to remove a directory with its contents
 * @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
 * @return CASEMATE_YES, or the status of `error`
 */
casemate_status casemate_writer_remove(casemate_writer *writer,
                                       const char *path,
                                       int recursive,
                                       casemate_error **error);

/**
 * Sets the permission bits of a file.
 *
 * @param writer a writer, used by one thread at a time
 * @param path path in the image, ended by a zero
 * @param mode permission bits, as for chmod(2)
 * @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
 * @return CASEMATE_YES, or the status of `error`
 */
casemate_status casemate_writer_chmod(casemate_writer *writer, const char *path, uint32_t mode, casemate_error **error);

/**
 * Sets the owner and the group of a file.
 *
 * @param writer a writer, used by one thread at a time
 * @param path path in the image, ended by a zero
 * @param uid the owner; UINT32_MAX keeps it
 * @param gid the group; UINT32_MAX keeps it
 * @param follow 1 to follow a symbolic link
 * @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
 * @return CASEMATE_YES, or the status of `error`
 */
casemate_status casemate_writer_chown(casemate_writer *writer,
                                      const char *path,
                                      uint32_t uid,
                                      uint32_t gid,
                                      int follow,
                                      casemate_error **error);

/**
 * Sets the size of a regular file. New bytes are zeros.
 *
 * @param writer a writer, used by one thread at a time
 * @param path path in the image, ended by a zero
 * @param size the size in bytes
 * @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
 * @return CASEMATE_YES, or the status of `error`
 */
casemate_status casemate_writer_truncate(casemate_writer *writer,
                                         const char *path,
                                         uint64_t size,
                                         casemate_error **error);

/**
 * Sets or removes an extended attribute.
 *
 * @param writer a writer, used by one thread at a time
 * @param path path in the image, ended by a zero
 * @param name name with its prefix, such as "user.comment"
 * @param value the value; NULL removes the attribute
 * @param len length of the value in bytes
 * @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
 * @return CASEMATE_YES, or the status of `error`
 */
casemate_status casemate_writer_set_xattr(casemate_writer *writer,
                                          const char *path,
                                          const char *name,
                                          const void *value,
                                          size_t len,
                                          casemate_error **error);

/**
 * Commits all changes since the last commit, all at once, and waits for stable storage.
 *
 * @param writer a writer, used by one thread at a time
 * @param error where an error is stored, or NULL; the caller frees it with casemate_error_free()
 * @return CASEMATE_YES, or the status of `error`
 */
casemate_status casemate_writer_commit(casemate_writer *writer, casemate_error **error);

/**
 * Frees a writer. Changes that were not committed are dropped.
 *
 * @param writer a writer, or NULL
 */
void casemate_writer_free(casemate_writer *writer);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* CASEMATE_H */
