"""Attention of an arm, through the library's registry: filled slots, the library's own, or SDPA without repeated keys and values.

A library's own attention without filled slots is used as it is, with nothing around it. Must not know clocks, cells or other slots.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from keepfast.engine.torch_model import layers
from keepfast.engine.torch_seat import Seat
from keepfast.engine.torch_stage import Moment
from keepfast.errors import TaskError


def registered(model: Any, library: str, seats: tuple[Seat, ...], number: int, moment: Moment) -> str:
    """The name of the arm's attention in the library's registry. A library's own is used as it is, with nothing around it."""
    filled = {s.fill.slot: s for s in seats if s.fill.slot.startswith("attention")}
    ours = library.startswith("sdpa_gqa")
    if not ours:
        _supported(model, library)
        if not filled:
            return library
    name = f"keepfast_{library}_{number}"
    ALL_ATTENTION_FUNCTIONS.register(name, _attend(library, filled, moment))
    ALL_MASK_ATTENTION_FUNCTIONS.register(name, _mask(library, filled, moment))
    return name


def _supported(model: Any, library: str) -> None:
    try:
        model.set_attn_implementation(library)
    except (ValueError, ImportError) as error:
        step = "Another `attention`: eager works for every model"
        raise TaskError(f"{type(model).__name__} does not run with it: {error}", where=f"attention {library}", next_step=step) from None


def _attend(library: str, filled: dict[str, Seat], moment: Moment) -> Callable[..., Any]:
    decode, prefill = filled.get("attention_decode"), filled.get("attention_prefill")

    def attend(module: Any, query: Any, *states: Any, **more: Any) -> Any:
        """As the library calls it: `states` are keys, values and the mask."""
        key, value, attention_mask = states
        given = {"k": key, "v": value, "scale": more.get("scaling"), "sinks": more.get("s_aux"), "window": more.get("sliding_window") or 0}
        if decode is not None and decode.on and moment.phase == "decode" and query.shape[2] == 1:
            q = query[:, :, 0].contiguous()
            lengths = moment.windowed if getattr(module, "sliding_window", None) else moment.lengths
            made = decode(((*q.shape[:2], value.shape[3]), q.dtype), given | {"q": q, "lengths": lengths})
            return made[:, None], None
        if prefill is not None and prefill.on and moment.phase == "prefill" and query.shape[2] == key.shape[2]:
            q = query.transpose(1, 2).contiguous()
            return prefill(((*q.shape[:3], value.shape[3]), q.dtype), given | {"q": q}), None
        if library.startswith("sdpa_gqa"):
            return _grouped(library, moment, (query, key, value, attention_mask), more)
        return library_function(library, module)(module, query, key, value, attention_mask, **more)

    return attend


def _grouped(library: str, moment: Moment, given: tuple[Any, Any, Any, Any], more: dict[str, Any]) -> Any:
    """SDPA without repeating keys and values. `exact`: over the tokens that are there and no mask, which is right for one length only;
    `cudnn`: by that library or not at all."""
    query, key, value, mask = given
    if library == "sdpa_gqa_exact" and query.shape[2] == 1:
        key, value, mask = key[:, :, : moment.tokens + 1], value[:, :, : moment.tokens + 1], None
    causal = mask is None and query.shape[2] > 1
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION) if library == "sdpa_gqa_cudnn" else nullcontext():
        attended = torch.nn.functional.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, scale=more.get("scaling"), is_causal=causal, enable_gqa=True
        )
    return attended.transpose(1, 2).contiguous(), None


def _mask(library: str, filled: dict[str, Seat], moment: Moment) -> Callable[..., Any]:
    """None where a filled slot needs no mask, so that none is made; else what the library makes."""
    theirs = ALL_MASK_ATTENTION_FUNCTIONS["sdpa" if library.startswith("sdpa") else library]

    def mask(**given: Any) -> Any:
        slot = f"attention_{moment.phase}"
        if (given["q_length"] == 1) == (moment.phase == "decode") and (slot in filled and filled[slot].on):
            return None
        if library == "sdpa_gqa_exact" and given["q_length"] == 1 and moment.phase == "decode":
            return None
        return theirs(**given)

    return mask


def library_function(name: str, module: Any) -> Callable[..., Any]:
    if name == "eager":
        return getattr(sys.modules[type(module).__module__], "eager_attention_forward")  # type: ignore[no-any-return]
    return ALL_ATTENTION_FUNCTIONS[name]  # type: ignore[no-any-return]


def attention_needs(model: Any, slot: str) -> dict[str, str]:
    found = {}
    for layer in layers(model):
        attention = getattr(layer, "self_attn", None)
        name = type(attention).__name__
        if attention is None:
            raise TaskError(f"{type(layer).__name__} has no `self_attn`", where=f"slot {slot}", next_step="Take a slot that the model has")
        if getattr(attention, "attn_logit_softcapping", None) or getattr(attention, "softcap", None):
            raise TaskError(
                f"{name} caps its scores, which the slot does not say", where=f"slot {slot}", next_step="Leave it to the library"
            )
        if hasattr(attention, "sinks"):
            found["sinks"] = f"{name} has one a head"
        if slot == "attention_prefill" and getattr(attention, "sliding_window", None):
            found["window"] = f"{name} looks back {attention.sliding_window} tokens"
    return found
