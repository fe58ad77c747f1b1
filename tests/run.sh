#!/usr/bin/env bash
# Runs every test program and closes with one line: N passed, N failed, N skipped
#
#   tests/run.sh BUILD_DIR[=SUITES]...     e.g. tests/run.sh build-asan 'build-tsan=base*'
#
# A test program prints its own such line at the end. One that dies, hangs or exits with an error without having
# counted a failure counts as one failed.
set -uo pipefail

limit=${TEST_TIMEOUT:-3600} # seconds for one program: llvmpipe compiles all kernels anew on a machine that has seen none
passed=0 failed=0 skipped=0

run() { # run NAME COMMAND...
  local name=$1 counts status p f s
  shift
  # The program's closing line gets its name in front: only the sum may look like the end.
  counts=$(mktemp)
  timeout --foreground -k 10 "$limit" "$@" 2>&1 | awk -v name="$name" -v counts="$counts" '
    /^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$/ { print $1, $3, $5 > counts; print name ": " $0; next }
    { print } { fflush() }'
  status=${PIPESTATUS[0]}
  if ((status == 130)); then rm -f "$counts"; exit 130; fi # Ctrl-C
  read -r p f s < <(tail -n 1 "$counts") || p=
  rm -f "$counts"
  if [[ -z $p ]]; then
    echo "$name: ended with status $status before its result"
    p=0 f=1 s=0
  elif ((status == 124 || status == 137)); then
    echo "$name: stopped after $limit s"
    f=$((f + 1))
  elif ((status != 0 && f == 0)); then
    echo "$name: exit status $status although no test failed"
    f=1
  fi
  passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
}

if (($# == 0)); then
  sed -n '2,4s/^# \{0,1\}//p' "$0" >&2
  exit 2
fi
for argument in "$@"; do
  folder=${argument%%=*}
  suites=()
  [[ $argument == *=* ]] && suites=("--test-suite=${argument#*=}")
  run "$folder/weft_tests" "$folder/weft_tests" "${suites[@]}"
done

echo "$passed passed, $failed failed, $skipped skipped"
((failed == 0))
