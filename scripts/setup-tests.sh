#!/usr/bin/env bash
# Gets what the tests want beside Python packages: PostgreSQL's server programs, PgBouncer, Java for Spark, a JDK and Maven for the Java
# clients, Node and a STOMP client for it, curl for the examples of the pages, Chromium for the console,
# Prometheus and systemd's programs for the files in deploy. Where one cannot be had, this says so and goes on: the tests
# that need it are skipped and say why, the examples that need curl fail.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/apt.sh

has_postgresql() {
    command -v initdb >/dev/null || compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null
}

if ! has_postgresql && ! apt_install postgresql; then
    echo "Going on without PostgreSQL: its store is not tested here."
fi

if ! command -v pgbouncer >/dev/null && ! [ -x /usr/sbin/pgbouncer ] && ! apt_install pgbouncer; then
    echo "Going on without PgBouncer: the store behind a pooler is not tested here."
fi

command -v curl >/dev/null || apt_install curl || echo "Going on without curl: the pages that use it cannot be tested here."

command -v promtool >/dev/null || apt_install prometheus || echo "Going on without Prometheus: no alert rule is tested here."
command -v systemd-analyze >/dev/null || apt_install systemd || echo "Going on without systemd: its unit is not tested here."
if ! command -v chromium >/dev/null && ! apt_install chromium; then
    echo "Going on without Chromium: the console is not tested in a browser here."
fi
# Playwright's wheel brings a Node of its own, which is linked with it.
has_libatomic() {
    compgen -G '/usr/lib/*/libatomic.so.1' >/dev/null || compgen -G '/usr/lib*/libatomic.so.1' >/dev/null
}
if ! has_libatomic && ! apt_install libatomic1; then
    echo "Going on without libatomic: the console is not tested in a browser here."
fi

scripts/setup-java.sh

has_jdk() {
    local version
    version=$(javac -version 2>&1 | sed -n 's/^javac \([0-9]*\).*/\1/p') || return 1
    [ -n "$version" ] && [ "$version" -ge 17 ]
}

if ! has_jdk && ! { apt_install default-jdk-headless && has_jdk; } && ! apt_install openjdk-17-jdk-headless; then
    echo "Going on without a JDK 17 or newer: no Java client is tested here."
fi
command -v mvn >/dev/null || apt_install maven || echo "Going on without Maven: no Java client is tested here."

has_node() {
    command -v node >/dev/null && command -v npm >/dev/null
}

client=tests/acceptance/stompjs
if ! has_node && ! { apt_install nodejs && apt_install npm; }; then
    echo "Going on without Node: the STOMP client for it is not tested here."
elif ! cmp -s "$client/package.json" "$client/node_modules/installed.json"; then
    echo "Installing the STOMP client for Node into $client"
    if npm install --prefix "$client" --no-package-lock --no-audit --no-fund --no-update-notifier --loglevel=error; then
        cp "$client/package.json" "$client/node_modules/installed.json"
    else
        echo "Going on without the STOMP client for Node: npm could not install it."
    fi
fi
