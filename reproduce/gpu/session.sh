#!/bin/bash
# A session of a GPU as one queue that outlives the calls, so that nothing is compiled twice and the GPU never waits.
#   bash reproduce/gpu/session.sh start          in the first call, which carries chest128.npz and commit
#   bash reproduce/gpu/session.sh fetch SECONDS  in every call: waits, then leaves under $OUT what was finished meanwhile
# Half a minute without a call, and the machine is gone with all that was not fetched: after the last long call, go on with
# `fetch 0` until all files came. At home, `cat part-* | tar x` for each call.
set -u
job=/tmp/job
here=$(cd "$(dirname "$0")/../.." && pwd)

way() {  # NAME SECONDS-AT-MOST ARGUMENTS: a way into a folder of its own, marked when it is done
    local name=$1 most=$2
    shift 2
    echo "== $name begins at $(($(date +%s) - began)) s"
    mkdir -p "$job/out/$name"
    timeout "$most" "$@" --out "$job/out/$name" --commit "$(cat local/gpu/commit)" > "$job/out/$name/log.txt" 2>&1
    echo "== $name ends with $? at $(($(date +%s) - began)) s"
    touch "$job/done/$name"
}

queue() {
    cd "$job/repo" || exit 1
    export PYTHONPATH=src:. PYTHONUNBUFFERED=1 TORCHINDUCTOR_CACHE_DIR=$job/inductor
    local run="python3 -m reproduce.gpu.end_to_end"
    local chest="--data local/gpu/chest128.npz"
    # every way once, small, so that what fails can be mended before its turn
    (
        export TORCHINDUCTOR_COMPILE_THREADS=3
        $run chest128 paper $chest --images 8 --steps 3 --network tiny --no-compile --out $job/small --printed-steps 4 --batch 8
    ) > "$job/small.txt" 2>&1 &
    export TORCHINDUCTOR_COMPILE_THREADS=6
    # 600 s of training and sampling
    way chest_paper 900 $run chest128 paper $chest --images 512 --seconds 270 --printed-steps 40 --first 64 128 --batch 128 --draw-batch 258 --per-file 160 --until 880
    echo "== all done at $(($(date +%s) - began)) s"
    touch "$job/all_done"
}

case $1 in
start)
    mkdir -p "$job/out" "$job/done" "$job/brought"
    cp -r "$here" "$job/repo"
    cp "$0" "$job/session.sh"
    setsid nohup bash "$job/session.sh" queue > "$job/log.txt" 2>&1 < /dev/null &
    ;;
queue)
    began=$(date +%s)
    queue
    ;;
fetch)
    end=$(($(date +%s) + $2))
    cp -r "$here/src" "$here/benchmarks" "$here/reproduce" "$job/repo/" && cp -n "$here"/local/gpu/* "$job/repo/local/gpu/"
    while [ "$(date +%s)" -lt "$end" ] && [ ! -e "$job/all_done" ]; do sleep 1; done
    echo "$(free -g | sed -n 2p) load $(cut -d ' ' -f 1-3 /proc/loadavg)"
    cd "$job/out" || exit 1
    ready=() size=0
    for name in $(ls -tr "$job/done"); do  # 61 MiB a call, in the order in which they were done
        for file in "$name"/*; do
            here=$(du -k "$file" | cut -f 1)
            mark=$job/brought/${file/\//+}
            if [ "${file##*/}" != network.safetensors ] && [ ! -e "$mark" ] && [ $((size + here)) -le 62400 ]; then
                ready+=("$file") size=$((size + here))
            fi
        done
    done
    if [ ${#ready[@]} -gt 0 ]; then
        tar c "${ready[@]}" | split -b 15M - "$OUT/part-" && for file in "${ready[@]}"; do touch "$job/brought/${file/\//+}"; done
    fi
    echo "brought ${#ready[@]} files of $size KiB; done: $(ls -tr "$job/done" | tr '\n' ' ')"
    cat "$job/log.txt"
    for name in $(ls -t | head -n 4); do echo "-- $name"; tail -c 1800 "$name/log.txt" 2> /dev/null; done
    tail -n 9 "$job/small.txt" | cut -c 1-400
    ls -la "$OUT"
    ;;
esac
