#!/usr/bin/env bash
# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
set -uo pipefail

usage() {
  cat <<'HELP'
Builds and tests Basin as CI does. Stages run in this order; a failed stage does not stop the next,
and the exit status is 1 if anything failed.

  setup     installs missing packages (scripts/setup.sh)
  lint      clang-format, ruff, mypy; clang-tidy on the files of the last 100 commits
  release   hardened release build; all tests except nightly ones
  frameworks
            nightly: the tests of Lightning, Accelerate, Transformers, JAX, TensorFlow and Keras, in
            an environment of their own, and of MXNet in another one (scripts/setup.sh
            --frameworks); else skipped
  asan      AddressSanitizer + UndefinedBehaviorSanitizer; all tests except long ones, those of the
            stage tsan and those of modelled worlds
  tsan      ThreadSanitizer; the tests with the label `tsan`
  fuzz      libFuzzer in the build of the stage asan; 5 s per target, starting from the committed
            corpus
  alone     nightly: the debug build, which compiles each file alone
  sid       nightly: the release build with a current gRPC, in a root of Debian sid
            (scripts/in-sid.sh), and the tests of what uses gRPC; needs root
  coverage  nightly: line coverage of aggregator/core and client/core; at least 95 % each
  bench     the main benchmarks, short; the numbers are reported, not asserted

usage: scripts/test.sh [--fast | --nightly] [--only STAGE]... [--jobs N] [--help]

  --fast        setup, lint without clang-tidy, and release without the long tests
  --nightly     also the nightly stages and tests, all tests under AddressSanitizer, headers that
                compile alone, clang-tidy on all files, tests too, and with its static analyzer,
                600 s per fuzz target, and all benchmarks with their full times
  --only STAGE  only this stage; may be repeated; stages still run in the order above
  --jobs N      parallel jobs (default: the number of processors)

Logs, JUnit files, the coverage table and the table of stages (stages.txt) go to build/reports/.

examples:
  scripts/test.sh --fast                    # before a commit
  scripts/test.sh                           # what CI runs
  scripts/test.sh --only lint               # style only
  scripts/test.sh --only asan --only tsan   # the sanitizers
  scripts/test.sh --nightly                 # everything
HELP
}

readonly STAGES=(setup lint release frameworks asan tsan fuzz alone sid coverage bench)

mode=normal
jobs="$(nproc)"
selected=()
while (($#)); do
  case "$1" in
    --fast) mode=fast ;;
    --nightly) mode=nightly ;;
    --only)
      [[ " ${STAGES[*]} " == *" ${2-} "* ]] || {
        echo "test: --only needs one of: ${STAGES[*]}" >&2
        exit 2
      }
      selected+=("$2")
      shift
      ;;
    --jobs)
      [[ "${2-}" =~ ^[1-9][0-9]*$ ]] || {
        echo "test: --jobs needs a number" >&2
        exit 2
      }
      jobs="$2"
      shift
      ;;
    --help | -h)
      usage
      exit 0
      ;;
    *)
      echo "test: unknown argument: $1 (see --help)" >&2
      exit 2
      ;;
  esac
  shift
done
if ((${#selected[@]} == 0)); then
  case "$mode" in
    fast) selected=(setup lint release) ;;
    normal) selected=(setup lint release asan tsan fuzz bench) ;;
    nightly) selected=("${STAGES[@]}") ;;
  esac
