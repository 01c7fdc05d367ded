"""out = gelu(x @ w.T + bias): warps with roles. Four warps fetch, twice four multiply, each half of a tile.

With warp_specialize and num_warps=4 Triton makes three groups of four warps and gives the registers to those that multiply. The
fetching warps are ahead by STAGES steps, also across the end of a tile, while the others apply GELU and store. The result is
stored through pointers: the pass that splits a tile among two groups refuses a store by the copy engine.
"""

import torch
import triton
import triton.language as tl
from keepfast_tunables import BLOCK_K, BLOCK_M, BLOCK_N, FEW_K, FEW_N, FEW_STAGES, FEW_WARPS, GROUP, STAGES
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
def linear_gelu_roles(x, w, bias, out, m, n, k, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr):
    tiles = tl.cdiv(m, BLOCK_M) * tl.cdiv(n, BLOCK_N)
    for number in tl.range(tl.program_id(0), tiles, tl.num_programs(0), warp_specialize=True):
        i, j = place(number, m, n, BLOCK_M, BLOCK_N, GROUP)
        total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for step in range(tl.cdiv(k, BLOCK_K)):
            total = tl.dot(x.load([i * BLOCK_M, step * BLOCK_K]), w.load([j * BLOCK_N, step * BLOCK_K]).T, total)
        row = i * BLOCK_M + tl.arange(0, BLOCK_M)
        column = j * BLOCK_N + tl.arange(0, BLOCK_N)
        v = gelu(total + tl.load(bias + column, mask=column < n, other=0.0).to(tl.float32)[None, :])
        inside = (row < m)[:, None] & (column < n)[None, :]
        tl.store(out + row.to(tl.int64)[:, None] * n + column[None, :], v.to(out.dtype.element_ty), mask=inside)


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
    options = {"BLOCK_M": BLOCK_M, "BLOCK_N": BLOCK_N, "BLOCK_K": BLOCK_K, "GROUP": GROUP, "num_stages": STAGES}
    if k % 8 or n % 8:  # a tensor map wants rows of whole 16 bytes
        linear_gelu[(count,)](x, w, bias, out, m, n, k, num_warps=8, **options)
        return out
    maps = [TensorDescriptor.from_tensor(t, [height, BLOCK_K]) for t, height in ((x, BLOCK_M), (w, BLOCK_N))]
    processors = torch.cuda.get_device_properties(out.device).multi_processor_count
    linear_gelu_roles[(min(count, processors),)](*maps, bias, out, m, n, k, num_warps=4, **options)
    return out
