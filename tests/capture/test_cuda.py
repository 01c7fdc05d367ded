"""Entry points that are called without a binding: against a library of the same prototypes, made from the driver's header."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from keepfast.capture.cuda import ACTIVE, INVALIDATED, Raw
from keepfast.capture.graph import Edge
from keepfast.gpu.driver import CudaError

STUB = """
#include <cuda.h>
#define GRAPH ((CUgraph)0x7f00000000000010)
#define NODE(i) ((CUgraphNode)(0x7f00000000001000 + (i)))

CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status) {
    if (stream == 0) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    *status = stream == (CUstream)0x7f0000005eed ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
}

CUresult cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
                                   const CUgraphNode **dependencies, size_t *count) {
    if (dependencies || count) return CUDA_ERROR_LOSSY_QUERY;
    *id = ~0ull;
    *graph = GRAPH;
    *status = stream == (CUstream)0x7f0000005eed ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_INVALIDATED;
    return CUDA_SUCCESS;
}

CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count) {
    if (graph != GRAPH) return CUDA_ERROR_INVALID_VALUE;
    if (!nodes) return *count = 3, CUDA_SUCCESS;
    for (size_t i = 0; i < *count; i++) nodes[i] = NODE(i);
    return CUDA_SUCCESS;
}

CUresult cuGraphGetEdges(CUgraph graph, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *data, size_t *count) {
    if (graph != GRAPH) return CUDA_ERROR_INVALID_VALUE;
    if (!from) return *count = 2, CUDA_SUCCESS;
    if (!data) return CUDA_ERROR_LOSSY_QUERY;
    for (size_t i = 0; i < *count; i++) {
        from[i] = NODE(i), to[i] = NODE(i + 1);
        data[i] = (CUgraphEdgeData){.from_port = i ? CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC : 0, .type = i};
    }
    return CUDA_SUCCESS;
}
"""


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Raw:
    gcc = shutil.which("gcc")
    if gcc is None or not Path("/usr/local/cuda/include/cuda.h").is_file():
        pytest.skip("no CUDA headers")
    folder = tmp_path_factory.mktemp("stub")
    (folder / "stub.c").write_text(STUB)
    argv = [gcc, "-shared", "-fPIC", "-I/usr/local/cuda/include", str(folder / "stub.c"), "-o", str(folder / "stub.so")]
    subprocess.run(argv, check=True)
    return Raw(str(folder / "stub.so"))


def test_streams(raw: Raw) -> None:
    assert raw.capturing(0x7F0000005EED)
    assert not raw.capturing(0x7F0000000BAD)
    assert not raw.capturing(0), "the legacy stream, while another is captured"
    assert raw.capture(0x7F0000005EED) == (ACTIVE, 0x7F00000000000010)
    assert raw.capture(0x7F0000000BAD)[0] == INVALIDATED


def test_graphs(raw: Raw) -> None:
    graph = 0x7F00000000000010
    nodes = [0x7F00000000001000 + i for i in range(3)]
    assert raw.nodes(graph) == nodes
    assert raw.edges(graph) == [Edge(nodes[0], nodes[1], 0), Edge(nodes[1], nodes[2], 1)]
    with pytest.raises(CudaError, match="cuGraphGetNodes: error 1"):
        raw.nodes(7)
