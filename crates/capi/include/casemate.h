/*
 * casemate: the Linux storage-protection stack in user space, as a C library.
 *
 * Rules for all functions:
 *
 * - They return a casemate_status, which is the exit status of the command `casemate`: 0 yes, 1 no (a mismatch or damage
 *   was found), 2 could not, 130 interrupted, 101 a fault of the library itself.
 * - `error` may be NULL. Otherwise, when the status is not CASEMATE_YES, an error is stored there that the caller frees with
 *   casemate_error_free(). Where a status of 1 is the result and no failure, as of casemate_verity_verify(), nothing is
 *   stored: begin with NULL.
 * - NULL where a value is needed is an error (CASEMATE_COULD_NOT), never a crash; so is a length that no memory has. Functions that free take NULL.
 * - Handles may be used by any number of threads at once, except hashers, keys and writers, which are one thread's at a time.
 *   What is laid on a device keeps what it needs, so the device below may be freed.
 * - After fork() the child may use new handles, and those that no thread was in a call with; there are no threads between calls
 *   but those of servers.
 * - Nothing is kept between calls but what handles hold: no state of a thread, no errno.
 * - Paths on the host and in images are any bytes but zero, and end with a zero. Other strings are UTF-8.
 * - Structures of options begin with `size`, which the caller sets to sizeof; everything else begins as zeros (memset),
 *   and what is zero has its usual value. NULL is all of them.
 */

#ifndef CASEMATE_H
#define CASEMATE_H

#include <stddef.h>
#include <stdint.h>

/**
 * The system or a path failed; casemate_error_errno() has its number.
 */
#define CASEMATE_KIND_IO 1

/**
 * A structure contradicts its format, or its checksum does not fit.
 */
#define CASEMATE_KIND_CORRUPT 2

/**
 * The format allows it, the library does not have it.
 */
#define CASEMATE_KIND_UNSUPPORTED 3

/**
 * Everything could be read and does not match.
 */
#define CASEMATE_KIND_MISMATCH 4

/**
 * A key is missing.
 */
#define CASEMATE_KIND_LOCKED 5

/**
 * Somebody else uses it.
 */
#define CASEMATE_KIND_BUSY 6

/**
 * A value outside its range, or a combination that can't be.
 */
#define CASEMATE_KIND_ARGUMENT 7

/**
 * Somebody asked the work to stop.
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
 * A cipher under its key, as a mapping has it.
 */
typedef struct casemate_cipher casemate_cipher;

/**
 * Whatever holds bytes.
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
 * A digest of bytes that are handed over.
 */
typedef struct casemate_hasher casemate_hasher;

/**
 * Keys that open encrypted folders.
 */
typedef struct casemate_keys casemate_keys;

/**
 * A server, until it is stopped.
 */
typedef struct casemate_server casemate_server;

/**
 * Changes of a file system, in memory until they are committed.
 */
typedef struct casemate_writer casemate_writer;

/**
 * What every function returns: the command's exit status, and 101 for a fault of the library itself.
 */
typedef int32_t casemate_status;

/**
 * Options of a dm-crypt mapping; what is zero has its usual value.
 */
typedef struct {
    uint32_t size;
    /**
     * 512
     */
    uint32_t sector_size;
    /**
     * "aes-xts-plain64"
     */
    const char *cipher;
    /**
     * Of the data, in sectors of 512 bytes.
     */
    uint64_t offset;
    uint64_t iv_offset;
} casemate_crypt_options;

/**
 * Fills `buf` with the `len` bytes at `offset`; returns 0 or a number of errno.h.
 */
typedef int (*casemate_read_fn)(void *context, void *buf, size_t len, uint64_t offset);

/**
 * Frees what a function was called with.
 */
typedef void (*casemate_release_fn)(void *context);

/**
 * What an inode says.
 */
