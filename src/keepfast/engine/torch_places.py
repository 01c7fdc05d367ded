"""Where slots other than attention go in a model: norms, rotary embedding and cache, MLP, linear layers, experts.

Each function looks for its places, says what of the model does not fit, and gives the forward functions that call the seat. Weights are
never changed. Must not know clocks or cells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from typing import Any

import torch
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from keepfast.engine.torch_attention import library_function
from keepfast.engine.torch_model import layers, sliding
from keepfast.engine.torch_quantise import quantised
from keepfast.engine.torch_seat import Patch, Seat
from keepfast.errors import TaskError

# --------------------------------------------------------------------------------------------- norms


def _is_norm(module: Any, hidden: int) -> bool:
    weight = getattr(module, "weight", None)
    return type(module).__name__.endswith("RMSNorm") and weight is not None and weight.numel() == hidden


def _epsilon(norm: Any) -> float:
    return float(getattr(norm, "variance_epsilon", getattr(norm, "eps", 0.0)))


def _rms_norm(model: Any, seat: Seat, seats: tuple[Seat, ...]) -> Iterator[Patch]:
    """Norms over the hidden size; behind a residual add only when no other slot has those."""
    hidden = model.config.hidden_size
    norms = [m for m in model.modules() if _is_norm(m, hidden)]
    if not norms:
        raise TaskError(f"{type(model).__name__} has no RMSNorm over its hidden size, {hidden}", where=seat.where)
    fused = any(s.fill.slot == "add_rms_norm" and s.fill.phase in ("both", seat.fill.phase) for s in seats)
    norms = [layers(model)[0].input_layernorm] if fused else norms
    seat.expected = len(norms)
    return iter([(norm, _normed(norm, seat)) for norm in norms])


def _normed(norm: Any, seat: Seat) -> Callable[..., Any]:
    theirs, epsilon = norm.forward, _epsilon(norm)

    def forward(hidden_states: Any) -> Any:
        if not seat.on:
            return theirs(hidden_states)
        flat = hidden_states.reshape(-1, hidden_states.shape[-1]).contiguous()
        return seat((flat.shape, flat.dtype), {"input": flat, "weight": norm.weight, "epsilon": epsilon}).view(hidden_states.shape)

    return forward


class _Carrier:
    """The sum so far, on its way from one layer to the next norm."""

    residual: Any = None


def _add_rms_norm(model: Any, seat: Seat, seats: tuple[Seat, ...]) -> Iterator[Patch]:
    stack, base = layers(model), getattr(model, model.base_model_prefix)
    parts = {"self_attn", "mlp", "input_layernorm", "post_attention_layernorm"}
    for layer in stack:
        has = {name for name, _ in layer.named_children()}
        if has != parts or not all(_is_norm(n, model.config.hidden_size) for n in (layer.input_layernorm, layer.post_attention_layernorm)):
            what = f"{type(layer).__name__} has {', '.join(sorted(has))}, and the slot knows layers of {', '.join(sorted(parts))}"
            raise TaskError(what, where=seat.where, next_step="Take rms_norm instead")
    if not _is_norm(getattr(base, "norm", None), model.config.hidden_size):
        raise TaskError(
            f"{type(base).__name__} has no RMSNorm `norm` behind its layers", where=seat.where, next_step="Take rms_norm instead"
        )
    seat.expected = 2 * len(stack)
    carrier = _Carrier()
    return iter(
        [*((layer, _layer(layer, seat, carrier, i == 0)) for i, layer in enumerate(stack)), (base.norm, _last(base.norm, seat, carrier))]
    )


def _fused(seat: Seat, hidden: Any, residual: Any, norm: Any) -> tuple[Any, Any]:
    """The normed sum and the sum, written where the two lie."""
    hidden, residual = hidden.contiguous(), residual.contiguous()
    flat = (hidden.view(-1, hidden.shape[-1]), residual.view(-1, hidden.shape[-1]))
    seat(None, {"input": flat[0], "residual": flat[1], "weight": norm.weight, "epsilon": _epsilon(norm)})
    return hidden, residual


def _layer(layer: Any, seat: Seat, carrier: _Carrier, first: bool) -> Callable[..., Any]:
    theirs = layer.forward

    def forward(hidden_states: Any, **more: Any) -> Any:
        if not seat.on:
            return theirs(hidden_states, **more)
        if first:
            residual, hidden = hidden_states, layer.input_layernorm(hidden_states)
        else:
            hidden, residual = _fused(seat, hidden_states, carrier.residual, layer.input_layernorm)
        hidden, _ = layer.self_attn(hidden_states=hidden, **more)
        hidden, carrier.residual = _fused(seat, hidden, residual, layer.post_attention_layernorm)
        made = layer.mlp(hidden)
        return made[0] if isinstance(made, tuple) else made

    return forward


def _last(norm: Any, seat: Seat, carrier: _Carrier) -> Callable[..., Any]:
    theirs = norm.forward

    def forward(hidden_states: Any) -> Any:
        if not seat.on:
            return theirs(hidden_states)
        residual, carrier.residual = carrier.residual, None
        return _fused(seat, hidden_states, residual, norm)[0]

    return forward


# --------------------------------------------------------------------------------------------- rotary, MLP, linear, experts


def _rotary_cache(model: Any, seat: Seat, seats: tuple[Seat, ...]) -> Iterator[Patch]:
    parts = {"q_proj", "k_proj", "v_proj", "o_proj"}
    for layer in layers(model):
        attention = layer.self_attn
        has = {name for name, _ in attention.named_children()}
        if not parts <= has <= parts | {"q_norm", "k_norm"}:
            what = f"{type(attention).__name__} has {', '.join(sorted(has))}, and the slot knows {', '.join(sorted(parts))}, q_norm, k_norm"
            raise TaskError(what, where=seat.where, next_step="Leave this slot out: the model's rotary embedding is another")
    if sliding(model):
        raise TaskError(
            f"layers with a window of {sliding(model)} tokens roll their cache", where=seat.where, next_step="Leave this slot out"
        )
    seat.expected = len(layers(model))
    return iter([(layer.self_attn, _rotated(layer.self_attn, seat)) for layer in layers(model)])


def _rotated(module: Any, seat: Seat) -> Callable[..., Any]:
    theirs, d, moment = module.forward, module.head_dim, seat.moment

    def forward(
        hidden_states: Any, position_embeddings: Any = None, attention_mask: Any = None, past_key_values: Any = None, **more: Any
    ) -> Any:
        if not (seat.on and moment.phase == "decode" and hidden_states.shape[1] == 1):
            return theirs(
                hidden_states=hidden_states,
                position_embeddings=position_embeddings,
                attention_mask=attention_mask,
                past_key_values=past_key_values,
                **more,
            )
        batch = hidden_states.shape[0]
        q, k, v = (p(hidden_states).view(batch, -1, d) for p in (module.q_proj, module.k_proj, module.v_proj))
        if hasattr(module, "q_norm"):
            q, k = module.q_norm(q), module.k_norm(k)
        held = past_key_values.layers[module.layer_idx]
        cos, sin = (x[:, 0].contiguous() for x in position_embeddings)
        if tuple(cos.shape) != (batch, d):
            what = f"the model's cos is {list(cos.shape)}, and the slot gives [batch, d], here {[batch, d]}"
            raise TaskError(what, where=seat.where, next_step="Leave this slot out: the model's rotary embedding is another")
        given = {"q": q, "k": k, "v": v, "cos": cos, "sin": sin, "k_cache": held.keys, "v_cache": held.values}
        seat(None, given | {"positions": moment.positions})
        attend = ALL_ATTENTION_FUNCTIONS.get_interface(module.config._attn_implementation, library_function("eager", module))
        sinks = {"s_aux": module.sinks} if hasattr(module, "sinks") else {}
        out, _ = attend(module, q[:, :, None], held.keys, held.values, attention_mask, dropout=0.0, scaling=module.scaling, **sinks, **more)
        return module.o_proj(out.reshape(batch, 1, -1)), None

    return forward


def _mlp_activation(model: Any, seat: Seat, seats: tuple[Seat, ...]) -> Iterator[Patch]:
    found = [m for m in model.modules() if all(hasattr(m, n) for n in ("gate_proj", "up_proj", "down_proj", "act_fn"))]
    found = [m for m in found if isinstance(m.gate_proj, torch.nn.Linear)]
    if not found:
        raise TaskError(f"{type(model).__name__} has no MLP with gate_proj, up_proj and down_proj", where=seat.where)
    other = next((type(m.act_fn).__name__ for m in found if "silu" not in type(m.act_fn).__name__.lower()), None)
    if other is not None:
        raise TaskError(f"its activation is {other}, and the slot's silu", where=seat.where, next_step="Leave this slot out")
    seat.expected = len(found)
    return iter([(m, _activated(m, seat)) for m in found])


def _activated(mlp: Any, seat: Seat) -> Callable[..., Any]:
    theirs = mlp.forward

    def forward(x: Any) -> Any:
        if not seat.on:
            return theirs(x)
        gate, up = mlp.gate_proj(x), mlp.up_proj(x)
        flat = (gate.view(-1, gate.shape[-1]), up.view(-1, up.shape[-1]))
        return mlp.down_proj(seat((flat[0].shape, gate.dtype), {"gate": flat[0], "up": flat[1]}).view(gate.shape))

    return forward


def _linear(model: Any, seat: Seat, seats: tuple[Seat, ...]) -> Iterator[Patch]:
    inside = f"{model.base_model_prefix}.layers."
    every = {n: m for n, m in model.named_modules() if type(m) is torch.nn.Linear and (seat.fill.only or n.startswith(inside))}
    found = {n: m for n, m in every.items() if not seat.fill.only or fnmatchcase(n, seat.fill.only)}
    if not found:
        raise TaskError(
            f"`only = {seat.fill.only!r}` names no linear layer", where=seat.where, next_step=f"There are: {', '.join(list(every)[:8])}"
        )
    seat.expected = len(found)
    kind = dict(seat.fill.arguments).get("weight", "float8_e4m3fn")
    return iter([(m, _multiplied(m, seat, kind)) for m in found.values()])


def _multiplied(module: Any, seat: Seat, kind: str) -> Callable[..., Any]:
    theirs = module.forward
    weight, scale = quantised(module.weight, kind, seat.where) if seat.takes("weight_scale") else (None, None)

    def forward(input: Any) -> Any:
        if not seat.on:
            return theirs(input)
        flat = input.reshape(-1, input.shape[-1]).contiguous()  # the last token of a prompt lies with a gap
        if 0 < seat.fill.rows < flat.shape[0]:
            return theirs(input)
        given = {"input": flat, "weight": module.weight if weight is None else weight, "weight_scale": scale, "bias": module.bias}
        made = seat(((flat.shape[0], module.out_features), flat.dtype), given)
        return made.view(*input.shape[:-1], module.out_features)

    return forward


def _moe(model: Any, seat: Seat, seats: tuple[Seat, ...]) -> Iterator[Patch]:
    found = [m for m in model.modules() if all(isinstance(getattr(m, n, None), torch.nn.Parameter) for n in ("gate_up_proj", "down_proj"))]
    if not found:
        raise TaskError(f"{type(model).__name__} has no experts with gate_up_proj and down_proj", where=seat.where)
    wanted = {"has_gate": True, "has_bias": False, "is_transposed": False, "is_concatenated": True}
    for experts in found:
        odd = next((f"{name} = {getattr(experts, name)}" for name, v in wanted.items() if getattr(experts, name, v) != v), None)
        if odd is None and "silu" not in type(getattr(experts, "act_fn", None)).__name__.lower():
            odd = f"an activation that is not silu ({type(getattr(experts, 'act_fn', None)).__name__})"
        if odd is not None:
            what = f"{type(experts).__name__} has {odd}, and the slot gives gate_up [experts, 2 intermediate, hidden], gates first"
            raise TaskError(what, where=seat.where, next_step="Leave this slot out for this model")
    seat.expected = len(found)
    return iter([(m, _routed(m, seat)) for m in found])


def _routed(experts: Any, seat: Seat) -> Callable[..., Any]:
    theirs = experts.forward

    def forward(hidden_states: Any, top_k_index: Any, top_k_weights: Any) -> Any:
        if not seat.on:
            return theirs(hidden_states, top_k_index, top_k_weights)
        given = {"input": hidden_states, "router_indices": top_k_index, "routing_weights": top_k_weights}
        return seat((hidden_states.shape, hidden_states.dtype), given | {"gate_up": experts.gate_up_proj, "down": experts.down_proj})

    return forward


PUT: dict[str, Callable[[Any, Seat, tuple[Seat, ...]], Iterator[Patch]]] = {
    "rms_norm": _rms_norm,
    "add_rms_norm": _add_rms_norm,
    "rotary_cache": _rotary_cache,
    "mlp_activation": _mlp_activation,
    "linear": _linear,
    "moe": _moe,
}
