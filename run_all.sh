#!/usr/bin/env bash
# ./run_all.sh [smoke|quick|standard]      make .venv, install, run all methods and baselines, print the tables, write
#                                          runs/report; stopped and started again it goes on
# ./run_all.sh test [--slow] [PYTEST ...]  make .venv, install, lint, type-check and test
set -euo pipefail
cd "$(dirname "$0")"

usage() {
  echo "usage: ./run_all.sh [smoke|quick|standard], or ./run_all.sh test [--slow] [arguments of pytest]" >&2
  exit 2
}

mode="${1:-quick}"
[ $# -gt 0 ] && shift
case "$mode" in
  smoke | quick | standard) [ $# -eq 0 ] || usage ;;
  test) ;;
  *) usage ;;
esac

# A virtual environment of its own; reused, and installed again only when requirements.txt has changed.
if [ ! -x .venv/bin/python ]; then
  found=""
  for candidate in "${PYTHON:-python3}" python3.12 python3.11; do
    if "$candidate" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 12))' 2>/dev/null; then
      found="$candidate"
      break
    fi
  done
  if [ -z "$found" ]; then
    echo "error: no Python 3.11 or 3.12 found; set PYTHON=/path/to/python" >&2
    exit 2
  fi
  rm -rf .venv
  "$found" -m venv .venv
fi
if ! cmp -s requirements.txt .venv/requirements.txt; then
  echo "installing requirements.txt into .venv"
  .venv/bin/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
  cp requirements.txt .venv/requirements.txt
fi
python=.venv/bin/python

if [ "$mode" = test ]; then
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

# smoke: does everything run? One task, one seed. standard: the rows of quick with a budget for real comparisons.
case "$mode" in
  smoke) changes=(--budget smoke --tasks pocket/rte --seeds 0 --out runs/smoke) ;;
  quick) changes=() ;;
  standard) changes=(--budget standard --out runs/standard) ;;
esac
code=0
"$python" -m bench run bench/quick.toml ${changes[@]+"${changes[@]}"} || code=$?
[ "$code" -le 1 ] || exit "$code" # stopped, or wrong arguments: 1 says that a cell failed, which the tables show
"$python" -m bench table "runs/$mode" || code=$?
"$python" -m bench report "runs/$mode" || code=$?
exit "$code"
