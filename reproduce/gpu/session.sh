#!/bin/bash
# The tables at the paper's sizes, made on one GPU machine: arrays stay there, their numbers come home.
#   session.sh SET FOLDER SECONDS [OPTIONS]   begin a set's queue, then fetch
#   session.sh fetch SECONDS                  wait at most so long for all queues, and leave what there is under $OUT
# SET is faces128 or chest512, or in miniature faces16 or chest16. FOLDER (carry it) holds the zip and `commit`; OPTIONS
# are more of `reproduce.gpu.end_to_end`. A queue goes on between the calls. Its first way compiles alone and the others
# while it trains, from what it left in the cache; they take turns on the GPU, after those of the queues before, so that
# each is timed alone. Half a minute without a call, and the machine is gone with all that was not fetched.
set -u
job=${JOB:-/tmp/job}
workers=${WORKERS:-8}

settings() {
    labels=
    case $1 in
    faces128)
        common="--images 512 --batch 256 --draw-batch 256" archive=faces_128.zip
        ours="--seconds 90 --samples 79" paper="--seconds 60 --samples 128 --printed-steps 40"
        baselines="--seconds 40 --tune-seconds 15"
        ;;
    chest512)
        common="--images 320 --batch 32 --draw-batch 32" archive=chest_512.zip labels="--seconds 30 --batch 16"
        ours="--seconds 100 --samples 39" paper="--seconds 60 --samples 49 --printed-steps 24"
        baselines="--seconds 40 --tune-seconds 15 --passes 32"
        ;;
    faces16 | chest16)
        common="--images 40 --batch 4 --draw-batch 20 --steps 3 --no-compile" archive=toy.zip
        ours="--samples 19" paper="--samples 19 --printed-steps 4" baselines="--passes 3"
        [ "$1" = chest16 ] && labels="--batch 4"
        ;;
    *) echo "$1 is no set" && exit 2 ;;
    esac
}

way() {  # NAME BEFORE OPTIONS: compile, wait until the one before has ended, run, and let the next one begin
    local name=$1 before=$2
    shift 2
    python3 -m reproduce.gpu.end_to_end "$set" "$name" --data "$work/carried/$archive" --out "$work/$name" \
        --commit "$(cat "$work/carried/commit")" --wait "$before" $common "$@" > "$work/$name.txt" 2>&1
    local ended=$?
    echo "== $name ended with $ended after $SECONDS s"
    [ $ended = 0 ] && touch "$work/$name/whole"
    touch "$work/$name/ended"
}

queue() {  # BEFORE OPTIONS: all ways, then arrays and draws
    local before=$1
    shift
    mkdir -p "$work"/{ours,paper,baselines,organs}
    way ours "$before" $ours --bring-network "$@" &
    until [ -e "$work/ours/compiled" ] || [ -e "$work/ours/ended" ]; do sleep 1; done
    way paper "$work/ours/ended" $paper "$@" &
    way baselines "$work/paper/ended" $baselines --start "$work/ours/network.safetensors" "$@" &
    [ -n "$labels" ] && way organs "$work/baselines/ended" $labels "$@" &
    wait
    touch "$work/gpu_free"
    python3 -m reproduce.gpu.end_to_end "$set" material --data "$work/carried/$archive" --folder "$work/material" \
        --out $(dirname "$work"/*/whole)
    echo "== arrays ended with $? after $SECONDS s"
    local threads=$(($(nproc) / workers))
    export NUMBA_NUM_THREADS=$((threads > 1 ? threads : 1)) OMP_NUM_THREADS=1 PIXELBOUNDS_COMMIT=$(cat "$work/carried/commit")
    if [ -n "$labels" ]; then
        nice -n 10 python3 -m reproduce.gpu.draws promises "$set" "$work" > "$work/promises.txt" 2>&1 &
    fi
    nice -n 10 python3 -m reproduce.gpu.draws table "$set" "$work" "$workers" > "$work/draws.txt" 2>&1
    echo "== draws ended with $? after $SECONDS s"
    wait
    echo "== all ended after $SECONDS s"
    touch "$work/all_done"
}

fetch() {
    local end=$((SECONDS + $1)) work name
    while [ "$SECONDS" -lt "$end" ] && [ "$(ls "$job"/*/all_done 2> /dev/null | wc -l)" -lt "$(ls -d "$job"/*/carried | wc -l)" ]; do
        sleep 1
    done
    for work in "$job"/*/carried; do
        work=${work%/carried} name=$(basename "${work%/carried}")
        tar czf "$OUT/$name.tar.gz" -C "$work" $(cd "$work" && ls -d ./*.txt ./*/figures.json ./*.json draws-* 2> /dev/null)
        [ -e "$work/ours/whole" ] && split -d -b "${PIECE:-15M}" "$work/ours/network.safetensors" "$OUT/$name-network.safetensors."
        echo "-- $name: $(ls "$work"/draws-*/*-*.json 2> /dev/null | wc -l) parts of draws"
        tail -n 8 "$work/queue.txt"
        tail -q -n 2 "$work"/{ours,paper,baselines,organs,draws,promises}.txt 2> /dev/null | cut -c 1-600
    done
    ls -la "$OUT"
}

case $1 in
fetch) fetch "$2" ;;
queue)
    set=$2 work=$job/$2
    settings "$set"
    shift 2
    queue "$@"
    ;;
*)
    set=$1 work=$job/$1 seconds=$3
    settings "$set"
    repo=$job/repo-$set  # not in the tree that travels: the next call brings another
    mkdir -p "$repo" "$work/carried"
    touch "$job/start"
    before=$(cat "$job/last" 2> /dev/null || echo "$job/start")
    echo "$work/gpu_free" > "$job/last"
    cp -r src reproduce benchmarks "$repo/"
    cp "$2/$archive" "$2/commit" "$work/carried/"
    shift 3
    export PYTHONPATH=${PYTHONPATH:+$PYTHONPATH:}$repo/src:$repo PYTHONUNBUFFERED=1 NUMBA_CACHE_DIR=$job/numba
    export TORCHINDUCTOR_CACHE_DIR=$job/inductor TORCHINDUCTOR_COMPILE_THREADS=4
    here=$PWD
    cd "$repo" || exit 1  # the queue alone in the background: a shell beside it would hold the call's output open
    setsid nohup bash reproduce/gpu/session.sh queue "$set" "$before" "$@" > "$work/queue.txt" 2>&1 < /dev/null &
    cd "$here" || exit 1
    fetch "$seconds"
    ;;
esac
