#!/usr/bin/env bash
# Installs the Debian/Ubuntu packages that weft's build needs and this machine lacks, and only those.
#
#   tools/bootstrap.sh [--retry]         what `make build`, `make run` and `make test` need
#   tools/bootstrap.sh check [--retry]   also clang 19 and its tools, for `make check` and `make format`
#   tools/bootstrap.sh bench [--retry]   also OpenBLAS, which `make bench` measures beside weft
#   tools/bootstrap.sh compiler          prints the C++ compiler to build with
#
# Needs root or password-free sudo to install; elsewhere it prints the commands to run. Exit status 1 only when
# something is missing that the build cannot do without. Once done it is silent and touches nothing, until this file
# or tools/packages.lock changes.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$root/build
group=build
retry=
for argument in "$@"; do
  case $argument in
    check | bench | compiler) group=$argument ;;
    --retry) retry=yes ;;
    *) sed -n '2,7s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
  esac
done

say() { echo "weft: $*" >&2; }
have() { command -v "$1" >/dev/null 2>&1; }
any_of() { compgen -G "$1" >/dev/null; }
header() { any_of "/usr/include/$1" || any_of "/usr/local/include/$1"; }
library() { any_of "/usr/lib*/$1" || any_of "/usr/lib/*/$1" || any_of "/usr/local/lib*/$1"; }

# The user's CXX, else the first g++ that knows enough C++20 (Ubuntu 22.04's plain g++ is 11).
compiler() {
  if [[ -n ${CXX:-} ]]; then echo "$CXX"; return; fi
  local name major
  for name in g++ g++-{15,14,13,12}; do
    have "$name" || continue
    major=$("$name" -dumpversion)
    if ((${major%%.*} >= 12)); then echo "$name"; return; fi
  done
  return 1
}
if [[ $group == compiler ]]; then compiler; exit; fi

# --- already done? -------------------------------------------------------------------------------------------------
stamp=$build/.bootstrap
[[ $group == build ]] || stamp+=-$group
key=$(cat "$root/tools/bootstrap.sh" "$root/tools/packages.lock" /etc/os-release 2>/dev/null | sha256sum)
read -r done_key 2>/dev/null <"$stamp" || done_key=
if [[ $done_key == "$key" ]]; then
  touch "$stamp"
  exit 0
fi
# Something optional could not be installed: not tried again for an hour, so that an offline `make run` starts at once.
if [[ -z $retry && -n $(find "$stamp-incomplete" -mmin -60 2>/dev/null) && $(<"$stamp-incomplete") == "$key" ]]; then
  exit 0
fi

# --- what is missing -----------------------------------------------------------------------------------------------
os=$(. /etc/os-release 2>/dev/null && echo "${ID:-} ${VERSION_ID:-}" || true)
required=() optional=() mesa=

needs() { # needs required|optional PACKAGE TEST...
  local -n list=$1
  "${@:3}" || list+=("$2")
}
gxx=g++
[[ $os == "ubuntu 22.04" ]] && gxx=g++-12

has_fuzzer() { compgen -G '/usr/lib/llvm-19/lib/clang/19/lib/*/libclang_rt.fuzzer*.a' >/dev/null; }
has_pip() { have python3 && python3 -c 'import pip' 2>/dev/null; }
# Dawn does not accept the software Vulkan of Mesa 22 (Debian 12's own); a newer one, wherever from, is left alone.
has_lavapipe() {
  any_of '/usr/share/vulkan/icd.d/lvp_icd*.json' || return 1
  [[ $os == "debian 12" ]] || return 0
  local version
  version=$(dpkg-query -W -f '${Version}' mesa-vulkan-drivers 2>/dev/null) || return 0
  dpkg --compare-versions "$version" ge 24
}

find_missing() {
  required=() optional=() mesa=
  needs required "$gxx" compiler >/dev/null
  needs required cmake have cmake
  needs required ninja-build have ninja
  needs required libfmt-dev header fmt/core.h
  needs required libhwy-dev header hwy/highway.h
  needs required libcli11-dev header CLI/CLI.hpp
  needs required nlohmann-json3-dev header nlohmann/json.hpp
  needs required doctest-dev header doctest/doctest.h
  needs optional libbenchmark-dev header benchmark/benchmark.h
  needs optional ccache have ccache
  needs optional libvulkan1 library libvulkan.so.1
  needs optional python3 have python3
  needs optional python3-pip has_pip
  needs optional curl have curl
  needs optional ca-certificates test -e /etc/ssl/certs/ca-certificates.crt
  has_lavapipe || mesa="mesa-vulkan-drivers"
  if [[ $group == check ]]; then
    needs required clang-19 have clang++-19
    needs required libclang-rt-19-dev has_fuzzer
    needs required clang-format-19 have clang-format-19
    needs required clang-tidy-19 have clang-tidy-19
  fi
  [[ $group != bench ]] || needs optional libopenblas0-pthread library libopenblas.so.0
}