typedef struct {
    uint64_t size;
    /**
     * Of 512 bytes.
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
     * Kind and permissions, as in stat(2).
     */
    uint32_t mode;
    uint32_t links;
    uint32_t uid;
    uint32_t gid;
    /**
     * Of a device node: its numbers.
     */
    uint32_t device_major;
    uint32_t device_minor;
    /**
     * Zeros, for what comes later.
     */
    uint64_t reserved[4];
} casemate_stat;

/**
 * Hears of a name, which does not end with a zero, and its inode; returns 0 to go on.
 */
typedef int (*casemate_name_fn)(void *context, const uint8_t *name, size_t len, uint32_t inode);

/**
 * Hears of a fault, or with 0 of a note: its kind, where it is, and what it is, in words that live as long as the call.
 */
typedef void (*casemate_finding_fn)(void *context, int is_fault, const char *kind, const char *place, const char *text);

/**
 * Options of a tree; what is zero has its usual value.
 */
typedef struct {
    uint32_t size;
    /**
     * 4096
     */
    uint32_t block_size;
    /**
     * "sha256", or "sha512"
     */
    const char *algorithm;
    const void *salt;
    size_t salt_len;
} casemate_fsverity_options;

/**
 * A digest and its length.
 */
typedef struct {
    uint32_t len;
    uint8_t bytes[64];
} casemate_digest;

/**
 * Hears of the file at `index`: its digest, or the error that kept it from being read, which is not freed; the other one is
 * NULL. Returns 0 to go on.
 */
typedef int (*casemate_digest_fn)(void *context,
                                  size_t index,
                                  const casemate_digest *digest,
                                  const casemate_error *error);

/**
 * Options of a hash area; what is zero has its usual value.
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
 * The cipher of a mapping, for data that the caller has; `offset` of the options is 0.
 */
casemate_status casemate_cipher_new(const void *key,
                                    size_t key_len,
                                    const casemate_crypt_options *options,
                                    casemate_cipher **cipher,
                                    casemate_error **error);

/**
 * Encrypts, or with 0 decrypts, whole sectors in their place; `sector` is the first one's number, in sectors of 512
 * bytes.
 */
casemate_status casemate_cipher_run(const casemate_cipher *cipher,
                                    int encrypt,
                                    uint64_t sector,
                                    void *data,
                                    size_t len,
                                    casemate_error **error);

/**
 * Frees a cipher; its key is wiped.
 */
void casemate_cipher_free(casemate_cipher *cipher);

/**
 * An image file or a block device. One that is writable is locked: nobody else uses it meanwhile.
 */
casemate_status casemate_device_open(const char *path, int writable, casemate_device **device, casemate_error **error);

/**
 * The same of what is there, for changes. A file that is not there is begun: it grows by writing, gets its name with
 * casemate_device_commit(), and leaves nothing behind without.
 */
casemate_status casemate_device_create(const char *path, casemate_device **device, casemate_error **error);

/**
 * Waits for stable storage and gives a new file its name. What has its name already stays as it is.
 */
casemate_status casemate_device_commit(const casemate_device *device, casemate_error **error);

/**
 * `size` bytes that a function reads. It is called by any thread, by several at once, and never behind the end. `release`, unless it
 * is NULL, is called with the context once, by any thread, when the device and all that is laid on it are gone; not if this fails.
 */
casemate_status casemate_device_from_callback(uint64_t size,
                                              casemate_read_fn read,
                                              void *context,
                                              casemate_release_fn release,
                                              casemate_device **device,
                                              casemate_error **error);

/**
 * Part of a device.
 */
casemate_status casemate_device_window(const casemate_device *below,
                                       uint64_t offset,
                                       uint64_t len,
                                       casemate_device **device,
                                       casemate_error **error);

/**
 * A partition of GPT or MBR, counted from 1.
 */
casemate_status casemate_device_partition(const casemate_device *below,
                                          uint32_t number,
                                          casemate_device **device,
                                          casemate_error **error);

/**
 * A dm-crypt mapping. The key is copied, and wiped when it is not needed any more.
 */
casemate_status casemate_device_crypt(const casemate_device *below,
                                      const void *key,
                                      size_t key_len,
                                      const casemate_crypt_options *options,
                                      casemate_device **device,
                                      casemate_error **error);

