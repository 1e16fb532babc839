# Sourced by the set-up scripts: installs a Debian or Ubuntu package where that is possible without asking for a password.

apt_install() { # apt_install PACKAGE
    local root=() install=(env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "$1")
    command -v apt-get >/dev/null || return 1
    if [ "$(id -u)" != 0 ]; then
        if ! sudo -n true 2>/dev/null; then
            echo "Cannot install $1: this needs root. By hand: sudo apt-get install $1"
            return 1
        fi
        root=(sudo -n)
    fi
    echo "Installing the system package $1"
    "${root[@]}" "${install[@]}" >/dev/null 2>&1 && return 0
    # A fresh machine has no package lists yet, or old ones.
    "${root[@]}" apt-get update -qq >/dev/null 2>&1 || true
    "${root[@]}" "${install[@]}" >/dev/null && return 0
    echo "apt-get could not install $1."
    return 1
}
