#!/bin/bash
# The table of a set at the paper's size, made on one GPU machine: arrays and draws stay there, their numbers come home.
#   bash reproduce/gpu/session.sh faces128 local/faces    networks, samples and arrays; the draws then go on by themselves
#   bash reproduce/gpu/session.sh fetch SECONDS           wait so long for all draws, and leave what there is under $OUT
# The folder (carry it) holds the zip, `commit`, and lib.tar.xz with pydantic and scipy.special for Python 3.12. All ways compile at once and take
# turns on the GPU, each timed alone. Half a minute without a call, and the machine is gone with all that was not fetched.
set -u
job=${JOB:-/tmp/job}
set=$1

ways() {
    local data=$1/$2 commit
    shift 2
    commit=$(cat "$folder/commit")
    local run="python3 -m reproduce.gpu.end_to_end $set" all="--network lean --data $data --no-bands --commit $commit $common"
    rm -f "$work"/turn-*
    way ours start $run ours $all $ours --material --bring-network --again 0 &
    way paper ours $run paper $all $paper --material &
    way baselines paper $run baselines $all $baselines --start "$work/ours/network.safetensors" &
    touch "$work/turn-start"
    wait
}

way() {  # NAME BEFORE COMMAND: compile, wait until the one before has ended, run, and let the next one begin
    local name=$1 before=$2
    shift 2
    mkdir -p "$work/$name"
    TORCHINDUCTOR_CACHE_DIR=$job/inductor-$name TORCHINDUCTOR_COMPILE_THREADS=4 \
        "$@" --out "$work/$name" --wait "$work/turn-$before" > "$work/$name.txt" 2>&1
    echo "== $name ended with $? at ${SECONDS} s"
    touch "$work/turn-$name"
}

draws() {
    python3 -c "
import sys
from pathlib import Path
from reproduce.experiment import load_experiment
from reproduce.material import load_material
from reproduce.results import run_experiment
if __name__ == '__main__':
    run_experiment(load_experiment('$set'), load_material('$work/material'), Path('$work'), workers=${WORKERS:-6}, tell=print)
" > "$work/draws.txt" 2>&1
    echo "== draws ended with $? at ${SECONDS} s" >> "$work/draws.txt"
    touch "$work/all_done"
}

case $set in
faces128)
    common="--images ${IMAGES:-512} --batch ${BATCH:-256} --draw-batch ${DRAW:-256}"
    ours="--seconds 90 --samples 79 --first 79"
    paper="--seconds 60 --samples 128 --first 128 --printed-steps 40"
    baselines="--seconds 40 --tune-seconds 15"
    archive=faces_128.zip
    ;;
chest512)
    common="--images ${IMAGES:-320} --batch ${BATCH:-32} --draw-batch ${DRAW:-32}"
    ours="--seconds 100 --samples 39 --first 39"
    paper="--seconds 60 --samples 64 --first 64 --printed-steps 24"
    baselines="--seconds 40 --tune-seconds 15 --passes 32"
    archive=chest_512.zip
    ;;
draws)  # of the set and in the folder that the environment names
    set=$NAME work=$job/$NAME
    draws
    exit
    ;;
fetch)
    end=$((SECONDS + $2))
    while [ "$SECONDS" -lt "$end" ] && [ "$(ls -d "$job"/*/all_done 2> /dev/null | wc -l)" -lt "$(ls -d "$job"/*/ours | wc -l)" ]; do
        sleep 1
    done
    for work in "$job"/*/ours; do
        work=${work%/ours} name=$(basename "${work%/ours}")
        [ -e "$work/results.json" ] && gzip -c "$work/results.json" > "$OUT/$name-results.json.gz"
        cp "$work/material/figures.json" "$OUT/$name-figures.json"
        cp "$work/ours/network.safetensors" "$OUT/$name-network.safetensors"
        (cd "$work" && tar cz draws-*/) > "$OUT/$name-draws.tar.gz"
        echo "$name: $(ls "$work"/draws-*/ | wc -l) parts; $(tail -n 3 "$work/draws.txt")"
    done
    ls -la "$OUT"
    exit
    ;;
esac

folder=$2 work=$job/$set
shift 2
ours="$ours $*" paper="$paper $*" baselines="$baselines $*"
mkdir -p "$work" "$job/lib" && tar xf "$folder/lib.tar.xz" -C "$job/lib"
export PYTHONPATH=$job/repo-$set/src:$job/repo-$set:$job/lib PYTHONUNBUFFERED=1 NUMBA_CACHE_DIR=$job/numba
rm -rf "$job/repo-$set" && mkdir -p "$job/repo-$set" && cp -r src reproduce "$job/repo-$set/" && mkdir -p "$job/repo-$set/$folder" && cp -r "$folder/." "$job/repo-$set/$folder"
cd "$job/repo-$set" || exit 1
ways "$folder" $archive
for name in ours paper baselines; do echo "-- $name"; tail -c ${TELL:-3000} "$work/$name.txt"; done
python3 -m reproduce.gpu.end_to_end "$set" material --data "$folder/$archive" --out "$work"/ours "$work"/paper "$work"/baselines --folder "$work/material"
echo "== arrays at ${SECONDS} s"
NAME=$set setsid nohup bash reproduce/gpu/session.sh draws > /dev/null 2>&1 < /dev/null &
cp "$work/material/figures.json" "$OUT/$set-figures.json"