fi

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
readonly root
cd "$root" || exit 1
readonly reports="$root/build/reports"
readonly python="$root/.venv/bin/python3"
mkdir -p "$reports"
rm -f "$reports"/*

# Trees in different folders share the cache of compilations.
export CCACHE_BASEDIR="$root" CCACHE_NOHASHDIR=1
# Every commit, and every night, is simulated with different seeds; the test prints them.
if [[ "$mode" == nightly ]]; then
  FRESH_SEEDS_FROM="$(date +%s)000000"
else
  FRESH_SEEDS_FROM="$((16#$(git rev-parse HEAD 2>/dev/null | cut -c1-8 || echo 0) + 1))"
fi
export FRESH_SEEDS_FROM
# An error stops the test at once with a stack trace.
export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
export ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1
export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1
if command -v llvm-symbolizer-14 >/dev/null; then
  ASAN_SYMBOLIZER_PATH="$(command -v llvm-symbolizer-14)"
  export ASAN_SYMBOLIZER_PATH
  TSAN_OPTIONS+=":external_symbolizer_path=$ASAN_SYMBOLIZER_PATH"
fi

# ---- Steps --------------------------------------------------------------------------------------
#
# A stage is a list of steps. Each step has its own log file, the end of which is shown if the step
# fails. `results` collects lines `stage outcome count name`, which the summary adds up.

readonly results="$reports/results.txt" failures="$reports/failures.txt"
: >"$results"
: >"$failures"
stage=

record() { # outcome count name
  echo "$stage $1 $2 $3" >>"$results"
}

# Sets cpu_seconds to the CPU time of this shell's children so far, in seconds.
read_cpu_seconds() {
  # It must run in this shell, not in a pipe.
  times >"$reports/times"
  cpu_seconds="$(awk 'NR == 2 { split($1, u, /[ms]/); split($2, s, /[ms]/)
                      printf "%d", 60 * (u[1] + s[1]) + u[2] + s[2] }' "$reports/times")"
  rm "$reports/times"
}

# Runs a command as a named step; returns its status and counts nothing.
step() { # name command...
  local name="$1" log="$reports/$stage-$1.log" start=$SECONDS start_cpu status=0
  shift
  read_cpu_seconds
  start_cpu="$cpu_seconds"
  "$@" >"$log" 2>&1 </dev/null || status=$?
  read_cpu_seconds
  printf '  %-10s %-24s %4d s %5d CPU s' \
    "$stage" "$name" $((SECONDS - start)) $((cpu_seconds - start_cpu))
  if ((status == 0)); then
    echo
  else
    echo "  FAILED (exit $status)"
    tail -n 60 "$log" | sed 's/^/    | /'
    echo "    | (whole log: ${log#"$root"/})"
  fi
  return "$status"
}

# Counts a failed step, and keeps the end of its log for the end of the run.
record_failed() { # name
  record failed 1 "$1"
  {
    echo "$stage $1:"
    tail -n 25 "$reports/$stage-$1.log" | sed 's/^/  /'
  } >>"$failures"
}

# A step that is not a test: counted only if it fails.
required() { # name command...
  step "$@" || {
    record_failed "$1"
    return 1
  }
}

# A step that is a check: counted as one test.
check() { # name command...
  if step "$@"; then record passed 1 "$1"; else record_failed "$1"; fi
}

skip() { # name reason...
  record skipped 1 "$1 (${*:2})"
  printf '  %-10s %-24s SKIPPED: %s\n' "$stage" "$1" "${*:2}"
}

# ---- Parts of stages ----------------------------------------------------------------------------

has_target() { # preset target
  ninja -C "build/$1" -t query "$2" >/dev/null 2>&1
}

configure_and_build() { # preset [target...]
  local preset="$1"
  shift
  required configure cmake --preset "$preset" "${configure_arguments[@]}" &&
    required build ninja -C "build/$preset" -j "$jobs" "$@"
}

# Runs ctest and counts the test cases in its report. `within` is a command that runs it elsewhere.
within=()
run_ctest() { # preset ctest-argument...
  local preset="$1" junit="$reports/$stage.xml"
  shift
  # Many tests wait more than they compute.
  step test "${within[@]}" ctest --test-dir "build/$preset" -j $((jobs + 6)) --output-on-failure \
    --output-junit "$junit" --test-output-size-passed 4000000 \
    --test-output-size-failed 4000000 --no-tests=error "$@"
  local status=$?
  if ! "$python" scripts/count-tests.py --stage "$stage" --ctest-status "$status" \
    --results "$results" --failures "$failures" "$junit"; then
    record failed 1 "count-tests"
  fi
}

# ---- Stages -------------------------------------------------------------------------------------

configure_arguments=()

stage_setup() {
  local more=()
  [[ "$mode" == nightly ]] && more=(--nightly --frameworks)
  check setup scripts/setup.sh "${more[@]}"
}

cpp_sources() { # suffix-pattern folder...
  local pattern="$1"
  shift
  git ls-files -co --exclude-standard -- "$@" | grep -E "$pattern" |
    while read -r file; do [[ -f "$file" ]] && echo "$file"; done
}

check_format() {
  cpp_sources '\.(h|cc|cu|cuh)$' . | xargs -r clang-format-14 --dry-run --Werror
}

# Compiles each header alone, except Highway's -inl.h files, which only other headers include, and
# headers that their own source includes first, which every build checks.
check_headers() {
  # shellcheck disable=SC2016  # expanded by the inner shell
  cpp_sources '\.h$' protocol proto kernels runtime accelerator aggregator client |
    grep -v -e '-inl\.h$' |
    xargs -r -P "$jobs" -I{} sh -c \
      'grep -s -m 1 "^#include" "${1%.h}.cc" | grep -q -F "\"$1\"" && exit 0
       clang++-14 -std=c++17 -Wall -Wextra -Werror -Wno-pragma-once-outside-header \
         -I. -Ibuild/release/proto/basin/generated -Iclient/c/include -Iclient/cpp/include \
         -fsyntax-only -x c++-header "$1" ||
       { echo "$1 does not compile alone"; exit 1; }' _ {}
}

# Only the nightly run includes all files, the static analyzer, which takes three quarters of
# clang-tidy's time, and the tests, which need no checks of performance.
check_tidy() {
  if [[ "$mode" == nightly ]]; then
    run_tidy '' '^(?!.*/(examples|generated|tests)/).*\.(cc|cxx)$' &&
      run_tidy '-performance-*' '^(?!.*/(examples|generated)/).*/tests/.*\.(cc|cxx)$'
  else
    run_tidy '-clang-analyzer-*' '^(?!.*/(examples|generated|tests)/).*\.(cc|cxx)$' --commits 100
  fi
}

