"""What callbacks note: images by module, memory from outside, launches astray. Records are laid out as CUPTI does, in host memory."""

from __future__ import annotations

import ctypes
import re
import shutil
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest

from keepfast.capture import cupti
from keepfast.capture.cupti import ALLOCATIONS, DRIVER_API, EXIT, LAUNCHES, LOADS, RESOURCE, Api, Images, cubin, has


class Caller:
    """Makes callbacks as the driver would."""

    def __init__(self, images: Images) -> None:
        self.images, self.keep = images, list[Any]()

    def words(self, *values: int) -> int:
        made = (ctypes.c_uint64 * len(values))(*values)
        self.keep.append(made)
        return ctypes.addressof(made)

    def call(self, which: int, parameters: int, *, site: int = EXIT, code: int = 0) -> None:
        result = ctypes.c_int(code)
        api = Api(site=site, parameters=parameters, returned=ctypes.addressof(result))
        self.images.see(DRIVER_API, which, ctypes.addressof(api))

    def module(self, image: bytes) -> None:
        data = ctypes.create_string_buffer(image, len(image))
        module = cupti._Module(1, len(image), ctypes.addressof(data))
        resource = cupti._Resource(None, None, ctypes.addressof(module))
        self.images.see(RESOURCE, 6, ctypes.addressof(resource))


@pytest.fixture
def caller() -> Caller:
    return Caller(Images())


def elf(kernel: str, filler: int = 0) -> bytes:
    """A file of two sections: the names, and one that takes no place."""
    names = b"\0.text." + kernel.encode() + b"\0" + bytes(filler)
    header = b"\x7fELF\x02\x01\x01".ljust(16, b"\0") + struct.pack("<HHIQQQIHHHHHH", 2, 190, 1, 0, 0, 64, 0, 64, 56, 0, 64, 2, 0)
    at = 64 + 2 * 64
    text = struct.pack("<IIQQQQIIQQ", 1, 3, 0, 0, at, len(names), 0, 0, 1, 0)
    empty = struct.pack("<IIQQQQIIQQ", 0, 8, 0, 0, at, 1 << 40, 0, 0, 1, 0)
    return header + text + empty + names


def test_the_size_of_a_cubin_is_read_from_it() -> None:
    for filler in (0, 1000):
        made = elf("add", filler)
        padded = ctypes.create_string_buffer(made + b"beyond", len(made) + 6)
        assert cubin(ctypes.addressof(padded)) == made
    text = ctypes.create_string_buffer(b"// PTX text")
    assert cubin(ctypes.addressof(text)) == b""
    assert cubin(0) == b""


def test_a_real_cubin(tmp_path: Path) -> None:
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        pytest.skip("no nvcc")
    source = tmp_path / "a.cu"
    source.write_text(
        '__device__ int g; extern "C" __global__ void add_more(float *x) { *x += g; }\n__global__ void add(int *y) { *y = 1; }\n'
    )
    out = tmp_path / "a.cubin"
    subprocess.run([nvcc, "-cubin", "-gencode=arch=compute_90a,code=sm_90a", str(source), "-o", str(out)], check=True)
    image = out.read_bytes()
    buffer = ctypes.create_string_buffer(image + bytes(64), len(image) + 64)
    assert cubin(ctypes.addressof(buffer)) == image
    assert has(image, b"add_more")
    assert has(image, b"_Z3addPi")
    assert not has(image, b"add")


def test_a_module_is_known_by_its_handle(caller: Caller) -> None:
    first, second = elf("add", 8), elf("add", 16)
    for handle, image in ((0xA0, first), (0xB0, second)):
        data = ctypes.create_string_buffer(image, len(image))
        caller.module(image)
        for which in LOADS.keys() - cupti.FROM_FILE:
            caller.call(which, caller.words(caller.words(handle), ctypes.addressof(data)))
    assert caller.images.of(b"add", 0xA0) == first
    assert caller.images.of(b"add", 0xB0) == second
    assert caller.images.of(b"add", 0xC0) == second, "of an unknown module: the newest"
    assert caller.images.of(b"mul", 0xA0) is None


def test_a_module_may_come_from_a_file(caller: Caller, tmp_path: Path) -> None:
    """torch.compile loads its kernels so, and names many of them alike."""
    for which, handle in ((18, 0xA0), (679, 0xB0)):
        path = tmp_path / f"{which}.cubin"
        path.write_bytes(elf("add", which))
        text = ctypes.create_string_buffer(str(path).encode())
        caller.call(which, caller.words(caller.words(handle), ctypes.addressof(text)))
    caller.module(elf("add", 1))
    assert caller.images.of(b"add", 0xA0) == elf("add", 18)
    caller.images.name_libraries(lambda library: library + 1)
    assert caller.images.of(b"add", 0xB1) == elf("add", 679)
    path.write_bytes(b"//PTX")
    caller.call(18, caller.words(caller.words(0xA0), ctypes.addressof(text)))
    assert caller.images.of(b"add", 0xA0) == elf("add", 1)


def test_a_handle_that_comes_again_is_forgotten(caller: Caller) -> None:
    image, ptx = elf("add"), ctypes.create_string_buffer(b".version 8.0 .entry add")
    data = ctypes.create_string_buffer(image, len(image))
    caller.call(19, caller.words(caller.words(0xA0), ctypes.addressof(data)))
    caller.call(19, caller.words(caller.words(0xA0), ctypes.addressof(ptx)))
    assert caller.images.given == {}


