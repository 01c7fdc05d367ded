"""The model of a plan: from a checkpoint or with random weights, how many bytes it needs, and its static caches.

One model object for all arms. Must not know arms, slots or clocks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import transformers
from msgspec import Struct

from keepfast.engine.base import Cell
from keepfast.engine.transformers import Plan, described
from keepfast.errors import MachineError, TaskError, nearest

SHORT = {
    "layers": "num_hidden_layers",
    "hidden": "hidden_size",
    "heads": "num_attention_heads",
    "kv_heads": "num_key_value_heads",
    "intermediate": "intermediate_size",
    "vocab": "vocab_size",
}
UNDECLARED = ("head_dim",)  # read by models whose configuration class does not declare it
CHUNK = 2048  # tokens of a prompt at once, when a cache is filled
SHORT_CONTEXT = 8192  # up to here a cache is prefilled, also with random weights
ROUND = 64  # of a cache's capacity: some kernels of the libraries want aligned masks
GB = 1e9
GAINS = {"q_proj": 4.0, "q_b_proj": 4.0, "down_proj": 2.0, "o_proj": 2.0}  # of random weights; others 1
INTO_RESIDUAL = ("down_proj", "o_proj")  # less by the root of the layers: rounding would grow from layer to layer as faults do


class Bytes(Struct, frozen=True):
    weights: int
    cache: int
    work: int

    def peak(self, *, float32: bool, arms: int = 1) -> int:
        """What a cell needs at most: every arm's graph has a pool of its own, which holds no prompt and no text; or, before there are any,
        in float32 the weights take their place and the cache is there a second time."""
        graphs = self.weights + self.cache + self.work + self.work // 2 * arms
        return max(graphs, self.work + self.weights * 2 + self.cache * 3) if float32 else graphs


# --------------------------------------------------------------------------------------------- configuration and weights


def config(plan: Plan) -> Any:
    """The configuration of transformers. TaskError for an unknown class or key, with the nearest."""
    table = described(plan.model)
    if isinstance(table, Path):
        return transformers.AutoConfig.from_pretrained(table, local_files_only=True)
    name = table["architecture"]
    architecture = getattr(transformers, name, None)
    if architecture is None or getattr(architecture, "config_class", None) is None:
        known = [n for n in dir(transformers) if n.endswith("ForCausalLM")]
        what = f"transformers {transformers.__version__} has no `{name}`.{nearest(name, known)}"
        raise TaskError(what, where="model", next_step='"architecture": "LlamaForCausalLM"')
    given = {SHORT.get(key, key): value for key, value in table.items() if key not in ("architecture", "seed")}
    kind = architecture.config_class
    usual = {*kind().to_dict(), *getattr(kind, "attribute_map", {}), *UNDECLARED}
    for key in given:
        if key not in usual:
            raise TaskError(f"{kind.__name__} has no `{key}`.{nearest(key, tuple(usual))}", where="model")
    return kind(**given, architectures=[name])


def seed(plan: Plan) -> int:
    table = described(plan.model)
    return plan.seed if isinstance(table, Path) else int(table.get("seed", plan.seed))


def load(plan: Plan, device: str) -> Any:
    """The model, in evaluation. On `meta` nothing but shapes. TaskError when its library has no such attention."""
    dtype = getattr(torch, plan.dtype)
    made = config(plan)
    source = described(plan.model)
    if isinstance(source, Path) and device != "meta":
        model = transformers.AutoModelForCausalLM.from_pretrained(source, dtype=dtype, local_files_only=True).to(device)
    else:
        torch.manual_seed(seed(plan))
        with torch.device(device):
            model = _architecture(made)._from_config(made, dtype=dtype)
        if plan.weights == "sensitive" and device != "meta":
            _sensitise(model)
    model.eval()
    model.requires_grad_(requires_grad=False)
    return model


def _sensitise(model: Any) -> None:
    """Each matrix of the layers hands on what it gets at its size, and attention looks at a few tokens instead of averaging all: so a fault
    in any slot reaches the logits, at any context. As the library draws weights, long attention and all of its queries hardly matter."""
    stack, words, out = layers(model), model.get_input_embeddings().weight, model.get_output_embeddings()
    for name, weight in stack.named_parameters():
        if weight.dim() > 1:
            transposed = getattr(stack.get_submodule(name.rpartition(".")[0]), "is_transposed", False)
            share = len(stack) ** -0.5 if any(part in name for part in INTO_RESIDUAL) else 1.0
            gain = next((g for part, g in GAINS.items() if part in name), 1.0)
            _sized(weight, gain * share / math.sqrt(weight.shape[-2 if transposed else -1]))
    if out is not None and out.weight is not words:  # tied, the logits would be as large as the words
        _sized(words, 1.0)
        _sized(out.weight, 2.0 / math.sqrt(out.weight.shape[-1]))


def _sized(weight: Any, size: float) -> None:
    """Scaled so that its elements have this root mean square."""
    now = float(torch.linalg.vector_norm(weight, dtype=torch.float32)) / math.sqrt(weight.numel())
    weight.data.mul_(size / now if now > 0 else 1.0)


def _architecture(made: Any) -> Any:
    name = (made.architectures or [""])[0]
    found = getattr(transformers, name, None)
    if found is None:
        raise TaskError(
            f"transformers {transformers.__version__} has no `{name}`", where="model", next_step='"architectures" of config.json'
        )
    return found


def title(plan: Plan, model: Any) -> str:
    """For people: class, layers, parameters."""
    count = sum(p.numel() for p in model.parameters())
    what = "random weights" if isinstance(described(plan.model), dict) else Path(plan.model).name
    shown = f"{count / 1e9:.3g} B" if count >= 1e8 else f"{count:,}"
    return f"{type(model).__name__}, {len(layers(model))} layers, {shown} parameters, {what}"


def layers(model: Any) -> Any:
    """The decoder's layers. TaskError for a model that has them elsewhere."""
    found = getattr(getattr(model, model.base_model_prefix, None), "layers", None)
    if found is None:
        what = f"{type(model).__name__} keeps no `layers` in its `{model.base_model_prefix}`"
        raise TaskError(what, where="model", next_step="Use a decoder-only class such as LlamaForCausalLM")
    return found


