"""out = gelu(x @ w.T + bias): a program a multiprocessor goes from tile to tile, and fetches the next one while it stores the last.

A tensor map is made on the host and travels as a kernel parameter, so nothing is allocated and a graph can replay it. The copy
engine reads zeros, and writes nothing, outside a matrix.
"""

import torch
import triton
import triton.language as tl
from keepfast_tunables import BLOCK_K, BLOCK_M, BLOCK_N, FEW_K, FEW_N, FEW_STAGES, FEW_WARPS, GROUP, HALVES, PROGRAMS, STAGES, WARPS
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def gelu(v):
    u = 0.7978845608028654 * (v + 0.044715 * v * v * v)
    t = tl.inline_asm_elementwise("tanh.approx.f32 $0, $1;", "=f,f", [u], dtype=tl.float32, is_pure=True, pack=1)
    return 0.5 * v * (1 + t)


@triton.jit
def tile(matrix, line, depth, lines, k):
    """Lines of a matrix with k columns, some columns of them; zero outside."""
    at = line.to(tl.int64)[:, None] * k + depth[None, :]
    return tl.load(matrix + at, mask=(line < lines)[:, None] & (depth < k)[None, :], other=0.0)


@triton.jit
def product(a, b, total):
    return tl.dot(a, tl.trans(b), total)


@triton.jit
def place(number, m, n, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP: tl.constexpr):
    """Tile `number` as (row, column) of tiles: down GROUP rows of tiles, then one column on, so that neighbours share what they read."""
    rows, columns = tl.cdiv(m, BLOCK_M), tl.cdiv(n, BLOCK_N)
    first = number // (GROUP * columns) * GROUP
    height = min(rows - first, GROUP)
    inside = number % (GROUP * columns)
    return first + inside % height, inside // height


@triton.jit
def linear_gelu(x, w, bias, out, m, n, k, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr):
    i, j = place(tl.program_id(0), m, n, BLOCK_M, BLOCK_N, GROUP)
    row = i * BLOCK_M + tl.arange(0, BLOCK_M)
    column = j * BLOCK_N + tl.arange(0, BLOCK_N)
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, k, BLOCK_K):
        depth = start + tl.arange(0, BLOCK_K)
        total = product(tile(x, row, depth, m, k), tile(w, column, depth, n, k), total)
    v = gelu(total + tl.load(bias + column, mask=column < n, other=0.0).to(tl.float32)[None, :])
    inside = (row < m)[:, None] & (column < n)[None, :]
    tl.store(out + row.to(tl.int64)[:, None] * n + column[None, :], v.to(out.dtype.element_ty), mask=inside)


@triton.jit
def linear_gelu_bulk(
    x, w, bias, out, m, n, k, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr, HALVES: tl.constexpr
):
    tiles = tl.cdiv(m, BLOCK_M) * tl.cdiv(n, BLOCK_N)
    for number in tl.range(tl.program_id(0), tiles, tl.num_programs(0), flatten=True):
        i, j = place(number, m, n, BLOCK_M, BLOCK_N, GROUP)
        total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for step in range(tl.cdiv(k, BLOCK_K)):
            total = tl.dot(x.load([i * BLOCK_M, step * BLOCK_K]), w.load([j * BLOCK_N, step * BLOCK_K]).T, total)
        if HALVES:  # half of the shared memory for the result, which leaves more for what comes
            left, right = tl.split(tl.permute(tl.reshape(total, (BLOCK_M, 2, BLOCK_N // 2)), (0, 2, 1)))
            column = j * BLOCK_N + tl.arange(0, BLOCK_N // 2)
            v = gelu(left + tl.load(bias + column, mask=column < n, other=0.0).to(tl.float32)[None, :])
            out.store([i * BLOCK_M, j * BLOCK_N], v.to(tl.bfloat16))
            column += BLOCK_N // 2
            v = gelu(right + tl.load(bias + column, mask=column < n, other=0.0).to(tl.float32)[None, :])
            out.store([i * BLOCK_M, j * BLOCK_N + BLOCK_N // 2], v.to(tl.bfloat16))
        else:
            column = j * BLOCK_N + tl.arange(0, BLOCK_N)
            v = gelu(total + tl.load(bias + column, mask=column < n, other=0.0).to(tl.float32)[None, :])
            out.store([i * BLOCK_M, j * BLOCK_N], v.to(tl.bfloat16))


def few(x, w, bias, out):
    """At most 64 rows: w is read once and that takes the time, so narrow tiles keep every multiprocessor reading."""
    (m, k), n = x.shape, w.shape[0]
    options = {"BLOCK_M": max(16, triton.next_power_of_2(m)), "BLOCK_N": FEW_N, "BLOCK_K": FEW_K, "GROUP": 1}
    grid = (triton.cdiv(n, FEW_N),)
    linear_gelu[grid](x, w, bias, out, m, n, k, num_warps=FEW_WARPS, num_stages=FEW_STAGES, **options)


def kernel(x, w, bias):
    (m, k), n = x.shape, w.shape[0]
    out = torch.empty(m, n, dtype=x.dtype, device=x.device)
    if m <= 64:
        few(x, w, bias, out)
        return out
    count = triton.cdiv(m, BLOCK_M) * triton.cdiv(n, BLOCK_N)
    options = {"BLOCK_M": BLOCK_M, "BLOCK_N": BLOCK_N, "BLOCK_K": BLOCK_K, "GROUP": GROUP, "num_warps": WARPS, "num_stages": STAGES}
    if k % 8 or n % 8:  # a tensor map wants rows of whole 16 bytes
        linear_gelu[(count,)](x, w, bias, out, m, n, k, **options)
        return out
    tiles = ((x, BLOCK_M, BLOCK_K), (w, BLOCK_N, BLOCK_K), (out, BLOCK_M, BLOCK_N // (1 + HALVES)))
    x, w, y = (TensorDescriptor.from_tensor(t, [height, width]) for t, height, width in tiles)
    processors = torch.cuda.get_device_properties(out.device).multi_processor_count
    linear_gelu_bulk[(min(count, processors * PROGRAMS),)](x, w, bias, y, m, n, k, HALVES=HALVES, **options)
    return out
