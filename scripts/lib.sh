# shellcheck shell=bash
# What the scripts share: sourced, never run. Sets $root, the top of the checkout, and offers
# install_modules, install_commands and build_agent. Everything may be called by several scripts at
# once, costs little when there is nothing to do, and says what it does on stderr.

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P)
readonly root
# Where node_modules puts the Bun that package.json pins: the one that tests, builds and runs.
readonly bun="$root/node_modules/.bin/bun"

say() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }
die() {
  say "$*"
  exit 1
}

have() { command -v "$1" >/dev/null 2>&1; }

# with_lock NAME COMMAND…: one at a time in this checkout. The descriptor is closed for COMMAND's own
# children by COMMAND (9>&-), so that nothing that outlives the script holds the lock.
with_lock() {
  local name=$1
  shift
  mkdir -p "$root/.cache"
  (
    flock 9
    "$@"
  ) 9>>"$root/.cache/$name.lock"
}

# Where what is fetched is kept for all checkouts.
cache_directory() {
  local directory=${XDG_CACHE_HOME:-${HOME:-$(getent passwd "$(id -u)" | cut -d: -f6)}/.cache}/zit-agent
  mkdir -p "$directory"
  printf '%s\n' "$directory"
}

checksum() { sha256sum | cut -d ' ' -f 1; }

modules_wanted() { cat "$root/package.json" "$root/package-lock.json" | checksum; }
modules_current() {
  [[ $(cat "$root/node_modules/.installed" 2>/dev/null) == "$(modules_wanted)" ]] && [[ -x $bun ]]
}

# The packages of bun and deno may not run their install scripts here: npm and Bun block them by
# default or by configuration. What they do is to put the program of this platform's own package in
# place; done here for bun, without which nothing goes on.
place_bun() {
  local program
  "$bun" --version >/dev/null 2>&1 9>&- && return
  for program in "$root"/node_modules/@oven/bun-*/bin/bun; do
    if "$program" --version >/dev/null 2>&1 9>&-; then
      ln -sf "../../@oven/$(basename "$(dirname "$(dirname "$program")")")/bin/bun" \
        "$root/node_modules/bun/bin/bun.exe"
      return
    fi
  done
  die "no Bun in node_modules runs on this machine ($(uname -sm)): see https://bun.com/docs/installation for what it needs"
}

install_modules_locked() {
  modules_current && return
  say "installing the packages of package-lock.json"
  # --include=dev: everything is a development dependency, since what is published needs none of it.
  if have npm; then
    (cd "$root" && npm ci --include=dev --no-audit --no-fund --loglevel=error >&2) 9>&-
  elif have bun; then
    # --no-save: reads package-lock.json, and leaves no lock file of its own beside it.
    (cd "$root" && bun install --no-save >&2) 9>&-
  else
    die "neither npm nor bun is here: install Node.js with npm, or Bun, and try again"
  fi
  place_bun
  modules_wanted >"$root/node_modules/.installed"
}

# Installs node_modules as package-lock.json says, unless it is there.
install_modules() {
  modules_current || with_lock install install_modules_locked
}

# The deno that package.json pins, wherever its package keeps it.
deno_path() {
  local program
  for program in "$root"/node_modules/deno/deno "$root"/node_modules/@deno/*/deno; do
    if [[ -x $program ]]; then
      printf '%s\n' "$program"
      return
    fi
  done
  die "no deno in node_modules for this machine ($(uname -sm)); remove node_modules and try again"
}

apt_install_locked() {
  say "installing $* by apt-get"
  export DEBIAN_FRONTEND=noninteractive
  # First with the package lists there are, which is quick, then with fresh ones. The options stand
  # for people's absence: no questions, and patience with another apt-get at work.
  local options=(-y -q -o DPkg::Lock::Timeout=300 --no-install-recommends)
  apt-get install "${options[@]}" "$@" >&2 9>&- 2>/dev/null && return
  apt-get update -q >&2 9>&-
  apt-get install "${options[@]}" "$@" >&2 9>&-
}

# install_commands COMMAND=PACKAGE…: each command that is missing is installed by Debian's package
# manager, where it is here and we are root; else an error that names what to install.
install_commands() {
  local pair packages=()
  for pair in "$@"; do
    have "${pair%%=*}" || packages+=("${pair#*=}")
  done
  ((${#packages[@]} == 0)) && return
  if ((EUID != 0)) || ! have apt-get; then
    die "please install ${packages[*]}, which is missing here: it takes root and apt-get to do it by this script"
  fi
  with_lock apt apt_install_locked "${packages[@]}"
}

# What the executable is made of; a changed checksum is a reason to build.
build_wanted() {
  (
    cd "$root"
    {
      find src -type f -print0 | sort -z | xargs -0 sha256sum
      sha256sum package.json package-lock.json scripts/lib.sh
    } | checksum
  )
}
build_current() {
  [[ -x $root/dist/agent ]] && [[ $(cat "$root/dist/.built" 2>/dev/null) == "$(build_wanted)" ]]
}

# The executable is closed against its surroundings: whoever guards a write from a directory that
# others can write must not run what they planted there. So: no .env and no bunfig.toml of the
# working directory; no code made from strings (nor from files, nor by the inspector, so that a
# program with its variables set refuses to start), no native add-ons, no packages fetched at run
# time; and the system's certificate authorities, which a compiled program would not know. The `--`
# at the end keeps what BUN_OPTIONS puts in front of these from counting as options. Only
# BUN_BE_BUN=1 still makes another program of it.
#
# --splitting: without it, whatever any module imports of the runtime is loaded at every start.
compile_agent() {
  "$bun" build "$root/src/main.ts" --compile --outfile "$1" \
    --minify --bytecode --format=esm --splitting \
    --no-compile-autoload-dotenv --no-compile-autoload-bunfig \
    --no-compile-autoload-tsconfig --no-compile-autoload-package-json \
    --compile-exec-argv="--disallow-code-generation-from-strings=strict --no-addons --no-install --use-system-ca --" \
    9>&- >/dev/null
}

build_agent_locked() {
  local wanted scratch
  build_current && return
  say "compiling dist/agent"
  wanted=$(build_wanted)
  scratch=$(mktemp -d "$root/.cache/build.XXXXXX")
  # The compiler leaves scratch files in its working directory when it is stopped.
  if ! (cd "$scratch" && compile_agent "$scratch/agent"); then
    rm -rf "$scratch"
    die "dist/agent could not be compiled: see above"
  fi
  mkdir -p "$root/dist"
  # Renamed into place: a running agent keeps its own, and nobody sees half a file.
  mv -f "$scratch/agent" "$root/dist/agent"
  printf '%s\n' "$wanted" >"$root/dist/.built"
  rm -rf "$scratch"
}

# Makes dist/agent, unless it is made of the present sources.
build_agent() {
  install_modules
  build_current || with_lock build build_agent_locked
}
