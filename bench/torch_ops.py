#!/usr/bin/env python3
"""The cases of `weft bench-ops` beside PyTorch on the CPU: python3 bench/torch_ops.py [build/weft [GLOB]]

weft and PyTorch take turns with each case, on as many threads, and the best turn of each counts: other work on the
machine slows both alike. Ratio > 1: weft is faster.
"""
import fnmatch
import json
import os
import statistics
import subprocess
import sys
import time

import torch
import torch.nn.functional as F

F32, F16 = torch.float32, torch.float16
TURNS = 4


def rand(*shape, dtype=F32):
    return (torch.rand(*shape) * 2 - 1).to(dtype)


def op(f, *inputs):
    return lambda: f(*inputs)


def backward(f, x, w):
    """The gradients of both, without what the forward pass takes."""
    x.requires_grad_(), w.requires_grad_()
    y = f(x, w)
    g = torch.ones_like(y)
    return lambda: torch.autograd.grad(y, (x, w), g, retain_graph=True)


CONVOLUTIONS = {  # name: x, w, stride, padding, groups
    "conv2d 3x3 f32 4x64x56x56": ((4, 64, 56, 56), (64, 64, 3, 3), 1, 1, 1),
    "conv2d 3x3 deep f32 4x256x14x14": ((4, 256, 14, 14), (256, 256, 3, 3), 1, 1, 1),
    "conv2d 1x1 f32 4x256x28x28": ((4, 256, 28, 28), (256, 256, 1, 1), 1, 0, 1),
    "conv2d 7x7 stride 2 f32 4x3x224x224": ((4, 3, 224, 224), (64, 3, 7, 7), 2, 3, 1),
    "conv2d depthwise f32 4x128x56x56": ((4, 128, 56, 56), (128, 1, 3, 3), 1, 1, 128),
}


def cases():
    """Name -> a function that makes the inputs and returns what is to be timed."""
    n, side = 1 << 24, 4096
    table = {
        f"add f32 {n}": lambda: op(torch.add, rand(n), rand(n)),
        f"add f16 {n}": lambda: op(torch.add, rand(n, dtype=F16), rand(n, dtype=F16)),
        f"exp f32 {n}": lambda: op(torch.exp, rand(n)),
        f"tanh f32 {n}": lambda: op(torch.tanh, rand(n)),
        f"gelu f32 {n}": lambda: op(F.gelu, rand(n)),
        f"silu f32 {n}": lambda: op(F.silu, rand(n)),
        "neg f32 1024": lambda: op(torch.neg, rand(1024)),
        f"transpose f32 {side}x{side}": lambda: op(lambda x: x.t().contiguous(), rand(side, side)),
        f"sum f32 {n}": lambda: op(torch.sum, rand(n)),
        f"sum f32 {side}x{side} dim 0": lambda: op(lambda x: x.sum(0), rand(side, side)),
        f"sum f32 {side}x{side} dim 1": lambda: op(lambda x: x.sum(1), rand(side, side)),
        f"max f32 {side}x{side} dim 1": lambda: op(lambda x: x.amax(1), rand(side, side)),
        f"argmax f32 {side}x{side} dim 1": lambda: op(lambda x: x.argmax(1), rand(side, side)),
        f"softmax f32 {side}x{side}": lambda: op(lambda x: x.softmax(-1), rand(side, side)),
        f"layer_norm f32 {side}x{side}": lambda: op(
            lambda x, w: F.layer_norm(x, (side,), w), rand(side, side), rand(side)),
        f"cumsum f32 {side}x{side} dim 1": lambda: op(lambda x: x.cumsum(1), rand(side, side)),
        f"sort f32 {side // 4}x{side}": lambda: op(lambda x: x.sort(stable=True), rand(side // 4, side)),
        "embedding f32 32000x512 8192 rows": lambda: op(
            F.embedding, torch.randint(0, 32000, (8192,)), rand(32000, 512)),
        "index_add f32 32000x512 8192 rows": lambda: op(
            lambda x, i, y: x.index_add(0, i, y), rand(32000, 512), torch.randint(0, 32000, (8192,)), rand(8192, 512)),
        "matvec f32 1x4096x4096 nt": lambda: op(lambda a, b: a @ b.t(), rand(1, 4096), rand(4096, 4096)),
        "attention f32 1x8x512x64 512 keys": lambda: op(
            F.scaled_dot_product_attention, *(rand(1, 8, 512, 64) for _ in range(3))),
        "attention f32 1x8x1x64 2048 keys": lambda: op(
            F.scaled_dot_product_attention, rand(1, 8, 1, 64), rand(1, 8, 2048, 64), rand(1, 8, 2048, 64)),
    }
    for size in (64, 256, 512, 1024, 2048):
        table[f"matmul f32 {size}x{size}x{size} nn"] = lambda s=size: op(torch.matmul, rand(s, s), rand(s, s))
    for name, (x, w, stride, padding, groups) in CONVOLUTIONS.items():
        def conv(a, b, how=(stride, padding, groups)):
            return F.conv2d(a, b, stride=how[0], padding=how[1], groups=how[2])
        table[name] = lambda f=conv, x=x, w=w: op(f, rand(*x), rand(*w))
        table[name + " backward"] = lambda f=conv, x=x, w=w: backward(f, rand(*x), rand(*w))
    return table


def median_us(step):
    """As weft bench-ops does it: batches of 10 ms and more, the median of those in 0.3 s."""
    def batch(steps):
        begin = time.perf_counter()
        for _ in range(steps):
            step()
        return time.perf_counter() - begin
    batch(1)
    steps = 1
    while steps < 1024 and batch(steps) < 0.01:
        steps *= 2
    times, begin = [], time.perf_counter()
    while len(times) < 5 or time.perf_counter() - begin < 0.3:
        times.append(batch(steps) / steps)
    return statistics.median(times) * 1e6


def weft_us(program, name):
    out = subprocess.run([program, "bench-ops", "--device", "cpu", "--json", "--filter", name],
                         check=True, capture_output=True, text=True).stdout
    return json.loads(out)["cases"][0]["us"]


def main():
    program = sys.argv[1] if len(sys.argv) > 1 else "build/weft"
    chosen = sys.argv[2] if len(sys.argv) > 2 else "*"
    threads = int(os.environ.get("WEFT_THREADS", os.cpu_count()))
    torch.set_num_threads(threads)
    print(f"PyTorch {torch.__version__}, {threads} threads")
    print(f"{'case':<46} {'weft us':>10} {'torch us':>10} {'ratio':>6}")
    for name, make in cases().items():
        if not fnmatch.fnmatch(name, chosen):
            continue
        run = make()
        ours, theirs = map(min, zip(*[(weft_us(program, name), median_us(run)) for _ in range(TURNS)]))
        print(f"{name:<46} {ours:>10.1f} {theirs:>10.1f} {theirs / ours:>6.2f}", flush=True)


if __name__ == "__main__":
    main()