run_tidy() { # checks files argument...
  "$python" scripts/run-clang-tidy.py --build build/release --jobs "$jobs" --checks="$1" "${@:2}"
}

stage_lint() {
  check clang-format check_format
  check ruff .venv/bin/ruff check --no-cache .
  check ruff-format .venv/bin/ruff format --no-cache --check .
  check mypy .venv/bin/mypy --no-incremental
  [[ "$mode" == fast ]] && return
  # What is checked includes generated headers.
  required configure cmake --preset release || return
  required generate ninja -C build/release -j "$jobs" basin_generated || return
  check clang-tidy check_tidy
  if [[ "$mode" == nightly ]]; then
    check headers check_headers
  fi
}

stage_release() {
  configure_and_build release || return
  case "$mode" in
    fast) run_ctest release -LE '^(long|nightly|frameworks)$' ;;
    normal) run_ctest release -LE '^(nightly|frameworks)$' ;;
    nightly) run_ctest release -LE '^frameworks$' ;;
  esac
}

stage_frameworks() {
  required configure cmake --preset release &&
    required build ninja -C build/release -j "$jobs" basind basin_c || return
  run_ctest release -L '^frameworks$'
}

stage_asan() {
  configure_arguments=('-DBASIN_LEAVE_OUT=tsan;long;nightly;model' -DBASIN_SANITIZE_TESTS=OFF)
  [[ "$mode" == nightly ]] && configure_arguments=(-DBASIN_LEAVE_OUT= -DBASIN_SANITIZE_TESTS=ON)
  configure_and_build asan || return
  if [[ "$mode" == nightly ]]; then
    run_ctest asan -LE '^(tree|fuzz|frameworks)$'
  else
    run_ctest asan -LE '^(long|nightly|model|tree|fuzz|frameworks)$'
  fi
}

