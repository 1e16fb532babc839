#!/usr/bin/env bash
# Makes .venv and installs Quire in it: `scripts/setup.sh run` with what it needs, `scripts/setup.sh dev` with what its
# checks and tests need too. Does nothing when nothing has changed since the last time.
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
    rm -rf .venv
    if has "$1" "__import__('ensurepip')"; then
        "$1" -m venv .venv
        return
    fi
    version=$("$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    echo "Python $version has no ensurepip (Debian and Ubuntu keep it in a package of its own)."
    if apt_install "python$version-venv" && "$1" -m venv .venv; then
        return
    fi
    rm -rf .venv
    echo "Going on without it: the environment gets its pip from elsewhere."
    "$1" -m venv --without-pip .venv || fail "$1 cannot make a virtual environment. Run: apt-get install python$version-venv"
    bootstrap_pip "$1" || fail "found no pip for .venv. As root, run: apt-get install python$version-venv"
}

bootstrap_pip() { # bootstrap_pip PYTHON: the pip beside it, a wheel the system has, or one out of Debian's package
    local scratch wheel
    if "$1" -m pip --python .venv/bin/python install --quiet pip 2>/dev/null; then
        return 0
    fi
    scratch=$(mktemp -d)
    wheel=$(find /usr/share/python-wheels -name 'pip-*.whl' 2>/dev/null | tail -n 1)
    if [ -z "$wheel" ] && command -v apt-get >/dev/null; then
        (cd "$scratch" && apt-get download -qq python3-pip-whl && dpkg-deb -x python3-pip-whl_*.deb .) || true
        wheel=$(find "$scratch" -name 'pip-*.whl' | tail -n 1)
    fi
    if [ -n "$wheel" ]; then
        .venv/bin/python "$wheel/pip" install --quiet --no-index "$wheel" || wheel=""
    fi
    rm -rf "$scratch"
    [ -n "$wheel" ]
}

kind=${1:-run}
case "$kind" in
    run) what=. stamps=".venv/stamp-run .venv/stamp-dev" ;;
    dev) what='.[dev]' stamps=.venv/stamp-dev ;;
    *) fail "say 'run' or 'dev', not '$kind'" ;;
esac

# An environment does not survive being copied or moved, so its place is part of the stamp.
state=$( (pwd && cat pyproject.toml constraints.txt) | cksum)
for stamp in $stamps; do
    if [ "$(cat "$stamp" 2>/dev/null)" = "$state" ] && has .venv/bin/python True; then
        exit 0
    fi
done

if ! grep -qsF "$PWD/.venv" .venv/bin/pip || ! has .venv/bin/python True; then
    python=$(find_python)
    echo "Setting up .venv with $("$python" --version)"
    make_environment "$python"
fi
echo "Installing Quire and its dependencies into .venv"
# The variables, not --constraint: they hold for what builds the package as well.
PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt PIP_DISABLE_PIP_VERSION_CHECK=1 \
    .venv/bin/python -m pip install --quiet --editable "$what" ||
    fail "pip could not install the dependencies; its messages above say why. Is the network there?"
printf '%s\n' "$state" >".venv/stamp-$kind"
