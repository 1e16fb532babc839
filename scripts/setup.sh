#!/usr/bin/env bash
# Makes an environment and installs Quire in it: `scripts/setup.sh run` with what the broker and its console need,
# `scripts/setup.sh dev` with what checks and tests need too. Does nothing if nothing has changed since the last time.
# The environment is .venv, with the newest Python there is; `scripts/setup.sh dev .venv-python3.13 python3.13` makes
# another one.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/apt.sh

# Versions that every dependency has wheels for, the newest first.
PYTHONS="python3.14 python3.13 python3.12 python3.11 python3"

fail() {
    printf 'set-up failed: %s\n' "$1" >&2
    exit 1
}

has() { # has PYTHON EXPRESSION: whether the program runs (a version manager's shim may not) and the expression holds
    "$1" -c "import sys; sys.exit(0 if ($2) else 1)" >/dev/null 2>&1
}

origin() { # origin PYTHON: which Python it is, or an environment is made of
    "$1" -c "import sys; print(sys.version, sys.base_prefix)" 2>/dev/null
}

find_python() { # the newest Python that can make an environment by itself, or else the newest one
    local candidate
    for candidate in $PYTHONS; do
        has "$candidate" "sys.version_info >= (3, 11) and __import__('ensurepip') and __import__('venv')" || continue
        echo "$candidate"
        return
    done
    for candidate in $PYTHONS; do
        has "$candidate" "sys.version_info >= (3, 11)" || continue
        echo "$candidate"
        return
    done
    fail "there is no Python 3.11 or newer on the PATH. Install one (Debian, Ubuntu: apt-get install python3) and try again."
}

make_environment() { # make_environment PYTHON
    local version
    rm -rf "$environment"
    if has "$1" "__import__('ensurepip')"; then
        "$1" -m venv "$environment"
        return
    fi
    version=$("$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    echo "Python $version has no ensurepip (Debian and Ubuntu keep it in a package of its own)."
    if apt_install "python$version-venv" && "$1" -m venv "$environment"; then
        return
    fi
    rm -rf "$environment"
    echo "Going on without it: the environment gets its pip from elsewhere."
    "$1" -m venv --without-pip "$environment" ||
        fail "$1 cannot make a virtual environment. Run: apt-get install python$version-venv"
    bootstrap_pip "$1" || fail "found no pip for $environment. As root, run: apt-get install python$version-venv"
}

bootstrap_pip() { # bootstrap_pip PYTHON: the pip beside it, a wheel the system has, or one out of Debian's package
    local scratch wheel
    if "$1" -m pip --python "$environment/bin/python" install --quiet pip 2>/dev/null; then
        return 0
    fi
    scratch=$(mktemp -d)
    wheel=$(find /usr/share/python-wheels -name 'pip-*.whl' 2>/dev/null | tail -n 1)
    if [ -z "$wheel" ] && command -v apt-get >/dev/null; then
        (cd "$scratch" && apt-get download -qq python3-pip-whl && dpkg-deb -x python3-pip-whl_*.deb .) || true
        wheel=$(find "$scratch" -name 'pip-*.whl' | tail -n 1)
    fi
    if [ -n "$wheel" ]; then
        "$environment/bin/python" "$wheel/pip" install --quiet --no-index "$wheel" || wheel=""
    fi
    rm -rf "$scratch"
    [ -n "$wheel" ]
}

install() { # install ARGUMENT...: what pip installs into the environment
    PIP_DISABLE_PIP_VERSION_CHECK=1 "$environment/bin/python" -m pip install --quiet "$@" ||
        fail "pip could not install the dependencies; its messages above say why. Is the network there?"
}

kind=${1:-run}
environment=${2:-.venv}
python=${3:-}
case "$kind" in
    run) files=(--requirement requirements/run.txt) stamps="run dev" ;;
    dev) files=(--requirement requirements/run.txt --requirement requirements/dev.txt) stamps=dev ;;
    *) fail "say 'run' or 'dev', not '$kind'" ;;
esac
if [ -n "$python" ] && ! has "$python" "sys.version_info >= (3, 11)"; then
    fail "$python is no Python 3.11 or newer that runs here."
fi

# An environment does not survive being copied or moved, so its place is part of the stamp.
state=$( (pwd && cat pyproject.toml requirements/*.txt) | cksum)
made=$(origin "$environment/bin/python") || made=""
if [ -n "$python" ] && [ "$made" != "$(origin "$python")" ]; then
    made=""
fi
for stamp in $stamps; do
    if [ -n "$made" ] && [ "$(cat "$environment/stamp-$stamp" 2>/dev/null)" = "$state" ]; then
        exit 0
    fi
done

if [ -z "$made" ] || ! grep -qsF "$PWD/$environment/bin" "$environment/bin/pip"; then
    python=${python:-$(find_python)}
    echo "Setting up $environment with $("$python" --version)"
    make_environment "$python"
fi
echo "Installing Quire and its dependencies into $environment"
# A file that is not as it was when its hash was noted is refused: an index, or a mirror of it, may have been changed. What builds
# packages comes first, since pip could not check what it fetches for a build by itself.
install --no-deps --require-hashes --requirement requirements/build.txt
install --no-deps --require-hashes --no-build-isolation "${files[@]}"
install --no-deps --no-build-isolation --editable .
found=$("$environment/bin/python" -m pip check) || fail "packages in $environment do not go together (make clean, and try again): $found"
printf '%s\n' "$state" >"$environment/stamp-$kind"
