#!/usr/bin/env bash
# ./run_all.sh [smoke|quick|standard]      make .venv, install, run all methods and baselines, print the tables, write
#                                          runs/report; stopped and started again it goes on
# ./run_all.sh bench [WORD ...]           make .venv, install, and measure kernels, losses and steps beside their rivals
# ./run_all.sh test [--slow] [PYTEST ...]  make .venv, install, lint, type-check and test
# ./run_all.sh test --machines [PYTEST ...]  test as on other processors: a table, machine by machine
set -euo pipefail
cd "$(dirname "$0")"

usage() {
  echo "usage: ./run_all.sh [smoke|quick|standard], ./run_all.sh bench [WORDS], or ./run_all.sh test [--slow | --machines] [arguments of pytest]" >&2
  exit 2
}

mode="${1:-quick}"
[ $# -gt 0 ] && shift
case "$mode" in
  smoke | quick | standard) [ $# -eq 0 ] || usage ;;
  bench | test) ;;
  *) usage ;;
esac

# A virtual environment of its own; reused, and installed again only when the requirements have changed.
if [ ! -x .venv/bin/python ]; then
  found=""
  for candidate in "${PYTHON:-python3}" python3.13 python3.12 python3.11; do
    if "$candidate" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; then
      found="$candidate"
      break
    fi
  done
  if [ -z "$found" ]; then
    echo "error: no Python 3.11, 3.12 or 3.13 found; set PYTHON=/path/to/python" >&2
    exit 2
  fi
  rm -rf .venv
  "$found" -m venv .venv
fi
if ! cat requirements.txt constraints.txt | cmp -s - .venv/installed; then
  echo "installing requirements.txt into .venv"
  export PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt # also of what builds a package
  pip=(.venv/bin/python -m pip install --quiet --disable-pip-version-check)
  # PyPI's torch brings gigabytes of CUDA to every Linux; its build for CPUs has an index of its own, if that answers
  if [ "$(uname)" = Linux ] && ! command -v nvidia-smi >/dev/null; then
    "${pip[@]}" --no-deps --retries 0 --extra-index-url https://download.pytorch.org/whl/cpu torch
  fi
  "${pip[@]}" -r requirements.txt
  cat requirements.txt constraints.txt >.venv/installed
fi
python=.venv/bin/python

if [ "$mode" = bench ]; then
  exec "$python" -m bench speed "$@"
elif [ "$mode" = test ] && [ "${1:-}" = --machines ]; then
  exec "$python" tests/machines.py "${@:2}"
elif [ "$mode" = test ]; then
  selection=(-m "not slow")
  if [ "${1:-}" = --slow ]; then
    selection=()
    shift
  fi
  "$python" -m ruff check .
  "$python" -m ruff format --check .
  "$python" -m mypy
  # two processes of one thread each: small models gain nothing from more threads
  export OMP_NUM_THREADS=1
  exec "$python" -m pytest -n 2 --dist loadfile ${selection[@]+"${selection[@]}"} "$@"
fi

# smoke: does everything run? One task, one seed. standard: the arena at four budgets, the kinds at one: 1,140 runs.
case "$mode" in
  smoke) run=(quick --budget smoke --tasks pocket/cola --seeds 0 --out runs/smoke) ;;
  quick) run=(quick) ;;
  standard) run=(arena --out runs/standard) ;;
esac
code=0
"$python" -m bench run "${run[@]}" || code=$?
[ "$code" -le 1 ] || exit "$code" # stopped, or wrong arguments: 1 says that a cell failed, which the tables show
"$python" -m bench table "runs/$mode" || code=$?
"$python" -m bench report "runs/$mode" || code=$?
exit "$code"
