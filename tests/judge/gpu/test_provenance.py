"""Where kernels come from, on names as they were seen in profiles and cubins; languages and rules judged on shares of GPU time."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from msgspec import Struct

from keepfast.gpu.messages import KernelFacts
from keepfast.judge.endings import Failure
from keepfast.judge.gpu import provenance
from keepfast.judge.gpu.provenance import Authored, classify, jitted, judge_language, judge_rules, short
from keepfast.model import File, Reason, Rules

NVJET = "nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_NNT"
FILL = "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIfEESt5arrayIPcLm1EEEEviT0_T1_"
INDUCTOR = "triton_red_fused__to_copy_add_mean_mul_pow_rsqrt_0"
CUTE = (
    "kernel_cutlass_kernel___main__RMSNormKernel_object_at__tensorptrbf16gmemalign16o409640961_"
    "tensorptrbf16_gmem_align16_o_40961_tensorptrbf16gmemalign16o409640961__2_4096_0"
)

NAMES = {
    "aten": [
        FILL,
        "_ZN2at6native29vectorized_elementwise_kernelILi4EZZZNS0_49_GLOBAL__N__d2ba64fb_16_TensorCompare_cu_71e06f4e19launch_clamp_scalarERNS_"
        "18TensorIteratorBaseEN3c106ScalarES6_NS0_6detail11ClampLimitsEENKUlvE_clEvENKUlvE5_clEvEUlfE_St5arrayIPcLm2EEEEviT0_T1_",
        "_ZN2at6native13reduce_kernelILi512ELi1ENS0_8ReduceOpIfNS0_7MeanOpsIffEEjfLi4EEEEEvT1_",
        "_ZN2at6native53_GLOBAL__N__87a90936_20_layer_norm_kernel_cu_3ff0b71f39layer_norm_grad_input_kernel_vectorizedIfEEvv",
        "_ZN43_GLOBAL__N__b6de9c8c_10_SoftMax_cu_9f978f6320softmax_warp_forwardIfffLi10ELb0ELb0EEEvPT0_PKT_iiiPKbib",
        "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, std::array<char*, 1>>(int, float)",
        "void at::native::(anonymous namespace)::cunn_SoftMaxForward<8, float, float, float>(float*, float const*, int)",
    ],
    "cublas": [
        NVJET,
        "nvjet_tst_192x192_64x4_2x1_v_bz_coopB_TNN",
        "nvjet_sm100_tst_64x16_64x16_2x4_2cta_h_bz_splitK_TNT",
        "_ZN8cublasLt19splitKreduce_kernelILi32ELi16Ei6__halfS1_fS1_Lb1ELb0ELb0EEEvNS_18cublasSplitKParamsIT4_EEPKT2_PKT3_",
        "_ZN8internal5gemvx6kernelIii13__nv_bfloat16S2_S2_fLb0ELb1ELb1ELb0ELi7ELb0E18cublasGemvParamsExIi30cublasGemvTensorStridedBatched"
        "IKS2_ES6_S4_IS2_EfEEENSt9enable_ifIXntT5_EvE4typeET11_",
        "_Z17gemv2T_kernel_valIiiffffLi128ELi16ELi4ELi4ELb0ELb1E18cublasGemvParamsExIi30cublasGemvTensorStridedBatchedIKfES3_S1_IfEfEEvT11_",
        "sm80_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize32x32x64_stage6_warpsize2x2x1_tensor16x8x16_execute_kernel__5x_cublas",
        "sm90_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas",
        "ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x4_tn",
        "ampere_sgemm_128x128_nt",
        "volta_sgemm_64x64_nn",
    ],
    "cudnn": [
        "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_128x128x64_4x1x1_cga1x1x1_kernel0_0",
        "cudnn_generated_oss_sdpa_sm100_flash_fprop_f16_knob_7_128x128x64_4x1x1_cga1x1x1_kernel0_0",
        "_ZN5cudnn3ops16nchwToNhwcKernelI6__halfS2_fLb0ELb1ELNS_15cudnnKernelDataE0EEEvv",
        "volta_scudnn_128x64_relu_interior_nn_v1",
        "implicit_convolve_sgemm",
    ],
    "inductor": [
        INDUCTOR,
        "triton_poi_fused_mul_silu_slice_1",
        "triton_per_fused__softmax_0",
        "triton_tem_fused_mm_0",
        "triton_poi__0",
        "triton_",
    ],
    "flash": [
        "_ZN13pytorch_flash16flash_fwd_kernelINS_23Flash_fwd_kernel_traitsILi64ELi128ELi128ELi4ELb0ELb0EN7cutlass6half_tENS_19Flash_kernel_"
        "traitsILi64ELi128ELi128ELi4ES3_EEEELb0ELb1ELb0ELb0ELb1ELb1ELb0EEEvNS_16Flash_fwd_paramsE",
        "_ZN5flash24flash_fwd_splitkv_kernelI23Flash_fwd_kernel_traitsILi128ELi64ELi128ELi4ELb0ELb0EN7cutlass10bfloat16_tEEEEvv",
        "_ZN7cutlass13device_kernelIN5flash20enable_sm90_or_laterINS1_16FlashAttnFwdSm90INS1_25CollectiveMainloopFwdSm90ILi2EEEEEEEEEvv",
        "_ZN10flashinfer33BatchDecodeWithPagedKVCacheKernelILNS_15PosEncodingModeE0ELj2ELj1ELj8ELj16ELj8ELj1ENS_16DefaultAttentionILb0E"
        "Lb0ELb0ELb0EEENS_17BatchDecodeParamsI13__nv_bfloat16S5_S5_iEEEEvT7_",
        "void pytorch_flash::flash_fwd_splitkv_combine_kernel<traits>(params)",
        "fmha_cutlassF_bf16_aligned_64x128_rf_sm80",
        "_Z43fmha_cutlassF_bf16_aligned_64x128_rf_sm80N22PyTorchMemEffAttention15AttentionKernelE",
        "kernel_cutlass_kernel_flash_attncuteflash_fwd_sm100FlashAttentionForwardSm100_object_at__tensor0000o11101213_None_None_None_Non_0",
        "kernel_cutlass_kernel_flashinfernormkernelsfused_add_rmsnormFusedAddRMSNormKernel_object_at__tensorptrbf16gmemalign128o204820481_0",
    ],
    "cutlass-library": [
        "_ZN7cutlass7Kernel2I50cutlass_80_tensorop_s1688gemm_64x64_16x6_tn_align4EEvNT_6ParamsE",
        "_ZN7cutlass13device_kernelINS_4gemm6kernel13GemmUniversalIN4cute5tupleIJiiiiEEENS1_10collective13CollectiveMmaEEEEEEvv",
        "cutlass3x_sm100_simt_sgemm_f32_f32_f32_f32_f32_128x128x16_1x1x1_3_tnn_align1_bias_f32_relu",
        "void cutlass::Kernel2<cutlass_80_wmma_tensorop_s161616gemm_f16_32x32_128x2_tn_align8>(T1::Params)",
    ],
    "nccl": ["ncclDevKernel_AllReduce_Sum_bf16_RING_LL", "_Z40ncclDevKernel_AllReduce_Sum_bf16_RING_LL24ncclDevKernelArgsStorageILm4096EE"],
    "other-library": [
        "kernel_cutlass_kernel_quackgemm_default_epiGemmDefaultSm90_object_at__0",
        "_ZN4vllm15rms_norm_kernelIN3c108BFloat16EEEvPT_PKS3_S6_fii",
    ],
    "cute": [
        CUTE,
        "kernel_cutlass_elementwise_add_kernel_tensorptrf32gmemo16128i641i64div16128_tensor00o1612810111601281___0",
        "kernel_cutlass__convert_kernel_tensorptrf16gmemalign16o125611101000256_Float16_Float32_0",
    ],
    "unknown": [
        "rms_k",
        "_rms_norm_forward_kernel",
        "_per_token_group_quant_fp8",
        "triton_per_token_quant",
        "triton_softmax_kernel",
        "hopper_gemm_kernel",
        "beats_cublas",
        "my_nvjet_like",
        "_Z9my_kernelIN3c108BFloat16EEvPT_",
        "_ZN4mine3addIfEEvPT_i",
        "",
        "_Z",
        "_ZN99999at",
    ],
}  # fmt: skip


class Made(Struct, frozen=True):
    files: tuple[File, ...] = ()
    library: Path | None = None


RMS = b"import triton\nimport triton.language as tl\n\n@triton.jit\ndef rms_k(x, y):\n    pass\n"
TRITON = Made((File("kernel/kernel.py", RMS),))


def kernels(*named: tuple[str, float], launches: int = 1) -> tuple[KernelFacts, ...]:
    return tuple(KernelFacts(name, launches, 32, 0, 0, 128, share) for name, share in named)


def refused(languages: tuple[str, ...], tree: Made, *named: tuple[str, float]) -> str:
    found = judge_language(languages, tree, kernels(*named))
    assert isinstance(found, Failure), found
    assert found.reason is Reason.LANGUAGE
    return found.detail


@pytest.mark.parametrize(("origin", "name"), [(origin, name) for origin, names in NAMES.items() for name in names])
def test_a_name_tells_where_a_kernel_comes_from(origin: str, name: str) -> None:
    assert classify(name) == origin


def test_names_are_shown_without_template_arguments() -> None:
    assert short(FILL) == "at::native::vectorized_elementwise_kernel"
    assert short(NAMES["aten"][4]) == "softmax_warp_forward"
    assert short("void cutlass::device_kernel<flash::enable_sm90<int>>(int)") == "cutlass::device_kernel"
    assert short("rms_k") == "rms_k"
    assert len(short(CUTE)) == provenance.LONG


def test_long_and_hostile_names_cost_little() -> None:
    for name in ("_triton_poi_fused" * 100_000, "_ZN" + "1a" * 500_000, "x" * 1_000_000, "_Z" + "9" * 1_000_000):
        assert classify(name) in ("unknown", "inductor")


# ---- what files define


def test_functions_given_to_jit_are_found_however_it_is_spelled() -> None:
    source = b"""
