#!/usr/bin/env bash
# Runs test programs side by side and closes with one line: N passed, N failed, N skipped
#
#   tests/run.sh 'BUILD_DIR [OPTION]...'...     e.g. tests/run.sh 'build -ts=gpu*' 'build -tse=gpu*'; doctest's options
#
# A test program prints its own such line at the end. One that dies, hangs or exits with an error without having
# counted a failure counts as one failed.
set -uo pipefail

limit=${TEST_TIMEOUT:-3600} # seconds for one program: llvmpipe compiles all kernels anew on a machine that has seen none
results=$(mktemp -d)
trap 'rm -rf "$results"' EXIT
trap 'trap - INT; kill 0; exit 130' INT

run() { # run NUMBER NAME COMMAND...: what it counts goes into a file of the results
  local number=$1 name=$2 counts=$results/counts.$1 status p f s
  shift 2
  # The program's closing line gets its name in front: only the sum may look like the end.
  timeout --foreground -k 10 "$limit" "$@" 2>&1 | awk -v name="$name" -v counts="$counts" '
    /^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$/ { print $1, $3, $5 > counts; print name ": " $0; next }
    { print } { fflush() }'
  status=${PIPESTATUS[0]}
  read -r p f s < <(tail -n 1 "$counts" 2>/dev/null) || p=
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
  echo "$p $f $s" > "$results/$number"
}

if (($# == 0)); then
  sed -n '2,4s/^# \{0,1\}//p' "$0" >&2
  exit 2
fi
number=0
for argument in "$@"; do
  read -ra words <<< "$argument"
  number=$((number + 1))
  run "$number" "$argument" "${words[0]}/weft_tests" "${words[@]:1}" &
done
wait

passed=0 failed=0 skipped=0
for ((i = 1; i <= number; ++i)); do
  read -r p f s < "$results/$i" || p=0 f=1 s=0
  passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
done
echo "$passed passed, $failed failed, $skipped skipped"
((failed == 0))
