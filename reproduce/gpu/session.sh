#!/bin/bash
# The tables at the paper's sizes, made on one GPU machine: arrays and draws stay there, their numbers come home.
#   session.sh SET FOLDER [OPTIONS]   networks, samples and arrays; the draws then go on by themselves, between calls too
#   session.sh fetch SECONDS          wait so long for all draws, and leave what there is under $OUT
# SET is faces128 or chest512, or in miniature faces16 or chest16. FOLDER (carry it) holds the zip and `commit`; OPTIONS
# are more of `reproduce.gpu.end_to_end`. All ways compile at once and take turns on the GPU, each timed alone. Half a
# minute without a call, and the machine is gone with all that was not fetched.
set -u
job=${JOB:-/tmp/job}
workers=${WORKERS:-8}

way() {  # NAME BEFORE OPTIONS: compile, wait until the one before has ended, run, and let the next one begin
    local name=$1 before=$2
    shift 2
    mkdir -p "$work/$name"
    TORCHINDUCTOR_CACHE_DIR=$job/inductor-$name TORCHINDUCTOR_COMPILE_THREADS=4 \
        python3 -m reproduce.gpu.end_to_end "$set" "$name" --network lean --data "$folder/$archive" --no-bands --material \
        --commit "$(cat "$folder/commit")" --out "$work/$name" --wait "$work/turn-$before" "$@" > "$work/$name.txt" 2>&1
    local ended=$?
    echo "== $name ended with $ended at $SECONDS s"
    [ $ended = 0 ] && touch "$work/$name/whole"
    touch "$work/turn-$name"
}

draws() {
    local threads=$(($(nproc) / workers))
    NUMBA_NUM_THREADS=$((threads > 1 ? threads : 1)) OMP_NUM_THREADS=1 \
        python3 -m reproduce.gpu.draws "$set" "$work" "$workers" > "$work/draws.txt" 2>&1
    echo "== draws ended with $? after $SECONDS s" >> "$work/draws.txt"
    touch "$work/all_done"
}

fetch() {
    local end=$((SECONDS + $1)) work name
    while [ "$SECONDS" -lt "$end" ] && [ "$(ls "$job"/*/all_done 2> /dev/null | wc -l)" -lt "$(ls -d "$job"/*/ours | wc -l)" ]; do
        sleep 1
    done
    for work in "$job"/*/ours; do
        work=${work%/ours} name=$(basename "${work%/ours}")
        tar czf "$OUT/$name.tar.gz" -C "$work" $(cd "$work" && ls -d ./*.txt material/figures.json results.json draws-* 2> /dev/null)
        [ -e "$work/ours/network.safetensors" ] &&
            split -d -b "${PIECE:-15M}" "$work/ours/network.safetensors" "$OUT/$name-network.safetensors."
        echo "$name: $(ls "$work"/draws-*/*-*.json 2> /dev/null | wc -l) parts; $(tail -n 2 "$work/draws.txt")"
    done
    ls -la "$OUT"
}

set=$1
case $set in
faces128)
    common="--images 512 --batch 256 --draw-batch 256" archive=faces_128.zip
    ours="--seconds 90 --samples 79 --first 79"
    paper="--seconds 60 --samples 128 --first 128 --printed-steps 40"
    baselines="--seconds 40 --tune-seconds 15"
    ;;
chest512)
    common="--images 320 --batch 32 --draw-batch 32" archive=chest_512.zip
    ours="--seconds 100 --samples 39 --first 39"
    paper="--seconds 60 --samples 64 --first 64 --printed-steps 24"
    baselines="--seconds 40 --tune-seconds 15 --passes 32"
    ;;
faces16 | chest16)
    common="--images 40 --batch 4 --draw-batch 20 --steps 3 --no-compile" archive=toy.zip
    ours="--samples 19 --first 19" paper="--samples 19 --first 19 --printed-steps 4" baselines="--passes 3"
    ;;
draws)
    set=$2 work=$job/$2
    draws
    exit
    ;;
fetch)
    fetch "$2"
    exit
    ;;
esac

work=$job/$set repo=$job/repo-$set  # not in the tree that travels: the next call brings another
folder=$work/carried
mkdir -p "$repo" "$folder"
cp -r src reproduce "$repo/"
cp -r "$2/." "$folder"
shift 2
cd "$repo" || exit 1
export PYTHONPATH=${PYTHONPATH:+$PYTHONPATH:}$repo/src:$repo PYTHONUNBUFFERED=1 NUMBA_CACHE_DIR=$job/numba
way ours start $common $ours --bring-network --again 0 "$@" &
way paper ours $common $paper "$@" &
way baselines paper $common $baselines --start "$work/ours/network.safetensors" "$@" &
touch "$work/turn-start"
wait
for name in ours paper baselines; do echo "-- $name"; tail -c "${TELL:-3000}" "$work/$name.txt"; done
python3 -m reproduce.gpu.end_to_end "$set" material --data "$folder/$archive" --folder "$work/material" \
    --out $(dirname "$work"/*/whole) || exit 1
echo "== arrays at $SECONDS s"
setsid nohup bash reproduce/gpu/session.sh draws "$set" > /dev/null 2>&1 < /dev/null &
