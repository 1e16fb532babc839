#!/usr/bin/env bash
# Prints where the tests of a package are: `scripts/tests-of.sh broker.queues`. They are the directory of tests/unit that is
# named like it (or, if there is none, the modules of the nearest one above), and all modules of tests that import from it.
set -euo pipefail
cd "$(dirname "$0")/.."

package=${1:-}
path=${package//./\/}
if [ -z "$package" ] || { [ ! -d "quire/$path" ] && [ ! -f "quire/$path.py" ]; }; then
    echo "There is no package quire.$package. Say for example: make test-of PACKAGE=broker.queues" >&2
    exit 1
fi
{
    if [ -d "tests/unit/$path" ]; then
        find "tests/unit/$path" -name 'test_*.py'
    else
        until [ -d "tests/unit/$path" ]; do path=$(dirname "$path"); done
        [ "$path" = . ] || ls tests/unit/"$path"/test_*.py
    fi
    grep -rlE "(from|import) quire\.${package//./\\.}\b" tests --include='test_*.py' || true
} | sort -u
