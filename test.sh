#!/usr/bin/env bash
# Runs the project's checks: ./test.sh runs all of them, ./test.sh PART... some.
# Parts: format vet lint build unit drivers demo prove fuzz load. As root on
# Debian it installs what the tests use; as an ordinary user it installs nothing
# and names what is missing.
set -euo pipefail
cd "$(dirname "$0")"

FUZZTIME=${FUZZTIME:-20s}

say() { printf '\n== %s\n' "$*"; }

need() { # need COMMAND PACKAGES: a command that tests use
	command -v "$1" >/dev/null && return
	if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
		say "installing $2"
		# shellcheck disable=SC2086 # several packages
		{ apt-get install -y -qq --no-install-recommends $2 ||
			{ apt-get update -qq && apt-get install -y -qq --no-install-recommends $2; }; } >/dev/null 2>&1 && return
	fi
	echo "missing: $1 (Debian package $2); the tests that use it are left out"
}

gvisor() { # puts runsc into PATH, built once and kept outside the clone by what it is made of
	[ "$(id -u)" = 0 ] || return 0
	command -v runsc >/dev/null && return
	local dir
	dir=${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/controld/runsc-$(cat integration/gvisor/go.mod integration/gvisor/go.sum | sha256sum | cut -c1-16)
	if [ ! -x "$dir/runsc" ]; then
		say "building runsc"
		mkdir -p "$dir"
		(cd integration/gvisor && CGO_ENABLED=0 go build -trimpath -ldflags "-s -w" -o "$dir/runsc.new" gvisor.dev/gvisor/runsc)
		mv "$dir/runsc.new" "$dir/runsc"
	fi
	PATH=$dir:$PATH
}

format() {
	say "gofmt"
	local out
	out=$(gofmt -l .)
	[ -z "$out" ] || { echo "not formatted:"; echo "$out"; return 1; }
}

vet() {
	say "go vet"
	go vet ./...
	GOOS=darwin go vet ./...
}

lint() {
	say "staticcheck"
	go tool -modfile=tools/go.mod staticcheck ./...
}

build() {
	say "build for linux and darwin"
	GOOS=linux go build ./...
	GOOS=darwin GOARCH=arm64 go build ./...
}

unit() {
	say "tests, with the race detector"
	need strace strace
	need qemu-system-x86_64 qemu-system-x86
	need mkfs.ext4 e2fsprogs
	need busybox busybox-static
	need bwrap bubblewrap
	need runc runc
	# What starts engines and bombs has the machine to itself, below.
	go list ./... | grep -v '/integration/drivers$' | xargs go test -race -shuffle=on -timeout 15m
}

drivers() {
	say "every driver, for real, with the race detector"
	need bwrap bubblewrap
	need runc runc
	need crun crun
	need dockerd "docker.io iptables"
	need podman podman
	need busybox busybox-static
	gvisor
	go test -race -shuffle=on -timeout 15m ./integration/drivers
}

fuzz() {
	say "fuzzing, $FUZZTIME a target"
	grep -rHo --include='*_test.go' '^func Fuzz[A-Za-z0-9_]*' . | while IFS=: read -r file target; do
		target=${target#func }
		echo "-- $target in $(dirname "$file")"
		go test -run '^$' -fuzz "^$target\$" -fuzztime "$FUZZTIME" "./$(dirname "$file")" </dev/null
	done
}

load() {
	say "load, the quick part"
	(cd integration/load && go vet ./... && go run . -quick)
}

demo() {
	say "the demo, on a small stream"
	go run ./cmd/runtime-demo -stream 67108864
}

prove() {
	say "the promises, with the counts of CI"
	need strace strace
	local bin code=0
	bin=$(mktemp -d)
	go build -race -o "$bin/prove" ./integration/prove
	"$bin/prove" -quick || code=$?
	rm -rf "$bin"
	[ "$code" != 3 ] || echo "short: nothing was violated, but this machine had too much else to do to prove a goal; see above"
	[ "$code" = 0 ] || [ "$code" = 3 ]
}

# times says what took how long, also where a part failed or was ended.
done=() part=
times() {
	[ -z "$part" ] || done+=("$part" $((SECONDS - began)))
	printf '\n'
	printf '%-8s %s\n' part seconds "${done[@]}"
}
trap times EXIT

[ $# -gt 0 ] || set -- format vet lint build unit drivers demo prove fuzz load
for part; do
	began=$SECONDS
	case $part in
	format | vet | lint | build | unit | drivers | demo | prove | fuzz | load) "$part" ;;
	*) echo "unknown part: $part" >&2 && exit 2 ;;
	esac
	done+=("$part" $((SECONDS - began)))
	part=
done
say "all passed: $*"
