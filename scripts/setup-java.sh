#!/usr/bin/env bash
# Gets a Java that Spark runs on, 17 or newer. Where it cannot be had, this says so and goes on.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/apt.sh

has_java() {
    local java=${JAVA_HOME:+$JAVA_HOME/bin/}java version
    version=$("$java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1) || return 1
    [ -n "$version" ] && [ "$version" -ge 17 ]
}

# The default is 17 in Debian 12, 21 in Debian 13 and Ubuntu 24.04, and too old in what came before.
if ! has_java && ! { apt_install default-jre-headless && has_java; } && ! apt_install openjdk-17-jre-headless; then
    echo "Going on without Java 17 or newer: nothing that needs Spark runs here. Install a JRE, or set JAVA_HOME."
fi
