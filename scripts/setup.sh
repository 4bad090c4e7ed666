# Sourced by scripts/run, scripts/test and scripts/bench. `prepare LOCK` sets up what is missing
# (bubblewrap, an interpreter that every uid may read, a virtual environment with the packages of
# requirements/LOCK.txt) and sets `root` and `python`. Quick when nothing is missing; safe when
# several run at once. Nothing of the caller's PATH or site is used or changed.
# shellcheck shell=bash

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P)
python=''

say() { printf 'certosa: %s\n' "$*" >&2; }
fail() {
  say "$*"
  exit 1
}

prepare() { # prepare LOCK
  local lock=$root/requirements/$1.txt base key venv candidate
  base=$(venv_base)
  command -v bwrap >/dev/null || install_packages bubblewrap bubblewrap
  key=$(sha256sum "$lock") || fail "$lock cannot be read"
  for candidate in $(interpreters); do
    venv=$base/venv-$1-${key:0:12}-${candidate##*/}
    if [[ -e $venv/.ready && -x $venv/bin/python ]]; then
      python=$venv/bin/python
      return
    fi
  done
  candidate=$(choose_interpreter)
  venv=$base/venv-$1-${key:0:12}-${candidate##*/}
  build_venv "$candidate" "$lock" "$venv"
  python=$venv/bin/python
}

# A root server's own processes run as other uids, so root's environments lie where all may read.
venv_base() {
  if ((EUID == 0)); then
    echo /var/lib/certosa
  elif [[ -n ${XDG_CACHE_HOME:-} || -w ${HOME:-} ]]; then
    echo "${XDG_CACHE_HOME:-$HOME/.cache}/certosa"
  else
    echo "$root/.venv"
  fi
}

# The interpreters to choose from, links resolved. Only the system's own places: a jail of another
# uid has to read them, and what PATH finds may lie in somebody's home.
interpreters() {
  local found
  for found in /usr/bin/python3 /usr/bin/python3.1[1-9] /usr/local/bin/python3.1[1-9]; do
    [[ -x $found ]] && readlink -f -- "$found"
  done
}

usable() { # usable INTERPRETER: new enough, with venv and pip's wheel, readable by every uid
  "$1" -I -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || return
  if ((EUID == 0)) && command -v setpriv >/dev/null; then
    # By way of env: setpriv itself still has root's capabilities when it looks for the program.
    setpriv --reuid 65534 --regid 65534 --clear-groups -- env "$1" -I -c '' 2>/dev/null
  fi
}

choose_interpreter() {
  local candidate attempt
  for attempt in as-it-is installed; do
    for candidate in $(interpreters); do
      if usable "$candidate"; then
        echo "$candidate"
        return
      fi
    done
    [[ $attempt == installed ]] || install_packages "Python 3.11 or newer with venv" python >&2
  done
  fail "no usable Python: install Python 3.11 or newer, with venv, as /usr/bin/python3"
}

install_packages() { # install_packages WHAT bubblewrap|python
  local -a names=("$2") sudo=()
  if ((EUID != 0)); then
    command -v sudo >/dev/null || fail "$1 is missing and there is no sudo: install it as root"
    sudo=(sudo)
    [[ -t 0 ]] || sudo=(sudo -n) # nobody could type the password
  fi
  say "installing $1"
  if command -v apt-get >/dev/null; then
    [[ $2 == python ]] && names=(python3 python3-venv)
    local -a get=("${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300)
    # The lists may be missing or old: they are fetched only where the first try shows it.
    "${get[@]}" install -y --no-install-recommends "${names[@]}" >/dev/null 2>&1 ||
      { "${get[@]}" update && "${get[@]}" install -y --no-install-recommends "${names[@]}"; } >&2 ||
      fail "apt-get could not install ${names[*]}: see above"
  elif command -v dnf >/dev/null; then
    [[ $2 == python ]] && names=(python3.12)
    "${sudo[@]}" dnf -q -y install "${names[@]}" >&2 || fail "dnf could not install ${names[*]}"
  elif command -v pacman >/dev/null; then
    "${sudo[@]}" pacman -S --noconfirm --needed "${names[@]}" >&2 || fail "pacman could not install ${names[*]}"
  elif command -v zypper >/dev/null; then
    [[ $2 == python ]] && names=(python312)
    "${sudo[@]}" zypper -q -n install "${names[@]}" >&2 || fail "zypper could not install ${names[*]}"
  elif command -v apk >/dev/null; then
    [[ $2 == python ]] && names=(python3)
    "${sudo[@]}" apk add -q "${names[@]}" >&2 || fail "apk could not install ${names[*]}"
  else
    fail "$1 is missing and no package manager is known here: install it, then try again"
  fi
  hash -r
}

# For the tests of grafana/: Debian's package, unpacked and not installed, so that no service begins.
# Where it cannot be had they are skipped, and say so.
fetch_prometheus() {
  local place
  place=$(venv_base)/prometheus
  if ! command -v prometheus >/dev/null && [[ ! -x $place/usr/bin/prometheus ]]; then
    unpack_prometheus "$place" || say "Prometheus cannot be had: tests of grafana/ are skipped"
  fi
  export CERTOSA_PROMETHEUS=$place/usr/bin
}

unpack_prometheus() ( # unpack_prometheus PLACE
  command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || return 1
  local fresh
  fresh=$(mktemp -d -- "$1.XXXXXX") || return 1
  trap 'rm -rf -- "$fresh"' EXIT
  cd -- "$fresh" || return 1
  say 'fetching Prometheus (once)'
  timeout 300 apt-get -qq download prometheus >/dev/null 2>&1 ||
    { ((EUID == 0)) && timeout 300 apt-get -qq update >/dev/null && timeout 300 apt-get -qq download prometheus >&2; } ||
    return 1
  dpkg-deb -x prometheus_*.deb unpacked && mkdir -p -- "$1" && cp -rT -- unpacked "$1"
)

build_venv() ( # build_venv INTERPRETER LOCK VENV; a subshell, so the lock ends with it
  umask 022
  [[ -d ${3%/*} ]] || mkdir -p -- "${3%/*}"
  exec 9>"$3.lock"
  flock -w 1800 9 || fail "another setup holds $3.lock for half an hour: end it, then try again"
  [[ -e $3/.ready ]] && return # somebody else built it while we waited
  say "setting up $3 (once)"
  rm -rf -- "$3"
  "$1" -I -m venv --without-pip "$3"
  # pip runs from the wheel that venv would install, which saves installing and compiling it.
  local wheel
  wheel=$("$1" -I -c '
import ensurepip, glob, os, sysconfig
places = [sysconfig.get_config_var("WHEEL_PKG_DIR"), "/usr/share/python-wheels",
          os.path.join(os.path.dirname(ensurepip.__file__), "_bundled")]
print(next((w for p in places if p for w in sorted(glob.glob(os.path.join(p, "pip-*.whl")))), ""))')
  local -a pip=("$3/bin/python" -I "$wheel/pip")
  if [[ -z $wheel ]]; then
    "$3/bin/python" -I -m ensurepip >/dev/null
    pip=("$3/bin/python" -I -m pip)
  fi
  env -u PIP_USER -u PIP_TARGET -u PIP_PREFIX -u PIP_REQUIREMENT "${pip[@]}" install -qq \
    --disable-pip-version-check --no-input --no-compile --require-hashes --only-binary :all: -r "$2" ||
    fail "the packages of $2 could not be installed: see above; the network may be missing"
  # Core and egress may not write here, so they would compile all of it at every start.
  "$3/bin/python" -I -m compileall -q -j 0 -x '/(tests?|pycparser|cffi)/' "$3/lib" >/dev/null || true
  : >"$3/.ready"
)

# Runs PYTHON-CODE with this checkout importable, isolated from the caller's own Python settings.
start() { # start CODE [ARGUMENT ...]
  local -a options=(-I)
  [[ -O $root ]] || options+=(-B) # no compiled files of ours in somebody else's checkout
  local code=$1
  shift
  exec "$python" "${options[@]}" -c "import sys; sys.path.insert(0, sys.argv.pop(1)); $code" "$root" "$@"
}
