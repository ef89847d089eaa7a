#!/bin/sh
# The entrypoint of the container.
#
#     tidegate-entrypoint worker [FLAGS]     the worker of the app that TIDEGATE_APP names
#     tidegate-entrypoint COMMAND ...        any other command
#
# The command replaces this script's process, so that it receives SIGTERM: a worker then lets handlers end, commits
# finished work, leaves its group and exits with 0.
set -eu

refuse() {
    echo "tidegate-entrypoint: $*" >&2
    exit 64
}

if [ "$(id -u)" = 0 ] && [ "${TIDEGATE_ALLOW_ROOT:-}" != 1 ]; then
    refuse "this runs as root, and nothing here needs that. Start it as another user (the image's is 10001)," \
        "or set TIDEGATE_ALLOW_ROOT=1."
fi

if [ "${1:-worker}" != worker ]; then
    exec "$@"
fi
if [ $# -gt 0 ]; then
    shift
fi

if [ -z "${TIDEGATE_APP:-}" ]; then
    refuse "which app? Set TIDEGATE_APP=package.module:app, and put the package into /app or install it."
fi
data="${TIDEGATE_DATA:-/var/lib/tidegate}"
mkdir -p "$data" 2>/dev/null || true
if ! [ -d "$data" ] || ! [ -w "$data" ]; then
    refuse "user $(id -u) cannot write to $data, where state is kept. Give it the volume: chown it, or in Kubernetes" \
        "set the pod's securityContext.fsGroup."
fi
exec tidegate worker "$TIDEGATE_APP" "$@"