/**
 * The data of a LUKS volume; the bytes of a key file are a passphrase.
 */
casemate_status casemate_device_luks(const casemate_device *below,
                                     const void *passphrase,
                                     size_t passphrase_len,
                                     casemate_device **device,
                                     casemate_error **error);

/**
 * A dm-verity device: every block is checked when it is read. `hash` may be `below`.
 */
casemate_status casemate_device_verity(const casemate_device *below,
                                       const casemate_device *hash,
                                       const void *root_hash,
                                       size_t root_hash_len,
                                       uint64_t hash_offset,
                                       casemate_device **device,
                                       casemate_error **error);

/**
 * Bytes of a device; 0 for NULL.
 */
uint64_t casemate_device_size(const casemate_device *device);

/**
 * All of `len` bytes, or an error.
 */
casemate_status casemate_device_read(const casemate_device *device,
                                     void *buf,
                                     size_t len,
                                     uint64_t offset,
                                     casemate_error **error);

/**
 * Writes; CASEMATE_KIND_BUSY while a writer or a server has the device for changes.
 */
casemate_status casemate_device_write(const casemate_device *device,
                                      const void *buf,
                                      size_t len,
                                      uint64_t offset,
                                      casemate_error **error);

/**
 * Waits for stable storage.
 */
casemate_status casemate_device_flush(const casemate_device *device, casemate_error **error);

/**
 * Frees a device.
 */
void casemate_device_free(casemate_device *device);

/**
 * The version of the library that is run, such as "0.1.0".
 */
const char *casemate_version(void);

/**
 * The status that came with the error.
 */
casemate_status casemate_error_status(const casemate_error *error);

/**
 * The family; 0 for NULL.
 */
int32_t casemate_error_kind(const casemate_error *error);

/**
 * The system's number (errno.h), or 0 where there is none.
 */
int32_t casemate_error_errno(const casemate_error *error);

/**
 * The code: what happened, for programs that branch on it. Numbers stay; 0 for NULL. The names of all codes, with their
 * numbers, are in docs/errors.md.
 */
int32_t casemate_error_code(const casemate_error *error);

/**
 * The code's name, such as "no-room" or "wrong-key"; it lives as long as the error. Empty for NULL.
 */
const char *casemate_error_code_name(const casemate_error *error);

/**
 * A text that is complete without context; it lives as long as the error. Empty for NULL.
 */
const char *casemate_error_message(const casemate_error *error);

/**
 * Frees an error.
 */
void casemate_error_free(casemate_error *error);

/**
 * Opens the file system on a device. `keys` may be NULL; they are copied. Encrypted folders without a key have names as the kernel shows them then.
 */
casemate_status casemate_ext4_open(const casemate_device *device,
                                   const casemate_keys *keys,
                                   casemate_ext4 **fs,
                                   casemate_error **error);

/**
 * What the inode at a path says.
 */
casemate_status casemate_ext4_stat(const casemate_ext4 *fs,
                                   const char *path,
                                   int follow,
                                   casemate_stat *stat,
                                   casemate_error **error);

/**
 * A regular file as a device; one with fs-verity is checked while it is read.
 */
casemate_status casemate_ext4_open_file(const casemate_ext4 *fs,
                                        const char *path,
                                        casemate_device **device,
                                        casemate_error **error);

/**
 * Tells all names of a directory but "." and "..".
 */
casemate_status casemate_ext4_read_dir(const casemate_ext4 *fs,
                                       const char *path,
                                       casemate_name_fn each,
                                       void *context,
                                       casemate_error **error);

/**
 * The target of a symbolic link. `*len` is how much room there is, and then how long the target is, without a zero; too little room is an error.
 */
casemate_status casemate_ext4_readlink(const casemate_ext4 *fs,
                                       const char *path,
                                       void *buf,
                                       size_t *len,
                                       casemate_error **error);

/**
 * The value of an extended attribute, which is called "user.name" or the like; ENODATA if there is none.
 */
