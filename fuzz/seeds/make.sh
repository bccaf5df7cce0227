#!/bin/sh
# Makes the small ext4 images that fuzz targets begin with: fuzz/seeds/make.sh. Needs mke2fs, debugfs, a kernel that mounts
# (root) and casemate, the latter for the encrypted one and its backup. The images are kept because other versions of these tools make others.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tree=$work/tree
mkdir -p "$tree/folder/many"
for i in $(seq 40); do printf '%0*d' "$((i * 9))" "$i" > "$tree/folder/many/Name-$i-xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"; done
for i in $(seq 0 40); do printf x | dd of="$tree/pieces" bs=1 seek=$((2048 * i)) conv=notrunc status=none; done
ln -s folder/many "$tree/short"
ln -s "$(printf 'folder/%.0s' $(seq 20))" "$tree/long"
ln "$tree/pieces" "$tree/folder/hard"
setfattr -n user.small -v five5 "$tree/pieces"
setfattr -n user.large -v "$(printf 'v%.0s' $(seq 700))" "$tree/pieces"
setfattr -n user.other -v "$(printf 'o%.0s' $(seq 200))" "$tree/folder"

extended=hash_seed=00112233-4455-6677-8899-aabbccddeeff,root_owner=0:0
make() { # NAME SIZE OPTIONS...
    name=$1 size=$2
    shift 2
    E2FSPROGS_FAKE_TIME=1700000000 mke2fs -q -F -N 128 -U 00112233-4455-6677-8899-aabbccddeeff \
        -E "$extended" -d "$tree" "$@" "$work/$name.img" "$size"
}
make default 2M -t ext4 -b 1024 -O orphan_file
make no-journal 1M -t ext4 -b 1024 -O ^has_journal
make ext2 1M -t ext2 -b 1024
make ext3 2M -t ext3 -b 1024
make inline 1M -t ext4 -b 1024 -I 512 -O inline_data,ea_inode,^has_journal
make bigalloc 2M -t ext4 -b 1024 -C 4096 -O bigalloc,^has_journal
make quota 1M -t ext4 -b 1024 -O quota,project,^has_journal
# mke2fs counts nothing of what it puts in.
E2FSPROGS_FAKE_TIME=1700000000 e2fsck -fy "$work/quota.img" || [ $? = 1 ]
make meta-bg 2M -t ext4 -b 1024 -g 512 -O ^resize_inode,meta_bg,^has_journal
extended=$extended,encoding_flags=strict make casefold 1M -t ext4 -b 1024 -O casefold,sparse_super2,^has_journal
make old-sums 1M -t ext4 -b 1024 -O ^metadata_csum,uninit_bg,^64bit,^has_journal
make encrypted 2M -t ext4 -b 1024 -O encrypt
head -c 64 /dev/zero | tr '\0' k > "$work/key"
casemate ext4 mkdir "$work/encrypted.img" /secret
casemate fscrypt set-policy "$work/encrypted.img" /secret --key "$work/key"
casemate ext4 put -r "$work/encrypted.img" "$tree/folder/many" /secret --fscrypt-key "$work/key"
casemate fscrypt backup "$work/encrypted.img" /secret "$work/backup.tar"
# With fast commits in its journal, which a kernel alone makes.
make fast 2M -t ext4 -b 1024 -O fast_commit
mkdir "$work/mounted"
mount -o loop,rw,commit=1000 "$work/fast.img" "$work/mounted"
(
    cd "$work/mounted"
    sync -f .
    seq 900 > new; sync new; mv new folder/new; ln folder/new second; sync second; rm short; echo x > x; sync x
    truncate -s 70 pieces; sync pieces; for i in $(seq 9); do : > "folder/many/more-$i"; done; sync folder/many/*
    fallocate -p -o 1024 -l 1024 folder/new; chmod 600 second; sync second
)
cp "$work/fast.img" "$work/fast"
umount "$work/mounted"
mv "$work/fast" "$work/fast.img"
for file in "$work"/*.img "$work/backup.tar"; do
    xz -9e < "$file" > "$here/$(basename "$file").xz"
done
