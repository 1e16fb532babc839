#!/usr/bin/env bash
# Runs the README's two commands in a Debian or Ubuntu that has nothing but git, make, Python and certificates: shows that the set-up
# installs whatever they need, also what a developer's machine happens to have. As root, with debootstrap:
#
#     scripts/bare-machine.sh DIRECTORY [SUITE [TARGET ...]]
#
# DIRECTORY is where the system is made, or was made by an earlier call; SUITE is a release, such as bookworm (the default), trixie or
# noble; each TARGET of make is run after `make run`: `test`, unless others are named. The checkout's commit is what is tested.
set -euo pipefail
cd "$(dirname "$0")/.."

root=${1:?which directory? scripts/bare-machine.sh DIRECTORY [SUITE [TARGET ...]]}
suite=${2:-bookworm}
shift $(($# < 2 ? $# : 2))
targets=${*:-test}

if ! [ -e "$root/etc/debian_version" ]; then
    debootstrap --variant=minbase --include=ca-certificates,git,make,python3 "$suite" "$root"
fi
# The certificates that this machine trusts beside those of the distribution: a company's network may need them.
if compgen -G '/usr/local/share/ca-certificates/*.crt' >/dev/null; then
    cp /usr/local/share/ca-certificates/*.crt "$root/usr/local/share/ca-certificates/"
    chroot "$root" update-ca-certificates >/dev/null
fi
cp /etc/resolv.conf /etc/hosts "$root/etc/"
rm -rf "$root/root/quire"
git clone --quiet --no-hardlinks . "$root/root/quire"

cat >"$root/root/commands.sh" <<'COMMANDS'
set -euo pipefail
cd /root/quire
# Where this machine trusts certificates of its own, pip and npm have to be told: they bring lists of their own.
export PIP_CERT=/etc/ssl/certs/ca-certificates.crt NODE_EXTRA_CA_CERTS=/etc/ssl/certs/ca-certificates.crt
echo "=== $(. /etc/os-release && echo "$PRETTY_NAME"), $(python3 --version): make run, from $(date +%T)"
started=$SECONDS
setsid make run &
broker=$!
until python3 -c 'import urllib.request as r; r.urlopen("http://127.0.0.1:8161/health", timeout=5)' 2>/dev/null; do
    kill -0 "$broker" 2>/dev/null || { echo "make run ended before the broker answered"; exit 1; }
    sleep 1
done
echo "=== the broker answers after $((SECONDS - started)) s"
.venv/bin/quire send orders --body "two coffees"
.venv/bin/quire receive orders --ack
kill -TERM -- "-$broker"
wait "$broker" || true
for target in "$@"; do
    echo "=== make $target, from $(date +%T)"
    make "$target"
done
COMMANDS
# A namespace of its own for mounts and processes: whatever a test leaves behind ends with it.
unshare --mount --pid --fork --mount-proc="$root/proc" bash -euc '
    root=$1
    shift
    mount --rbind /sys "$root/sys"
    mount -t tmpfs tmpfs "$root/dev"
    for device in null zero full random urandom tty; do touch "$root/dev/$device" && mount --bind "/dev/$device" "$root/dev/$device"; done
    mkdir "$root/dev/pts" "$root/dev/shm"
    mount -t devpts -o newinstance,ptmxmode=0666 devpts "$root/dev/pts"
    ln -s pts/ptmx "$root/dev/ptmx"
    ln -s /proc/self/fd "$root/dev/fd"
    mount -t tmpfs tmpfs "$root/dev/shm"
    exec chroot "$root" env -i HOME=/root TERM="${TERM:-dumb}" LANG=C.UTF-8 \
        PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin bash /root/commands.sh "$@"
' bare "$root" $targets