stage_tsan() {
  required configure cmake --preset tsan || return
  if ! has_target tsan tests-tsan; then
    skip tsan "no test has the label tsan"
    return
  fi
  required build ninja -C build/tsan -j "$jobs" tests-tsan || return
  run_ctest tsan -L '^tsan$' -LE '^(long|nightly)$'
}

stage_fuzz() {
  configure_arguments=(-DBASIN_FUZZ_SECONDS=)
  [[ "$mode" == nightly ]] && configure_arguments=(-DBASIN_FUZZ_SECONDS=600)
  required configure cmake --preset asan "${configure_arguments[@]}" || return
  if ! has_target asan tests-fuzz; then
    skip fuzz "there is no fuzz target"
    return
  fi
  required build ninja -C build/asan -j "$jobs" tests-fuzz || return
  run_ctest asan -L '^fuzz$'
}

# Detects missing includes.
stage_alone() {
  required configure cmake --preset debug || return
  check build ninja -C build/debug -j "$jobs"
}

# What faces gRPC and protobuf: the rest is the same code as in the other stages.
stage_sid() {
  local tests=(basin_aggregator_admin_test basin_aggregator_transport_test basin_client_grpc_test
    basin_joined_grpc_test basin_joined_tls_test basin_runtime_grpc_test)
  local status=0
  step root scripts/in-sid.sh dpkg-query --show 'libgrpc*' 'libprotobuf*' || status=$?
  if ((status == 75)); then
    skip sid "$(tail -n 1 "$reports/sid-root.log")"
    return
  fi
  ((status == 0)) || {
    record_failed root
    return
  }
  within=(scripts/in-sid.sh)
  required configure "${within[@]}" cmake --preset release -B build/sid -DBASIN_CUDA=OFF \
    -DPython3_EXECUTABLE=/usr/bin/python3 &&
    required build "${within[@]}" ninja -C build/sid -j "$jobs" basind basinctl basin_c \
      tests-proto "${tests[@]}" integration_trainer &&
    run_ctest sid -LE '^(long|nightly)$' \
      -R "^(proto_.*|$(IFS='|' && echo "${tests[*]}")|integration_(faults|timeline)_test)$"
  within=()
}

# Builds only the tests that exercise the cores.
stage_coverage() {
  required configure cmake --preset coverage || return
  # The report uses the folder names in the objects, so objects of another tree cannot be reused.
  required build env -u CCACHE_NOHASHDIR \
    ninja -C build/coverage -j "$jobs" basin_aggregator_core_test basin_client_core_test \
    tests-simulation || return
  rm -rf build/coverage/profiles
  LLVM_PROFILE_FILE="$root/build/coverage/profiles/%4m.profraw" \
    run_ctest coverage -R '^(basin_(aggregator|client)_core_test|basin_simul|simul)' \
    -LE '^(long|nightly)$'
  local core
  for core in aggregator/core client/core; do
    check "coverage-${core%%/*}" "$python" scripts/coverage-report.py \
      --build build/coverage --minimum 95 "$core"
    tail -n 1 "$reports/$stage-coverage-${core%%/*}.log" | sed 's/^/             /'
  done
}

