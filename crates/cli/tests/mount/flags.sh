# Flags and projects of files in the folder $1, as chattr and lsattr see them: the same lines wherever it is ext4's.
cd "$1" || exit 1
rm -rf lost+found; mkdir d; echo text > f; ln -s f l; mkfifo p
say() { "$@" 2>&1; echo "$?: $*"; }
for flag in A S c d i a s t u D T P; do
    for file in f d; do
        say chattr +$flag $file; lsattr -d $file
        say chattr -$flag $file; lsattr -d $file
    done
done
say chattr +d l; say lsattr -d p; say lsattr f
say chattr +I d; say chattr +V f; say chattr +E d; say chattr +N f; lsattr -d f d
echo open > kept; exec 3>> kept; exec 4< d
for flag in i a; do
    chattr +$flag f kept d
    say sh -c 'echo more > f'; say sh -c 'echo more >> f'; say truncate -s 1 f; say rm -f f; say mv f g; say ln f g
    say chmod 600 f; say chown 1 f; say touch f; say touch -d @1 f; say setfattr -n user.a -v b f; say touch d/new; say rm -f d/new
    say sh -c 'echo more >&3'; say fallocate -l 100000 kept; say fallocate -n -l 100000 kept; say fallocate -p -l 2 kept
    say python3 -c 'import os; os.truncate("f", 0)'; say mkdir d/sub; say mv kept d
    chattr -$flag f kept d
done
exec 3>&- 4>&-
say cat f kept; rm -rf d/*; echo here > f
say lsattr -pd f d; say chattr -p 7 f d; say chattr +P d; say mkdir d/sub; say touch d/x; say lsattr -pdR d; say lsattr -pd d/x d/sub
say python3 -c 'import os; os.rename("kept", "d/kept")'; say chattr -p 4294967295 f; say lsattr -pd f
chmod 777 .; touch theirs; chown 1234 theirs
as() { say setpriv --reuid=1234 --regid=1234 --clear-groups "$@"; }
as chattr +d theirs; as chattr +i theirs; as chattr +j theirs; as chattr +d f; as lsattr -pd theirs f; as chattr -p 3 theirs; as chattr -p 3 f
# Times of change that are later, though nobody else got the file, and it is only called otherwise.
later='import os, sys, time; changed = lambda name: os.stat(name).st_ctime_ns
for old, new in (("f", "f"), ("d", "d"), ("f", "renamed")):
    before = changed(old); time.sleep(0.05)
    os.chown(old, -1, -1) if old == new else os.rename(old, new)
    print(old, new, changed(new) > before)'
say python3 -c "$later"
