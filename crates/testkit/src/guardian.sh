# Ends what a test process left behind, once that process has ended, however it ended.
#
# $1 is the scratch directory of the test process, which holds the other end of our standard input and
# never writes to it. Nothing else would notice a kill -9: the system closes the pipe even then.

# Ctrl-C or a closed terminal ends the test; we are needed just after that.
trap '' HUP INT QUIT TERM PIPE
cd / || exit 1

while read -r _; do :; done

# Sends signal $1 to every process that works in the scratch directory $2, and says whether there was one.
# Processes are found by their working directory rather than by a remembered number: so one that was
# started an instant before the end is found too, and a reused number never hits a stranger. A zombie has
# no working directory.
signal_all_in() {
    found=1
    for link in /proc/[0-9]*/cwd; do
        if [ "$link" -ef "$2" ] || [ "$link" -ef "$2/data" ]; then
            process=${link%/cwd}
            # The inode of a System V mapping is the number of its segment.
            segments="$segments $(sed -n 's|.* \([0-9]*\) */SYSV.*|\1|p' "$process/maps" 2>/dev/null)"
            kill -s "$1" "${process#/proc/}" 2>/dev/null
            found=0
        fi
    done
    return $found
}

# Shared memory stays when those who used it are killed. That of a server killed earlier is named in line 7
# of the lock file it left.
segments=
if [ -f "$1/data/postmaster.pid" ]; then
    segments=$(sed -n '7s/.* //p' "$1/data/postmaster.pid")
fi

# For a PostgreSQL server QUIT is an immediate stop.
signal_all_in QUIT "$1"
rounds=0
while signal_all_in 0 "$1" && [ $rounds -lt 60 ]; do
    sleep 0.05
    rounds=$((rounds + 1))
done
while signal_all_in KILL "$1" && [ $rounds -lt 400 ]; do
    sleep 0.05
    rounds=$((rounds + 1))
done
for segment in $segments; do
    ipcrm -m "$segment" 2>/dev/null
done

if [ -d "$1/disk" ]; then
    umount -l "$1/disk" 2>/dev/null
fi
rm -rf -- "$1"
