#!/bin/bash
# A session of a GPU as one queue that outlives the calls, so that nothing is compiled twice and the GPU never waits.
#   bash benchmarks/gpu/session.sh start          in the first call, which carries ct64.npz, faces64.npz, shape128.npz, commit
#   bash benchmarks/gpu/session.sh fetch SECONDS  in every call: waits, then leaves under $OUT what was finished meanwhile
# The second call carries chest_few.npz. Half a minute without a call, and the machine is gone with all that was not fetched. At home, `cat part-* | tar x` in each folder that came back.
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
    local run="python3 -m benchmarks.gpu.end_to_end"
    local few="--data local/gpu/chest_few.npz" ct="--data local/gpu/ct64.npz" faces="--data local/gpu/faces64.npz"
    local small="$ct --images 8 --steps 3 --network tiny --no-compile --out $job/small"
    local chest="--batch 128 --draw-batch 258 --per-file 160"
    # what is compiled for later, and every way once, small, so that what fails can be mended before its turn; one after
    # another and with few processes: a machine on which three compiled at once, with 16 each, stopped answering
    (
        export TORCHINDUCTOR_COMPILE_THREADS=3
        $run ct64 paper $ct --steps 2 --images 8 --printed-steps 4 --out "$job/warm64"
        $run chest128 paper --data local/gpu/shape128.npz --steps 2 --images 2 --printed-steps 4 $chest --out "$job/warm128"
        $run ct64 ours $small --material --bring-network --again 0
        $run ct64 baselines $small --tune-seconds 2 --start "$job/small/network.safetensors"
    ) > "$job/small.txt" 2>&1 &
    export TORCHINDUCTOR_COMPILE_THREADS=6
    way faces_ours 450 $run faces64 ours $faces --images 768 --seconds 100 --again 0 --material --bring-network
    way faces_paper 450 $run faces64 paper $faces --images 768 --seconds 100 --printed-steps 64 --material
    until [ -e local/gpu/chest_few.npz ]; do sleep 1; done
    way chest_paper 380 $run chest128 paper $few --images 300 --seconds 90 --printed-steps 40 --first 64 128 $chest --until 340
    way ct_ours 560 $run ct64 ours $ct --seconds 65 --members 3 --first 39 79 128 --material --bring-network
    # no seconds are claimed of what follows: it shares the GPU
    way ct_baselines 300 $run ct64 baselines $ct --seconds 60 --no-compile --start "$job/out/ct_ours/network.safetensors" &
    way faces_baselines 300 $run faces64 baselines $faces --images 768 --seconds 60 --no-compile \
        --start "$job/out/faces_ours/network.safetensors" &
    wait
    mkdir -p "$job/out/rates" && python3 -m benchmarks.gpu.rates all plain shifted phases native --out "$job/out/rates" && touch "$job/done/rates"
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
    file=chest_few.npz
    [ -e "$here/local/gpu/$file" ] && cp "$here/local/gpu/$file" "$job/$file" && mv "$job/$file" "$job/repo/local/gpu/$file"
    cp -r "$here/src" "$here/benchmarks" "$job/repo/"
    while [ "$(date +%s)" -lt "$end" ] && [ ! -e "$job/all_done" ]; do sleep 1; done
    echo "$(free -g | sed -n 2p) load $(cut -d ' ' -f 1-3 /proc/loadavg)"
    cd "$job/out" || exit 1
    ready=() size=0
    for name in $(ls -tr "$job/done"); do  # 62 MiB a call, in the order in which they were done
        here=$(du -sm --exclude=network.safetensors "$name" | cut -f 1)
        if [ ! -e "$job/brought/$name" ] && [ $((size + here)) -le 61 ]; then ready+=("$name") size=$((size + here)); fi
    done
    if [ ${#ready[@]} -gt 0 ]; then
        tar c --exclude=network.safetensors "${ready[@]}" | split -b 15M - "$OUT/part-" &&
            for name in "${ready[@]}"; do touch "$job/brought/$name"; done
    fi
    echo "brought: ${ready[*]}, $size MiB; done: $(ls -tr "$job/done" | tr '\n' ' ')"
    cat "$job/log.txt"
    for name in $(ls -t | head -n 4); do echo "-- $name"; tail -c 1800 "$name/log.txt"; done
    tail -n 9 "$job/small.txt" | cut -c 1-400
    ls -la "$OUT"
    ;;
esac