stage_bench() {
  required configure cmake --preset release || return
  if ! has_target release benchmarks; then
    skip bench "there is no benchmark"
    return
  fi
  required build ninja -C build/release -j "$jobs" benchmarks allreduce || return
  local library=(--benchmark_min_time=0.05) kernels=(--rounds=1 --mib=96 --n=2,8)
  local allreduce=(--workers 2 --mib 64 --rounds 3) latency=(--workers 2 --latency --rounds 300)
  local step=(--workers 2 --models transformer --steps 8)
  if [[ "$mode" == nightly ]]; then
    library=() kernels=() allreduce=(--rounds 15 --repeats 3) latency=(--latency --rounds 3000)
    step=(--steps 30)
  fi
  report core_bench build/release/benchmarks/core_bench "${library[@]}"
  report coordinator_bench build/release/benchmarks/coordinator_bench
  report flood_bench build/release/benchmarks/flood_bench
  report share_bench build/release/benchmarks/share_bench
  report payload_bench build/release/benchmarks/payload_bench "${library[@]}"
  report kernels_bench build/release/benchmarks/kernels_bench "${kernels[@]}"
  report allreduce "$python" tests/bench/allreduce/allreduce.py "${allreduce[@]}"
  report allreduce-latency "$python" tests/bench/allreduce/allreduce.py "${latency[@]}"
  report step-time "$python" tests/bench/step/step_time.py "${step[@]}"
  [[ "$mode" == nightly ]] || return 0
  report many "$python" tests/bench/many/many.py
  report names "$python" tests/bench/names/names.py
  report timeline_bench build/release/benchmarks/timeline_bench
  report timeline-cost "$python" tests/bench/step/step_time.py --timeline --models 600x32,5M \
    --workers 2 --steps 30 --turns 9 --most 1
  report layerdrop "$python" tests/bench/layerdrop/layerdrop.py --steps 30
  report loss "$python" tests/bench/loss/loss.py --kills 20
  local missing
  if missing="$("$python" tests/bench/links/links.py --can-run)"; then
    report links "$python" tests/bench/links/links.py
    report links-shards "$python" tests/bench/links/links.py --shards 8 --workers 8 --rate 100 \
      --mib 64 --rounds 3
    report links-order "$python" tests/bench/links/links.py --order --workers 4 --streams 1 \
      --basind=--memory-frame=256KiB --rounds 9
  else
    skip links "$missing"
  fi
  report instructions "$python" tests/bench/instructions/instructions.py --check
}

# A check whose output is shown.
report() { # name command...
  check "$@"
  sed 's/^/    /' "$reports/$stage-$1.log"
}

# ---- Run and summary ----------------------------------------------------------------------------

sum() { # stage-or-empty outcome
  awk -v stage="$1" -v outcome="$2" \
    '(stage == "" || $1 == stage) && $2 == outcome { n += $3 } END { print n + 0 }' "$results"
}

declare -A seconds_of cpu_seconds_of
for stage in "${STAGES[@]}"; do
  [[ " ${selected[*]} " == *" $stage "* ]] || continue
  echo "== $stage"
  start=$SECONDS
  read_cpu_seconds
  start_cpu="$cpu_seconds"
  configure_arguments=()
  "stage_$stage"
  read_cpu_seconds
  seconds_of[$stage]=$((SECONDS - start))
  cpu_seconds_of[$stage]=$((cpu_seconds - start_cpu))
done

# Growth is seen by comparing it with that of an earlier run.
print_stages() {
  printf '%-10s %8s %8s %8s %8s %8s\n' stage passed failed skipped seconds 'CPU s'
  for stage in "${STAGES[@]}"; do
    [[ -v "seconds_of[$stage]" ]] || continue
    printf '%-10s %8d %8d %8d %8d %8d\n' "$stage" "$(sum "$stage" passed)" \
      "$(sum "$stage" failed)" "$(sum "$stage" skipped)" "${seconds_of[$stage]}" \
      "${cpu_seconds_of[$stage]}"
  done
  printf '%-10s %8d %8d %8d %8d %8d\n' total "$(sum '' passed)" "$(sum '' failed)" \
    "$(sum '' skipped)" "$SECONDS" "$cpu_seconds"
}
echo
print_stages | tee "$reports/stages.txt"
echo

for outcome in skipped failed; do
  if (($(sum '' "$outcome"))); then
    echo "$outcome:"
    awk -v outcome="$outcome" \
      '$2 == outcome { sub(/ [a-z]+ [0-9]+/, ":"); print "  " $0 }' "$results"
    echo
  fi
done

# Once more, because a long log is often cut to its end.
if [[ -s "$failures" ]]; then
  echo "what each failed program printed:"
  sed 's/^/  /' "$failures"
  echo
fi

failed="$(sum '' failed)"
echo "$(sum '' passed) passed, $failed failed, $(sum '' skipped) skipped"
((failed == 0))
