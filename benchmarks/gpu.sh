#!/usr/bin/env bash
# Everything that waits for a GPU, in one command: bash benchmarks/gpu.sh [FOLDER]
#   1. what is missing is installed of wheels, without a network: WHEELS=folder, by default wheels/ if it is there
#   2. correctness: the tests of models on the device, on JAX and on TensorFlow (TESTS: which; BACKENDS: on what), with
#      float32 products in float32; each operation is compiled for the device, so 46 of them took a minute of an H100
#   3. attention by kernel: python -m benchmarks.attention
#   4. speed in bfloat16 beside peers, MFU and a profile: python -m benchmarks.accelerator (SHAPES, ROUNDS; PEERS, of
#      which some have a comma in their names: "rembed;huggingface, bfloat16, gathered")
# FOLDER gets accelerator.json and .md, attention.json and .md, trace/ and tests-BACKEND.txt; benchmarks/results by
# default. A step that fails is said at the end, with exit code 1, and the others are done all the same.
set -uo pipefail
cd "$(dirname "$0")/.."
out=$(realpath -m "${1:-benchmarks/results}")
python=${PYTHON:-python3}
wheels=${WHEELS:-wheels}
read -ra tests <<< "${TESTS:-tests/modeling}"
read -ra shapes <<< "${SHAPES:-base rembert}"
IFS=';' read -ra peers <<< "${PEERS:-rembed;keras_hub;huggingface}"
mkdir -p "$out"
if [ -d "$wheels" ]; then
  site=$(mktemp -d)
  "$python" -m pip install --quiet --no-index --no-deps --no-compile --target "$site" "$wheels"/*.whl || exit 1
  export PYTHONPATH="$site${PYTHONPATH:+:$PYTHONPATH}"
fi
command -v nvidia-smi > /dev/null && nvidia-smi --query-gpu=name,memory.total,driver_version --format=csv
failed=()
for backend in ${BACKENDS:-jax tensorflow}; do
  echo "tests on $backend"
  KERAS_BACKEND=$backend XLA_PYTHON_CLIENT_PREALLOCATE=false TF_FORCE_GPU_ALLOW_GROWTH=true XLA_FLAGS="${XLA_FLAGS:-}" \
    JAX_DEFAULT_MATMUL_PRECISION=highest "$python" -m pytest -q "${tests[@]}" 2>&1 \
    | tee "$out/tests-$backend.txt" | tail -n 15 || failed+=("tests on $backend")
done
"$python" -m benchmarks.attention --lengths ${LENGTHS:-128 512 2048} --out "$out" \
  || failed+=("benchmarks.attention")
"$python" -m benchmarks.accelerator --shapes "${shapes[@]}" --peers "${peers[@]}" --rounds "${ROUNDS:-3}" \
  --steps "${STEPS:-20}" --trace --out "$out" || failed+=("benchmarks.accelerator")
[ ${#failed[@]} = 0 ] || { printf 'failed: %s\n' "${failed[@]}" >&2; exit 1; }