casemate_status casemate_ext4_get_xattr(const casemate_ext4 *fs,
                                        const char *path,
                                        const char *name,
                                        void *buf,
                                        size_t *len,
                                        casemate_error **error);

/**
 * Tells all that is wrong with the file system on a device, with all threads; nothing is written. CASEMATE_NO if
 * there are faults. `keys` and `each` may be NULL.
 */
casemate_status casemate_ext4_check(const casemate_device *device,
                                    const casemate_keys *keys,
                                    casemate_finding_fn each,
                                    void *context,
                                    casemate_error **error);

/**
 * Frees a file system.
 */
void casemate_ext4_free(casemate_ext4 *fs);

/**
 * The digest of all that a device has, with all threads.
 */
casemate_status casemate_fsverity_digest(const casemate_device *device,
                                         const casemate_fsverity_options *options,
                                         casemate_digest *digest,
                                         casemate_error **error);

/**
 * The digests of many files, in order, small ones by all threads at the same time. `each` is called by this thread.
 */
casemate_status casemate_fsverity_digest_files(const char *const *paths,
                                               size_t count,
                                               const casemate_fsverity_options *options,
                                               casemate_digest_fn each,
                                               void *context,
                                               casemate_error **error);

/**
 * A digest of bytes that are handed over. Asking for it leaves the hasher as it is.
 */
casemate_status casemate_hasher_new(const casemate_fsverity_options *options,
                                    casemate_hasher **hasher,
                                    casemate_error **error);

/**
 * Takes bytes.
 */
casemate_status casemate_hasher_update(casemate_hasher *hasher, const void *data, size_t len, casemate_error **error);

/**
 * The digest of all bytes so far.
 */
casemate_status casemate_hasher_digest(const casemate_hasher *hasher, casemate_digest *digest, casemate_error **error);

/**
 * Frees a hasher.
 */
void casemate_hasher_free(casemate_hasher *hasher);

/**
 * Keys, none so far.
 */
casemate_status casemate_keys_new(casemate_keys **keys, casemate_error **error);

/**
 * A raw master key of 16 to 64 bytes. It is copied, and wiped when it is not needed any more.
 */
casemate_status casemate_keys_add_raw(casemate_keys *keys, const void *key, size_t key_len, casemate_error **error);

/**
 * What opens a protector of google/fscrypt in the file system: a passphrase, or the 32 bytes of a raw key.
 */
casemate_status casemate_keys_add_passphrase(casemate_keys *keys,
                                             const void *passphrase,
                                             size_t passphrase_len,
                                             casemate_error **error);

/**
 * Frees keys, which are wiped.
 */
void casemate_keys_free(casemate_keys *keys);

/**
 * The CRC-32C of bytes, going on from that of what came before; 0 at the beginning.
 */
uint32_t casemate_crc32c(uint32_t crc, const void *data, size_t len);

/**
 * The CRC-32C of two parts that are joined, from those of the parts.
 */
uint32_t casemate_crc32c_combine(uint32_t first, uint32_t second, uint64_t second_len);

/**
 * Offers a device at a Unix socket's path, on threads of its own, until it is stopped; clients write if the device
 * is writable. `name` is the export's; NULL is the empty one.
 */
casemate_status casemate_server_unix(const casemate_device *device,
                                     const char *socket,
                                     const char *name,
                                     casemate_server **server,
                                     casemate_error **error);

/**
 * The same at a port of a host, NULL being localhost; port 0 is one that is free.
 */
casemate_status casemate_server_tcp(const casemate_device *device,
                                    const char *host,
                                    uint16_t port,
                                    const char *name,
                                    casemate_server **server,
                                    casemate_error **error);

/**
 * Where clients find the device: it lives as long as the server.
 */
const char *casemate_server_uri(const casemate_server *server);

/**
 * Lets nobody in any more, answers what was asked, and waits for stable storage. Clients that do not take their
 * answers within so many milliseconds are cut off.
 */
casemate_status casemate_server_stop(casemate_server *server, uint32_t patience_ms, casemate_error **error);