def test_calls_that_failed_or_have_not_ended_count_nothing(caller: Caller) -> None:
    image = elf("add")
    data = ctypes.create_string_buffer(image, len(image))
    place = caller.words(caller.words(0xA0), ctypes.addressof(data))
    caller.call(19, place, site=0)
    caller.call(19, place, code=209)
    assert caller.images.given == {}


def test_a_name_that_only_appears_in_an_image_is_the_last_resort(caller: Caller) -> None:
    caller.module(b"cubin with odd sections: add")
    assert caller.images.of(b"add") == b"cubin with odd sections: add"
    caller.module(elf("add_more"))
    caller.module(elf("add"))
    caller.module(elf("add_more"))
    assert caller.images.of(b"add") == elf("add")


def test_memory_from_the_driver_is_noted_with_the_line_that_took_it(caller: Caller) -> None:
    caller.images.where = lambda: "kernel.py:3"
    for which in ALLOCATIONS:
        if which != cupti.PITCHED:
            caller.call(which, caller.words(caller.words(0x7000), 4096))
    caller.call(cupti.PITCHED, caller.words(caller.words(0x7000), caller.words(512), 300, 8, 4))
    assert {(o.start, o.end, o.where) for o in caller.images.outside} == {(0x7000, 0x8000, "kernel.py:3")}
    assert len(caller.images.outside) == len(ALLOCATIONS)


def test_launches_that_become_no_part_of_a_graph_are_noted(caller: Caller) -> None:
    asked: list[int] = []

    def captures(stream: int) -> bool:
        asked.append(stream)
        return stream == 0x5EED

    caller.images.captures = captures
    caller.images.where = lambda: "kernel.py:9: `k[grid](x)`"
    # cuLaunchKernel: f, seven 32-bit numbers and four bytes of nothing, the stream
    caller.call(307, caller.words(1, 0, 0, 0, 0, 0x5EED, 0, 0), site=0)
    caller.call(307, caller.words(1, 0, 0, 0, 0, 0xBAD, 0, 0), site=0)
    caller.call(307, caller.words(1, 0, 0, 0, 0, 0xBAD, 0, 0), site=EXIT)
    caller.call(442, caller.words(1, 0, 0, 0, 0, 0, 0, 0), site=0)
    config = caller.words(0, 0, 0, 0, 0)
    caller.call(652, caller.words(config, 1, 0, 0), site=0)
    caller.call(281, caller.words(0x100, 0x200, 64, 0x5EED), site=0)
    caller.call(514, caller.words(0x77, 0xBAD), site=0)
    assert asked == [0x5EED, 0xBAD, 2, 0, 0x5EED, 0xBAD]
    at = "kernel.py:9: `k[grid](x)`: "
    assert caller.images.astray == [
        f"{at}cuLaunchKernel on a stream of its own",
        f"{at}cuLaunchKernel on the default stream",
        f"{at}cuLaunchKernelEx on the default stream",
        f"{at}cuGraphLaunch on a stream of its own",
    ]


def test_callback_ids_are_those_of_the_toolkit() -> None:
    header = Path("/usr/local/cuda/include/cupti_driver_cbid.h")
    if not header.is_file():
        pytest.skip("no CUPTI headers")
    ids = {}
    for line in header.read_text().splitlines():
        if "_CBID_cu" in line:
            name, number = line.replace(",", "").split("=")
            ids[int(number)] = name.split("_CBID_")[1].strip()
    known = {**LOADS, **cupti.LIBRARY_LOADS, **ALLOCATIONS, **{n: name for n, (name, _) in LAUNCHES.items()}}
    plain = {n: ids[n].removesuffix("_ptsz").removesuffix("_v2") for n in known}
    assert plain == known
    assert {n for n in LAUNCHES if ids[n].endswith("_ptsz")} == cupti._OWN_DEFAULT


def test_places_of_streams_are_those_of_the_toolkit(tmp_path: Path) -> None:
    gcc, header = shutil.which("gcc"), Path("/usr/local/cuda/include/generated_cuda_meta.h")
    if gcc is None or not header.is_file():
        pytest.skip("no CUDA headers")
    names = {
        which: {"cuMemcpyDtoDAsync": "_v2", "cuMemcpyHtoDAsync": "_v2", "cuMemcpyDtoHAsync": "_v2", "cuMemcpy2DAsync": "_v2"}.get(name, "")
        for which, (name, _) in LAUNCHES.items()
    }
    wanted = [(f"{LAUNCHES[n][0]}{end}", LAUNCHES[n][1]) for n, end in names.items() if LAUNCHES[n][1] >= 0]
    text = header.read_text()
    records = [re.search(rf"typedef struct {name}_params_st \{{.*?\}} {name}_params;", text, re.DOTALL) for name, _ in wanted]
    checks = [f'_Static_assert(offsetof({name}_params, hStream) == {at}, "{name}");' for name, at in wanted]
    checks += [f'_Static_assert(offsetof(CUlaunchConfig, hStream) == {cupti._CONFIG_STREAM}, "config");']
    made = dict.fromkeys(found[0] for found in records if found)
    assert len(records) == len([found for found in records if found])
    source = "\n".join(("#include <stddef.h>", "#include <cuda.h>", *made, *checks, ""))
    subprocess.run([gcc, "-fsyntax-only", "-I/usr/local/cuda/include", "-xc", "-"], input=source.encode(), check=True)