@contextmanager
def in_float32(model: Any) -> Iterator[None]:
    """Parameters in float32 inside, and what they were afterwards: float32 holds every bfloat16 and float16. Addresses change."""
    kinds = [(p, p.dtype) for p in model.parameters()]
    try:
        for parameter, _ in kinds:
            parameter.data = parameter.data.float()
        yield
    finally:
        for parameter, dtype in kinds:
            parameter.data = parameter.data.to(dtype)


# --------------------------------------------------------------------------------------------- caches


def capacity(cell: Cell) -> int:
    """Tokens that a cache of this cell holds: a prompt as it is; before a decode step the context, and the new token, rounded up."""
    return cell.context if cell.phase == "prefill" else -(-(cell.context + 1) // ROUND) * ROUND


def sliding(model: Any) -> int:
    """The window of layers with a sliding one, 0 without."""
    made = model.config.get_text_config(decoder=True)
    kinds = getattr(made, "layer_types", None) or ()
    return int(made.sliding_window) if "sliding_attention" in kinds and getattr(made, "sliding_window", None) else 0


class Cache:
    """A static cache whose end can be set: steps are repeated at one place, or walk along a given text."""

    def __init__(self, model: Any, cell: Cell) -> None:
        self.held = transformers.StaticCache(config=model.config, max_cache_len=capacity(cell))
        odd = next((type(x).__name__ for x in self.held.layers if not hasattr(x, "cumulative_length")), None)
        if odd is not None:
            what = f"its cache has states besides keys and values ({odd})"
            raise TaskError(what, where="model", next_step="Such models cannot be set back to a place in the text: use another")
        self._rolling: list[tuple[Any, Any, Any]] = []

    def keep(self) -> None:
        """What layers with a sliding window hold now is what `place` brings back: they shift at every step."""
        rolling = [layer for layer in self.held.layers if layer.is_sliding]
        self._rolling = [(layer, layer.keys.clone(), layer.values.clone()) for layer in rolling]

    def place(self, tokens: int) -> None:
        """The next token comes after so many. Launches a few small copies, and waits for nothing."""
        counters = [layer.cumulative_length for layer in self.held.layers]
        torch._foreach_zero_(counters)
        torch._foreach_add_(counters, tokens)
        for layer, keys, values in self._rolling:
            layer.keys.copy_(keys)
            layer.values.copy_(values)
            layer.cumulative_length_int = tokens

    def prefix(self, tokens: int) -> tuple[int, ...]:
        """A sum over the bits of what each layer holds of the first `tokens`; changes when anything is written there."""
        full = [layer for layer in self.held.layers if not layer.is_sliding]
        return tuple(_bits(x[:, :, :tokens]) for layer in full for x in (layer.keys, layer.values))

    def widened(self, model: Any, cell: Cell) -> Cache:
        """The same contents in float32."""
        made = Cache(model, cell)
        for mine, theirs in zip(made.held.layers, self.held.layers, strict=True):
            mine.lazy_initialization(theirs.keys[:, :, :0].float(), theirs.values[:, :, :0].float())
            mine.keys.copy_(theirs.keys)
            mine.values.copy_(theirs.values)
            if mine.is_sliding:
                mine.cumulative_length_int = theirs.cumulative_length_int
            mine.cumulative_length.copy_(theirs.cumulative_length)
        made.keep()
        return made


def _bits(x: Any) -> int:
    kind = {2: torch.int16, 4: torch.int32, 1: torch.int8}[x.element_size()]
    return sum(int(part.contiguous().view(kind).sum(dtype=torch.int64)) for part in x)


def filled(model: Any, cell: Cell, plan: Plan, tokens: int) -> Cache:
    """A cache whose first `tokens` are there: from a random text, or drawn (see `Plan.fill`)."""
    cache = Cache(model, cell)
    text = torch.Generator(device=model.device).manual_seed(seed(plan) + 1)
    ids = torch.randint(model.config.vocab_size, (cell.batch, tokens), generator=text, device=model.device)
    draw = plan.fill == "random" or (not plan.fill and isinstance(described(plan.model), dict) and cell.context > SHORT_CONTEXT)
    first = min(tokens, CHUNK)
    prompt(model, cache, ids[:, :first])
    for at in range(first, 0 if draw else tokens, CHUNK):
        prompt(model, cache, ids[:, at : at + CHUNK])
    if draw:
        for layer in cache.held.layers:
            layer.keys.normal_(generator=text)
            layer.values.normal_(generator=text)
            if layer.is_sliding:
                layer.cumulative_length_int = tokens
    cache.keep()
    return cache


def prompt(model: Any, cache: Cache, ids: Any, keep: int = 1) -> Any:
    """Logits of the last `keep` positions of a prompt, or of a part of one that follows what the cache holds."""
    return model(input_ids=ids, past_key_values=cache.held, use_cache=True, logits_to_keep=keep).logits


# --------------------------------------------------------------------------------------------- bytes


def needed(model: Any, cell: Cell, plan: Plan) -> Bytes:
    """Estimated from a model on `meta`: weights and cache exactly, the rest from the largest tensors of a step."""
    weights = sum(p.numel() * p.element_size() for p in {id(p): p for p in model.parameters()}.values())
    cache = Cache(model, cell)
    one = torch.zeros(cell.batch, 1, dtype=torch.long, device="meta")
    model.config._experts_implementation = (
        "batched_mm"  # of shapes alone the usual one takes bfloat16 only; models without experts ignore it
    )
    model(input_ids=one, past_key_values=cache.held, position_ids=one, logits_to_keep=1)
    held = [x.numel() * x.element_size() for layer in cache.held.layers for x in (layer.keys, layer.values)]
    made = model.config.get_text_config(decoder=True)
    item = model.dtype.itemsize
    repeated = (
        2 * max(held) * max(1, made.num_attention_heads // cache.held.layers[0].keys.shape[1])
    )  # one layer's keys and values, for every head
    tokens = cell.batch * min(cell.context, CHUNK if cell.phase == "decode" else cell.context)
    wide = max(getattr(made, "intermediate_size", 0), made.hidden_size)
    logits = cell.batch * min(plan.tokens, cell.context) * made.vocab_size * (item + 12)
    return Bytes(weights, sum(held), 2 * repeated + tokens * wide * item * 6 + logits)


def refuse_what_does_not_fit(model: Any, plan: Plan, free: int) -> None:
    """MachineError when a cell needs more than `free` bytes. `model` is on `meta`: nothing has been allocated yet."""
    for cell in plan.cells:
        need = needed(model, cell, plan).peak(float32=plan.float32 and plan.dtype != "float32", arms=len(plan.arms))
        if need > free:
            what = f"{cell.name} needs about {need / GB:.1f} GB ({need:,} bytes), and {free / GB:.1f} GB are free"
            step = "Leave the cell out, take fewer layers, or set float32 = false"
            raise MachineError(what, where=f"engine transformers, {plan.device}", next_step=step)
