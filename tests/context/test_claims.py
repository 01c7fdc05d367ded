"""What the hardware pages say of instructions, asked of ptxas: each is accepted or rejected for each target as the page says."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from keepfast.errors import MachineError
from keepfast.lang import nvcc

FOUR = ".reg .b32 a<4>; .reg .b32 b<2>; .reg .b32 c<4>; .reg .f32 f<4>; .reg .b16 h<4>; .reg .b64 r<4>; .reg .pred p;"
MMA = "mma.sync.aligned"
# what, PTX, where it is accepted, where it is rejected
CLAIMS = [
    ("FP8 mma.sync", f"{MMA}.m16n8k32.row.col.f32.e4m3.e4m3.f32 {{f0,f1,f2,f3}}, {{a0,a1,a2,a3}}, {{b0,b1}}, {{f0,f1,f2,f3}};",
     "89 90 90a 100a 120a", "80 86"),
    ("bfloat16 sums", f"{MMA}.m16n8k16.row.col.bf16.bf16.bf16.bf16 {{c0,c1}}, {{a0,a1,a2,a3}}, {{b0,b1}}, {{c0,c1}};",
     "", "80 86 89 90a 100a 120a"),
    ("FP8 products with float16 sums", f"{MMA}.m16n8k32.row.col.f16.e4m3.e4m3.f16 {{c0,c1}}, {{a0,a1,a2,a3}}, {{b0,b1}}, {{c0,c1}};",
     "89 120a", "80 86"),
    ("wgmma", "wgmma.fence.sync.aligned;", "90a", "80 86 89 90 100a 103a 120 120a"),
    ("setmaxnreg", "setmaxnreg.inc.sync.aligned.u32 232;", "90a 100a 120a", "89 90 100 120"),
    ("tcgen05, TMEM", "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [c0], 32;", "100a 100f 103a", "90a 100 120a"),
    ("pairs of blocks", "tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [c0], 32;", "100a 103a", "90a 120a"),
    ("int8 tcgen05", "tcgen05.mma.cta_group::1.kind::i8 [c0], r0, r1, c1, p;", "100a", "103a 120a"),
    ("float16 tcgen05", "tcgen05.mma.cta_group::1.kind::f16 [c0], r0, r1, c1, p;", "100a 103a", "90a 120a"),
    ("FP4 cvt", "{ .reg .b8 x; cvt.rn.satfinite.e2m1x2.f32 x, f0, f1; }", "100a 103a 120a 120f", "80 89 90a 100 120"),
    ("block-scaled FP4 mma.sync",
     f"{MMA}.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3 "
     "{f0,f1,f2,f3}, {a0,a1,a2,a3}, {b0,b1}, {f0,f1,f2,f3}, c0, {h0,h1}, c1, {h0,h1};", "120a 120f", "89 90a 100a 103a 120"),
    ("copy engine", "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [c0], [r0], 16, [c1];", "90 100 120", "80 86 89"),
    ("expect_tx", "mbarrier.arrive.expect_tx.shared::cta.b64 r0, [c0], 16;", "90 100 120", "80 86 89"),
    ("cp.async", "cp.async.cg.shared.global [c0], [r0], 16;", "80 86 89 90 100 120", ""),
    ("programmatic dependent launch", "griddepcontrol.wait;", "90 100 120", "80 86 89"),
    ("clusters", "barrier.cluster.arrive.aligned;", "90 100 120", "80 86 89"),
    ("stmatrix", "stmatrix.sync.aligned.m8n8.x1.shared.b16 [c0], {c1};", "90 100 120", "80 86 89"),
    ("elect.sync", "elect.sync c0|p, 0xffffffff;", "90 100 120", "80 86 89"),
    ("fma.f32x2", "fma.rn.f32x2 r0, r1, r2, r3;", "100 100a 120", "80 89 90a"),
    ("256-bit loads", "ld.global.v8.b32 {a0,a1,a2,a3,b0,b1,c0,c1}, [r0];", "100 120", "80 89 90a"),
    ("redux on floats", "redux.sync.max.f32 f0, f1, 0xffffffff;", "100a 103a", "89 90a 120a"),
    ("red.global.v4.f32", "red.global.add.v4.f32 [r0], {f0,f1,f2,f3};", "90 100 120", "80 86 89"),
    ("bfloat16x2 tanh", "tanh.approx.bf16x2 c0, c1;", "90 100 120", "80 86 89"),
    ("64 KiB of static shared memory", ".shared .align 16 .b8 s[65536]; mov.u64 r0, s; st.shared.b64 [r0], r0;", "90a 120a", "80 86 89"),
    ("1-bit and 4-bit products assemble everywhere",
     f"{MMA}.m16n8k64.row.col.s32.s4.s4.s32 {{c0,c1,c2,c3}}, {{a0,a1,a2,a3}}, {{b0,b1}}, {{c0,c1,c2,c3}};", "80 86 89 90a 100a 120a", ""),
]  # fmt: skip
ASKED = [(what, ptx, arch, True) for what, ptx, yes, _ in CLAIMS for arch in yes.split()]
ASKED += [(what, ptx, arch, False) for what, ptx, _, no in CLAIMS for arch in no.split()]


@pytest.fixture(scope="module")
def ptxas() -> str:
    try:
        found = nvcc.toolkit("sm_90").root / "bin" / "ptxas"
    except MachineError as missing:
        pytest.skip(str(missing))
    done = subprocess.run([str(found), "--version"], capture_output=True, text=True, check=True)
    if "release 13." not in done.stdout:
        pytest.skip("another ptxas than the pages speak of")
    return str(found)


@pytest.mark.parametrize(("what", "ptx", "arch", "accepted"), ASKED, ids=[f"{w}-{a}" for w, _, a, _ in ASKED])
def test_ptxas_says_so(ptxas: str, tmp_path: Path, what: str, ptx: str, arch: str, accepted: bool) -> None:
    text = f".version 9.0\n.target sm_{arch}\n.address_size 64\n.visible .entry k() {{ {FOUR} {ptx} ret; }}\n"
    (tmp_path / "k.ptx").write_text(text)
    argv = [ptxas, f"-arch=sm_{arch}", "k.ptx", "-o", "k.cubin"]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    assert "syntax error" not in said.lower()
    assert (done.returncode == 0) is accepted, said
