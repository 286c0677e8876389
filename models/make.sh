#!/bin/sh
# Makes the shipped models from nothing: half an hour on two cores. What was begun and stopped goes on.
# Usage: models/make.sh [FOLDER], a folder outside the repository for the environment, the text and checkpoints.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
build=${1:-${TMPDIR:-/tmp}/warpsmith-models}
mkdir -p "$build"
if [ ! -x "$build/venv/bin/python" ]; then
    python3 -m venv "$build/venv"
    "$build/venv/bin/pip" install --quiet -r "$here/requirements.txt"
fi
python() { PYTHONDONTWRITEBYTECODE=1 nice -n 19 "$build/venv/bin/python" "$@"; }
cd "$here"
[ -f "$build/corpus.txt" ] || python corpus.py --directory "$build"
[ -f "$build/tokenizer.json" ] || python bpe.py --directory "$build"
python train.py --directory "$build" --scheme f32 --steps 700
python train.py --directory "$build" --scheme q1_0 --steps 160 --rate 0.03 --start "$build/f32.pt" &
python train.py --directory "$build" --scheme tq2_0 --steps 160 --rate 0.03 --start "$build/f32.pt"
wait
python export.py --directory "$build" --out "$here"
