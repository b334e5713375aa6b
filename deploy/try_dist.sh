#!/bin/sh
# try_dist.sh DIR: install the wheel and the source distribution of DIR, each in a clean environment
# of every Python there is that topics runs on, and append and read a record with what was installed.
set -eu
dist=$(cd "$1" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"  # nothing is imported from the checkout

refused() {  # refused VENV WORDS: no server starts, exit 2, one line of its own that has these words
    status=0
    "$1/bin/topics" serve --port 0 --data-dir "$work/node" 2>"$work/error" || status=$?
    test "$status" = 2
    test "$(grep -c '^topics: ' "$work/error")" = 1
    grep -q "^topics: .*$2" "$work/error"
}

try() {  # try PYTHON FILE
    "$1" -m venv "$work/venv"
    "$work/venv/bin/python" -m pip install --quiet --disable-pip-version-check "$2"
    "$work/venv/bin/topics" --version >/dev/null
    if "$work/venv/bin/topics" serve --data-dir "$work/none" 2>"$work/error"; then
        echo "a server without its extra?" >&2
        exit 1
    fi
    grep -q '\[server\]' "$work/error"

    "$work/venv/bin/python" -m pip install --quiet --disable-pip-version-check "$2[server]"
    "$work/venv/bin/topics" serve --port 0 --port-file "$work/port" --data-dir "$work/data" 2>"$work/log" &
    server=$!
    for _ in $(seq 100); do
        [ -s "$work/port" ] && break
        sleep 0.1
    done
    TOPICS_URL="http://$(cat "$work/port")"
    export TOPICS_URL
    "$work/venv/bin/topics" publish tried '{"n": 1}' >/dev/null
    test "$("$work/venv/bin/topics" read tried --data)" = '{"n": 1}'
    kill -TERM "$server"
    wait "$server"

    # A node of a cluster: without Kafka's client one line says what is missing; with it, a start
    # looks for the brokers, of which there are none here.
    export TOPICS_CLUSTER_KAFKA=127.0.0.1:1 TOPICS_CLUSTER_URL=http://127.0.0.1:1 TOPICS_CLUSTER_START_MS=300
    refused "$work/venv" '\[cluster\]'
    "$work/venv/bin/python" -m pip install --quiet --disable-pip-version-check "$2[cluster]"
    refused "$work/venv" 'did not answer for 300 ms'
    unset TOPICS_CLUSTER_KAFKA TOPICS_CLUSTER_URL TOPICS_CLUSTER_START_MS
    echo "$("$1" --version): $(basename "$2") works"
    rm -rf "$work/venv" "$work/data" "$work/node" "$work/port"
}

tried=0
for version in 3.11 3.12 3.13; do
    python=$(command -v "python$version" || true)
    if [ -z "$python" ] || ! "$python" -m venv --help >/dev/null 2>&1; then
        echo "Python $version is not here: not tried" >&2
        continue
    fi
    try "$python" "$dist"/*.whl
    try "$python" "$dist"/*.tar.gz
    tried=1
done
test "$tried" = 1
