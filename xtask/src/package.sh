# Installs the Debian packages of / in this root, and does each one's main job: package.sh INSTALL REMOVE HELPERS LINKS, where INSTALL
# and REMOVE are the commands for the alternatives.
install=$1 remove=$2 helpers=$3 links=$4
folder=/usr/lib/casemate/bin
dpkg --install /*.deb >/dev/null
cd /tmp

truncate -s 8M data
casemate --quiet verity format data hash --root-hash-file=root
casemate verity verify data hash @root

# Whether each link in a folder leads to the command.
lead_to_the_command() {
    for name in $2; do
        test "$(readlink -f "$1/$name")" = /usr/bin/casemate
    done
}
lead_to_the_command /sbin "$helpers"
lead_to_the_command $folder "$links"
(
    PATH=$folder:$PATH
    veritysetup --version
    mke2fs -q image 16M
    e2label image trial
    test "$(e2label image)" = trial
    tune2fs -m 1 image
    tune2fs -l image | grep -q '^Filesystem volume name: *trial$'
    resize2fs image 32M
    e2fsck -fn image
)
eval "$install"
lead_to_the_command /usr/local/sbin "$links"
test "$(veritysetup --version)" = "$($folder/veritysetup --version)"
eval "$remove"
for name in $links; do
    ! test -e "/usr/local/sbin/$name" || exit 1
done

fsverity digest data >theirs
LD_LIBRARY_PATH=$(echo /usr/lib/*/casemate) fsverity digest data >ours
cmp theirs ours
# shellcheck disable=SC2046 # Words of pkg-config's are options.
cc /trial.c $(pkg-config --cflags --libs casemate) -o trial
./trial
# shellcheck disable=SC2046
cc /trial.c -l:libcasemate.a $(pkg-config --static --libs casemate) -o static
./static