import triton as tr
import triton.language as tl
from triton import autotune, jit as compile_it
from triton.experimental import gluon
import numba

@tr.jit
def one(): ...

@autotune(configs=[], key=[])
@compile_it(do_not_specialize=["n"])
def two(): ...

@gluon.jit
def three(): ...

def four(): ...
kernel = tr.jit(four)
other = tr.jit(noinline=True)(five)

@numba.jit
def not_this(): ...

@tl.jit_like
def nor_this(): ...
"""
    assert jitted((File("k.py", source), File("notes.txt", b"@triton.jit\ndef six(): ..."))) == {"one", "two", "three", "four", "five"}


HOSTILE = (b"def (", b"\0", b"\xff", b"(" * 100_000, b"-" * 200_000 + b"1", b"a" + b".b" * 50_000, b"a" + b"()" * 50_000, b"#" * (5 << 20))


@pytest.mark.parametrize("source", HOSTILE)
def test_files_that_are_not_python_define_nothing(source: bytes) -> None:
    assert jitted((File("k.py", source),)) == frozenset()


def test_a_warning_about_the_source_is_not_shown(recwarn: pytest.WarningsRecorder) -> None:
    assert jitted((File("k.py", rb"import triton" + b"\nx = '\\d'\n@triton.jit\ndef k(): ...\n"),)) == {"k"}
    assert not recwarn.list


def test_kernels_of_the_library_are_known_by_their_names_in_it(tmp_path: Path) -> None:
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        pytest.skip("no nvcc")
    (tmp_path / "k.cu").write_text(
        """namespace flash { template <class T> __global__ void flash_fwd_kernel(T *x) { x[threadIdx.x] += 1; } }
        namespace { __global__ void hidden(float *x) { x[threadIdx.x] = 2; } }
        extern "C" int keepfast_call(unsigned long long *w) {
            flash::flash_fwd_kernel<float><<<1, 32>>>((float *)w[0]); hidden<<<1, 32>>>((float *)w[0]); return 0;
        }"""
    )
    command = [nvcc, "-shared", "-Xcompiler=-fPIC,-fvisibility=hidden", "-gencode=arch=compute_90a,code=sm_90a"]
    subprocess.run([*command, "-o", str(tmp_path / "k.so"), str(tmp_path / "k.cu")], check=True)
    authored = Authored(Made(library=tmp_path / "k.so"))
    assert authored.origin("_ZN5flash16flash_fwd_kernelIfEEvPT_") == "own"
    assert authored.origin("_ZN5flash16flash_fwd_kernelIdEEvPT_") == "flash"
    assert authored.origin("_ZN5flash16flash_fwd_kernelIfEEvP") == "flash"  # part of a name


# ---- languages


def test_own_kernels_in_the_language_asked_for_pass(tmp_path: Path) -> None:
    found = judge_language(("triton",), TRITON, kernels(("rms_k", 0.97), (FILL, 0.03)))
    assert not isinstance(found, Failure)
    assert [(f.name, f.value) for f in found] == [
        ("from Triton", "97 % of GPU time, 1 of 2 launches: `rms_k`"),
        ("from PyTorch (ATen)", "3.0 % of GPU time, 1 of 2 launches: `at::native::vectorized_elementwise_kernel`"),
    ]
    assert not isinstance(judge_language(("cute",), Made(), kernels((CUTE, 1.0))), Failure)
    (tmp_path / "out.so").write_bytes(b"\x7fELF..\0_ZN4mine3addIfEEvPT_i\0..")
    assert not isinstance(judge_language(("cuda",), Made(library=tmp_path / "out.so"), kernels(("_ZN4mine3addIfEEvPT_i", 1.0))), Failure)
    assert not isinstance(judge_language(("torch",), Made(), kernels((NVJET, 1.0))), Failure)
    assert not isinstance(judge_language(("cuda", "triton"), TRITON, kernels(("rms_k", 1.0))), Failure)


def test_declared_and_never_launched() -> None:
    detail = refused(("triton",), TRITON, (NVJET, 0.9), (FILL, 0.1))
    assert detail == f"declares the Triton kernel `rms_k` and never launches one of its own: 90 % of GPU time is in cuBLAS (`{NVJET}`)"


def test_a_fig_leaf() -> None:
    detail = refused(("triton",), TRITON, (NVJET, 0.94), ("rms_k", 0.06))
    assert detail == f"its triton kernels (`rms_k`) have 6.0 % of GPU time, half is the least; 94 % of GPU time is in cuBLAS (`{NVJET}`)"


def test_another_language_than_asked_for(tmp_path: Path) -> None:
    assert refused(("cute",), TRITON, ("rms_k", 1.0)) == "asked for cute, wrote Triton: `rms_k` has 100 % of GPU time"
    assert "asked for triton, wrote CuTe DSL: `kernel_cutlass_kernel___main__RMSNormKernel" in refused(("triton",), Made(), (CUTE, 1.0))
    (tmp_path / "out.so").write_bytes(b"\0own_k\0")
    assert "asked for triton or cute, wrote CUDA C++" in refused(("triton", "cute"), Made(library=tmp_path / "out.so"), ("own_k", 1.0))


def test_kernels_that_nobody_knows_are_not_the_language_asked_for() -> None:
    detail = refused(("triton",), Made(), ("_rms_norm_forward_kernel", 1.0))
    assert "none of it was launched: 100 % of GPU time is in kernels that its files do not define (`_rms_norm_forward_kernel`)" in detail


def test_torch_compile_is_not_triton_even_under_a_declared_name() -> None:
    assert "torch.compile (Inductor)" in refused(("triton",), TRITON, (INDUCTOR, 1.0))
    pasted = Made((File("k.py", f"import triton\n@triton.jit\ndef {INDUCTOR}(): ...\n".encode()),))
    assert "is a name that torch.compile gives; call the kernel something else" in refused(("triton",), pasted, (INDUCTOR, 1.0))


def test_no_kernel_at_all() -> None:
    assert refused(("triton",), TRITON) == "asked for triton, and it launches no kernel at all"


def test_launches_stand_for_time_where_nothing_was_profiled() -> None:
    counted = (*kernels(("rms_k", 0.0), launches=3), *kernels((FILL, 0.0)))
    assert not isinstance(judge_language(("triton",), TRITON, counted), Failure)
    assert isinstance(judge_language(("triton",), TRITON, (*kernels(("rms_k", 0.0)), *kernels((FILL, 0.0), launches=3))), Failure)


# ---- rules


def test_forbidden_library_kernels_are_named_with_their_shares() -> None:
    found = judge_rules(Rules(library_kernels="forbidden"), kernels(("rms_k", 0.55), (NVJET, 0.4), (FILL, 0.05)), TRITON)
    assert isinstance(found, Failure)
    assert found.reason is Reason.RULE
    expected = f"library kernels have 45 % of GPU time, the task forbids them: cuBLAS 40 %: `{NVJET}`; PyTorch (ATen) 5.0 %"
    assert found.detail.startswith(expected)


def test_a_little_of_a_library_is_no_library() -> None:
    rules = Rules(library_kernels="forbidden")
    assert not isinstance(judge_rules(rules, kernels(("rms_k", 0.991), (FILL, 0.009)), TRITON), Failure)
    many = kernels(("rms_k", 0.97), (FILL, 0.01), (FILL.replace("Fill", "Copy"), 0.01), (FILL.replace("Fill", "Cast"), 0.01))
    assert isinstance(judge_rules(rules, many, TRITON), Failure)


def test_a_share_may_be_allowed() -> None:
    given = kernels(("rms_k", 0.8), (NVJET, 0.2))
    (fact,) = judge_rules(Rules(library_kernels="0.2"), given, TRITON)
    assert (fact.name, fact.value) == ("library kernels", "20 % of GPU time")
    found = judge_rules(Rules(library_kernels="0.15"), given, TRITON)
    assert isinstance(found, Failure)
    assert "the task allows 15 %" in found.detail
    assert judge_rules(Rules(), kernels(("rms_k", 1.0)), TRITON) == ()