/**
 * Stops a server that was not stopped, without patience.
 */
void casemate_server_free(casemate_server *server);

/**
 * Makes a hash area on `hash`, as veritysetup does, with all threads. `hash` may be `data`, with an offset.
 */
casemate_status casemate_verity_format(const casemate_device *data,
                                       const casemate_device *hash,
                                       const casemate_verity_options *options,
                                       casemate_digest *root_hash,
                                       casemate_error **error);

/**
 * Checks all data and hashes with all threads. CASEMATE_NO, and how many blocks are wrong, if some are; `bad_blocks`
 * may be NULL.
 */
casemate_status casemate_verity_verify(const casemate_device *data,
                                       const casemate_device *hash,
                                       const void *root_hash,
                                       size_t root_hash_len,
                                       uint64_t hash_offset,
                                       uint64_t *bad_blocks,
                                       casemate_error **error);

/**
 * Begins to change the file system on a device, which has one writer at a time: CASEMATE_KIND_BUSY while another one is open.
 */
casemate_status casemate_ext4_change(const casemate_device *device,
                                     const casemate_keys *keys,
                                     casemate_writer **writer,
                                     casemate_error **error);

/**
 * Makes a file of bytes, in the place of one that has the name.
 */
casemate_status casemate_writer_write_file(casemate_writer *writer,
                                           const char *path,
                                           const void *data,
                                           size_t len,
                                           casemate_error **error);

/**
 * Copies a file of the host, or with `recursive` a folder. What a folder "source/." has goes right into `path`.
 * Large copies are committed on the way.
 */
casemate_status casemate_writer_put(casemate_writer *writer,
                                    const char *source,
                                    const char *path,
                                    int recursive,
                                    casemate_error **error);

/**
 * Makes a directory. With `parents` directories on the way are made, too, and one that is there is no error.
 */
casemate_status casemate_writer_mkdir(casemate_writer *writer,
                                      const char *path,
                                      uint32_t mode,
                                      int parents,
                                      casemate_error **error);

/**
 * Makes a symbolic link.
 */
casemate_status casemate_writer_symlink(casemate_writer *writer,
                                        const char *target,
                                        const char *path,
                                        casemate_error **error);

/**
 * Gives a file another name.
 */
casemate_status casemate_writer_link(casemate_writer *writer,
                                     const char *existing,
                                     const char *path,
                                     casemate_error **error);

/**
 * Renames.
 */
casemate_status casemate_writer_rename(casemate_writer *writer,
                                       const char *from,
                                       const char *to,
                                       casemate_error **error);

/**
 * Removes a file or an empty directory, or with `recursive` a directory with all that it has.
 */
casemate_status casemate_writer_remove(casemate_writer *writer,
                                       const char *path,
                                       int recursive,
                                       casemate_error **error);

/**
 * Sets permissions.
 */
casemate_status casemate_writer_chmod(casemate_writer *writer, const char *path, uint32_t mode, casemate_error **error);

/**
 * Changes the owner and the group. UINT32_MAX leaves an owner or a group as it is.
 */
casemate_status casemate_writer_chown(casemate_writer *writer,
                                      const char *path,
                                      uint32_t uid,
                                      uint32_t gid,
                                      int follow,
                                      casemate_error **error);

/**
 * Sets a file's size.
 */
casemate_status casemate_writer_truncate(casemate_writer *writer,
                                         const char *path,
                                         uint64_t size,
                                         casemate_error **error);

/**
 * Sets an extended attribute. NULL as the value removes the attribute.
 */
casemate_status casemate_writer_set_xattr(casemate_writer *writer,
                                          const char *path,
                                          const char *name,
                                          const void *value,
                                          size_t len,
                                          casemate_error **error);

/**
 * Makes all changes so far permanent, all at once.
 */
casemate_status casemate_writer_commit(casemate_writer *writer, casemate_error **error);

/**
 * What was not committed has not happened.
 */
void casemate_writer_free(casemate_writer *writer);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* CASEMATE_H */