# --- apt -----------------------------------------------------------------------------------------------------------
# Mesa from backports on Debian 12: the entry is the machine's own "bookworm" entry with another suite.
backports_configured() {
  grep -qsE '^[^#]*bookworm-backports' /etc/apt/sources.list /etc/apt/sources.list.d/*.{list,sources}
}
backports_entry() {
  local file entry
  for file in /etc/apt/sources.list.d/*.sources; do
    [[ -e $file ]] || continue
    entry=$(awk 'BEGIN { RS = "" }
      /(^|\n)Types:[^\n]*deb/ && /(^|\n)Suites:([^\n]* )?bookworm(-updates)?( |\n|$)/ && !/(^|\n)Enabled: *no/ {
        sub(/Types:[^\n]*/, "Types: deb"); sub(/Suites:[^\n]*/, "Suites: bookworm-backports"); print; exit }' "$file")
    if [[ -n $entry ]]; then echo "$entry"; return; fi
  done
  for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
    [[ -e $file ]] || continue
    entry=$(awk '$1 == "deb" && / bookworm / { sub(/ bookworm /, " bookworm-backports "); print; exit }' "$file")
    if [[ -n $entry ]]; then echo "$entry"; return; fi
  done
  return 1
}
backports_file() { # the format is known by the file's ending
  if [[ $1 == deb\ * ]]; then echo /etc/apt/sources.list.d/bookworm-backports.list
  else echo /etc/apt/sources.list.d/bookworm-backports.sources; fi
}
mesa_from=()
[[ $os == "debian 12" ]] && mesa_from=(-t bookworm-backports)

as_root() {
  local with=(env DEBIAN_FRONTEND=noninteractive) # sudo drops the proxy settings
  with+=(${http_proxy:+http_proxy="$http_proxy"} ${https_proxy:+https_proxy="$https_proxy"})
  if ((EUID == 0)); then "${with[@]}" "$@"; else sudo -n "${with[@]}" "$@"; fi
}
may_install() { have apt-get && { ((EUID == 0)) || { have sudo && sudo -n true 2>/dev/null; }; }; }
apt_get() { as_root apt-get -y -o DPkg::Lock::Timeout=300 -o Acquire::Retries=1 "$@" >>"$log" 2>&1; }
apt_update() { apt_get -o APT::Update::Error-Mode=any update; } # also fail when a source cannot be reached
apt_install() { apt_get install --no-install-recommends "$@"; }

install_mesa() {
  local entry file=
  if [[ $os == "debian 12" ]] && ! backports_configured; then
    if ! entry=$(backports_entry); then
      echo "no bookworm entry found in the apt sources to derive backports from" >>"$log"
      return 1
    fi
    file=$(backports_file "$entry")
    as_root tee "$file" <<<"$entry" >/dev/null
    apt_update || true
  fi
  if ! apt_install "${mesa_from[@]}" mesa-vulkan-drivers; then
    [[ -z $file ]] || as_root rm -f "$file" # a mirror without backports must not leave apt broken
    return 1
  fi
}

install_missing() {
  say "installing" "${required[@]}" "${optional[@]}" ${mesa:+"$mesa"} "(log: ${log#"$root"/})"
  apt_update || say "apt-get update failed: $(grep -m1 '^[EW]:' "$log" || tail -n1 "$log")"
  local package packages=("${required[@]}" "${optional[@]}")
  if ((${#packages[@]})) && ! apt_install "${packages[@]}"; then
    # One unknown or broken package must not keep the others away.
    for package in "${packages[@]}"; do apt_install "$package" || true; done
  fi
  if [[ -n $mesa ]]; then install_mesa || true; fi
}

print_commands() {
  local packages=("${required[@]}" "${optional[@]}") entry
  local sudo="sudo "
  ((EUID == 0)) && sudo=
  if ! have apt-get; then
    echo "  install these, under the names of this system: ${packages[*]} $mesa"
    return
  fi
  if [[ -n $mesa && $os == "debian 12" ]] && ! backports_configured && entry=$(backports_entry); then
    echo "  ${sudo}tee $(backports_file "$entry") <<'END'"
    echo "$entry"
    echo "END"
  fi
  echo "  ${sudo}apt-get update"
  local install="  ${sudo}apt-get install -y --no-install-recommends"
  if ((${#packages[@]})); then echo "$install" "${packages[@]}"; fi
  if [[ -n $mesa ]]; then echo "$install" "${mesa_from[@]}" "$mesa"; fi
}

# --- do it ---------------------------------------------------------------------------------------------------------
mkdir -p "$build"
log=$build/bootstrap.log
find_missing
if ((${#required[@]} + ${#optional[@]})) || [[ -n $mesa ]]; then
  if may_install; then
    : >"$log"
    install_missing
    hash -r
    find_missing
    why="-- could not be installed ($(grep -m1 '^E:' "$log" || echo "see ${log#"$root"/}"))"
  elif have apt-get; then
    why="-- missing, and this user may not install (neither root nor password-free sudo)"
  else
    why="-- missing, and this system has no apt-get"
  fi
fi

if ((${#required[@]} + ${#optional[@]})) || [[ -n $mesa ]]; then
  say "${required[@]}" "${optional[@]}" ${mesa:+"$mesa"} "$why. To install, run:"
  print_commands >&2
  if ((${#required[@]})); then
    say "cannot build without: ${required[*]}"
    exit 1
  fi
  say "going on without; what is missing is not needed to build weft for the CPU"
  echo "$key" >"$stamp-incomplete"
else
  echo "$key" >"$stamp"
  rm -f "$stamp-incomplete"
fi
if ((EUID == 0)); then # a later build by the tree's owner must be able to write here
  chown --reference="$root" "$build" "$build"/.bootstrap* 2>/dev/null || true
  if [[ -e $log ]]; then chown --reference="$root" "$log" || true; fi
fi
