#!/bin/sh
# Installs rouse and kn-rouse for this machine, after it has checked their sum, with man pages, completions of shells and, on
# Linux, a unit of systemd for users.
#
#   curl -fsSL https://github.com/rouse-dev/rouse/releases/latest/download/install.sh | sh
#   sh install.sh --from FOLDER --to ~/bin
#   sh install.sh --uninstall
set -eu

from=https://github.com/rouse-dev/rouse/releases/latest/download
to=
remove=

usage() {
	cat <<'HELP'
usage: install.sh [--from FOLDER|URL] [--to FOLDER] [--uninstall]

  --from        where the files of a release are; default: the latest release
  --to          where the programs go; default: /usr/local/bin if it can be written, else ~/.local/bin.
                The rest goes to share beside a folder bin, else below FOLDER
  --uninstall   take away what was installed there; models, settings and what was learned stay
HELP
}

fail() {
	echo "install.sh: $*" >&2
	exit 1
}

while [ $# -gt 0 ]; do
	case $1 in
	--from) [ $# -gt 1 ] || fail "--from needs a folder or a URL"; from=$2; shift 2 ;;
	--to) [ $# -gt 1 ] || fail "--to needs a folder"; to=$2; shift 2 ;;
	--uninstall) remove=yes; shift ;;
	-h | --help) usage; exit ;;
	*) usage >&2; fail "what is $1?" ;;
	esac
done

if [ -z "$to" ]; then
	to=/usr/local/bin
	[ -d "$to" ] && [ -w "$to" ] || to=$HOME/.local/bin
	[ -z "$remove" ] || [ -e "$to/rouse" ] || to=$HOME/.local/bin
fi
share=${to%/bin}/share

if [ -n "$remove" ]; then
	[ -e "$to/rouse" ] || fail "there is no rouse in $to: say with --to where it is"
	"$to/rouse" uninstall || true
	rm -f "$to/rouse" "$to/kn-rouse" "$to/rouse-suspend" "$share"/man/man1/rouse.1 "$share"/man/man1/rouse-*.1 "$share"/man/man1/kn-rouse*.1 "$share/systemd/user/rouse.service"
	for program in rouse kn-rouse; do
		rm -f "$share/bash-completion/completions/$program" "$share/zsh/site-functions/_$program" "$share/fish/vendor_completions.d/$program.fish"
	done
	echo "the programs are gone from $to"
	exit
fi

# Windows itself has no process groups and signals as models need them.
case $(uname -s) in
Linux) os=linux ;;
Darwin) os=darwin ;;
MINGW* | MSYS* | CYGWIN*) fail "on Windows use WSL: run this in its shell" ;;
*) fail "there is no release for $(uname -s): there are those for Linux and macOS; on Windows use WSL" ;;
esac
case $(uname -m) in
x86_64 | amd64) arch=amd64 ;;
aarch64 | arm64) arch=arm64 ;;
*) fail "there is no release for $(uname -m): there are those for amd64 and arm64" ;;
esac

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

# fetch NAME puts a file of the release into the work folder.
fetch() {
	case $from in
	http://* | https://*)
		if command -v curl >/dev/null; then
			curl -fsSL --retry 3 -o "$work/$1" "$from/$1" || fail "$from/$1 can't be fetched"
		elif command -v wget >/dev/null; then
			wget -q -O "$work/$1" "$from/$1" || fail "$from/$1 can't be fetched"
		else
			fail "install curl or wget first, or give a folder with --from"
		fi
		;;
	*) cp "$from/$1" "$work/$1" || fail "$from has no file $1: want a folder with the files of a release" ;;
	esac
}

fetch checksums.txt
line=$(grep -E "^[0-9a-f]{64}  rouse_[^/ ]*_${os}_$arch\.tar\.gz$" "$work/checksums.txt") || fail "$from/checksums.txt names no archive for $os $arch"
[ "$(printf '%s\n' "$line" | wc -l)" -eq 1 ] || fail "$from/checksums.txt names more than one archive for $os $arch"
archive=${line#*  }
fetch "$archive"
if command -v sha256sum >/dev/null; then
	sum=$(sha256sum "$work/$archive")
else
	sum=$(shasum -a 256 "$work/$archive")
fi
[ "${sum%% *}" = "${line%% *}" ] || fail "$archive has the sum ${sum%% *}, want ${line%% *}: nothing was installed"

tar -xzf "$work/$archive" -C "$work"
mkdir -p "$to" || fail "$to can't be made: give another folder with --to"
for program in rouse kn-rouse rouse-suspend; do
	[ -e "$work/${archive%.tar.gz}/$program" ] || continue # rouse-suspend is for Linux
	# A running program keeps its file: the new one takes its name.
	cp "$work/${archive%.tar.gz}/$program" "$to/.$program.new" && mv -f "$to/.$program.new" "$to/$program" ||
		fail "$to can't be written: give another folder with --to, or run this as its owner"
done
# put FILE FOLDER [NAME] puts a file of the archive into a folder, which it makes.
put() {
	mkdir -p "$2" && cp "$1" "$2/${3:-$(basename "$1")}" || fail "$2 can't be written: give another folder with --to"
}
parts=$work/${archive%.tar.gz}
for page in "$parts"/man/*.1; do
	put "$page" "$share/man/man1"
done
for program in rouse kn-rouse; do
	put "$parts/completions/$program.bash" "$share/bash-completion/completions" "$program"
	put "$parts/completions/$program.zsh" "$share/zsh/site-functions" "_$program"
	put "$parts/completions/$program.fish" "$share/fish/vendor_completions.d"
done
if [ "$os" = linux ]; then
	sed "s|^ExecStart=/usr/bin/|ExecStart=$to/|" "$parts/rouse.service" >"$work/rouse.service"
	put "$work/rouse.service" "$share/systemd/user"
fi
echo "$("$to/rouse" --version) is in $to"
case :$PATH: in
*":$to:"*) echo 'try:  rouse run pico "echo hello world"' ;;
*) printf 'Put it on the PATH:  export PATH="%s:$PATH"\n' "$to" ;;
esac
