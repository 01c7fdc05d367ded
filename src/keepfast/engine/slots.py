"""Slots: where in a model a task's kernel can be put, which arguments it is given there, and whether a signature takes them.

A slot gives arguments by name; the signature of a task names those it takes, in its own order. What a particular model makes necessary
(biases, sinks, sliding windows) is handed in as `needs`. Must not know torch, nor how a slot is put into a model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from keepfast.errors import TaskError, nearest
from keepfast.model import Arg, Signature


class Offer(Struct, frozen=True):
    """An argument that a slot can give. `must`: every signature takes it; else only where the model needs it, or where it likes."""

    name: str
    kind: str  # tensor | int | float
    means: str
    written: bool = False
    must: bool = True


class SlotKind(Struct, frozen=True):
    """`signature`: as a task writes it when the model needs nothing further. `outputs`: fresh tensors that the entry returns."""

    name: str
    where: str
    signature: str
    offers: tuple[Offer, ...]
    outputs: int

    def offer(self, name: str) -> Offer | None:
        return next((o for o in self.offers if o.name == name), None)


class Taken(Struct, frozen=True):
    """One argument of the entry, in order: what the slot gives under this name, or the value that the signature has for it."""

    name: str
    given: bool
    default: bool | int | float | str | None = None


def _tensor(name: str, means: str, *, written: bool = False, must: bool = True) -> Offer:
    return Offer(name, "tensor", means, written, must)


_WINDOW = Offer("window", "int", "tokens that a layer with a sliding window looks back, 0 without one", must=False)
_SINKS = _tensor("sinks", "[heads], a score of each head that belongs to no token", must=False)
_SCALE = Offer("scale", "float", "of the scores")
_EPSILON = Offer("epsilon", "float", "of the norm")

KINDS = (
    SlotKind(
        "attention_decode",
        "attention of one new token over the static cache, through the library's attention registry",
        "attention_decode(Tensor q, Tensor k, Tensor v, Tensor lengths, float scale) -> Tensor",
        (
            _tensor("q", "[batch, heads, d]"),
            _tensor("k", "[batch, kv heads, capacity, d]: the whole cache, of which `lengths` tokens count"),
            _tensor("v", "[batch, kv heads, capacity, d]"),
            _tensor("lengths", "[batch], int32: tokens of each sequence, the new one included"),
            _SCALE,
            _SINKS,
        ),
        1,
    ),
    SlotKind(
        "attention_prefill",
        "causal attention of a prompt over itself, through the library's attention registry",
        "attention_prefill(Tensor q, Tensor k, Tensor v, float scale) -> Tensor",
        (
            _tensor("q", "[batch, tokens, heads, d], and so is the result"),
            _tensor("k", "[batch, kv heads, tokens, d]"),
            _tensor("v", "[batch, kv heads, tokens, d]"),
            _SCALE,
            _SINKS,
            _WINDOW,
        ),
        1,
    ),
    SlotKind(
        "rms_norm",
        "every RMSNorm over the hidden size that no other slot replaces",
        "rms_norm(Tensor input, Tensor weight, float epsilon) -> Tensor",
        (_tensor("input", "[tokens, hidden]"), _tensor("weight", "[hidden]"), _EPSILON),
        1,
    ),
    SlotKind(
        "add_rms_norm",
        "the residual add and the RMSNorm behind it, within a layer and from one layer to the next",
        "add_rms_norm(Tensor(a!) input, Tensor(b!) residual, Tensor weight, float epsilon) -> ()",
        (
            _tensor("input", "[tokens, hidden]; becomes the normed sum", written=True),
            _tensor("residual", "[tokens, hidden]; becomes the sum", written=True),
            _tensor("weight", "[hidden]"),
            _EPSILON,
        ),
        0,
    ),
    SlotKind(
        "rotary_cache",
        "rotary embedding of a decode step's queries and keys, and the write of keys and values into the static cache",
        "rotary_cache(Tensor(a!) q, Tensor k, Tensor v, Tensor cos, Tensor sin, "
        "Tensor(b!) k_cache, Tensor(c!) v_cache, Tensor positions) -> ()",
        (
            _tensor("q", "[batch, heads, d]; becomes the rotated queries", written=True),
            _tensor("k", "[batch, kv heads, d]"),
            _tensor("v", "[batch, kv heads, d]"),
            _tensor("cos", "[batch, d], both halves alike"),
            _tensor("sin", "[batch, d]"),
            _tensor("k_cache", "[batch, kv heads, capacity, d]", written=True),
            _tensor("v_cache", "[batch, kv heads, capacity, d]", written=True),
            _tensor("positions", "[batch], int32: where in the cache the new token goes"),
        ),
        0,
    ),
    SlotKind(
        "mlp_activation",
        "silu(gate) * up of every gated MLP",
        "mlp_activation(Tensor gate, Tensor up) -> Tensor",
        (_tensor("gate", "[tokens, intermediate]"), _tensor("up", "[tokens, intermediate]")),
        1,
    ),
    SlotKind(
        "linear",
        "matrix products of the layers, those that `only` names; with `weight_scale` the weights are quantised by row",
        "linear(Tensor input, Tensor weight) -> Tensor",
        (
            _tensor("input", "[tokens, k]"),
            _tensor("weight", "[n, k]; quantised (float8_e4m3fn, or as the task says) when `weight_scale` is taken"),
            _tensor("weight_scale", "[n], float32: weight * weight_scale[:, None] is what the model had", must=False),
            _tensor("bias", "[n], or None", must=False),
        ),
        1,
    ),
    SlotKind(
        "moe",
        "all experts of a mixture, behind the router",
        "moe(Tensor input, Tensor router_indices, Tensor routing_weights, Tensor gate_up, Tensor down) -> Tensor",
        (
            _tensor("input", "[tokens, hidden]"),
            _tensor("router_indices", "[tokens, k], int64: the experts of each token"),
            _tensor("routing_weights", "[tokens, k]"),
            _tensor("gate_up", "[experts, 2 intermediate, hidden], the gates first"),
            _tensor("down", "[experts, hidden, intermediate]"),
        ),
        1,
    ),
)
NAMES = tuple(kind.name for kind in KINDS)


def kind(name: str, where: str = "slot") -> SlotKind:
    """The slot of this name; TaskError names the known ones."""
    found = next((k for k in KINDS if k.name == name), None)
    if found is None:
        raise TaskError(f"there is no slot `{name}`.{nearest(name, NAMES)}", where=where, next_step=f"Slots: {', '.join(NAMES)}")
    return found


def fit(slot: SlotKind, signature: Signature, task: str, needs: Mapping[str, str]) -> tuple[Taken, ...]:
    """The entry's arguments in order. `needs`: argument -> why this model makes it necessary. TaskError: what does not fit."""
    why = _unfit(slot, signature, needs)
    if why:
        raise TaskError(why, where=f"slot {slot.name}, task {task}", next_step=f"The slot takes: {shown(slot, tuple(needs))}")
    return tuple(Taken(a.name, slot.offer(a.name) is not None, a.default) for a in signature.args)


def shown(slot: SlotKind, extra: Sequence[str] = ()) -> str:
    """The signature that the slot takes, with the arguments `extra` at its end."""
    added = [f"{_type(o)} {o.name}" for o in slot.offers if o.name in extra and not o.must]
    head, arrow, tail = slot.signature.rpartition(") -> ")
    return f"{', '.join([head, *added])}{arrow}{tail}"


def _unfit(slot: SlotKind, signature: Signature, needs: Mapping[str, str]) -> str:
    """ "" or the first thing that does not fit."""
    for arg in signature.args:
        if why := _argument(slot, arg):
            return why
    taken = {a.name for a in signature.args}
    for offer in slot.offers:
        if offer.must and offer.name not in taken:
            return f"the signature does not take `{offer.name}` ({offer.means})"
        if offer.name in needs and offer.name not in taken:
            return f"the signature does not take `{offer.name}`, and the model needs it: {needs[offer.name]}"
    if len(signature.outputs) != slot.outputs:
        return f"the signature returns {_count(len(signature.outputs))}, and the slot wants {_count(slot.outputs)}"
    return ""


def _argument(slot: SlotKind, arg: Arg) -> str:
    offer = slot.offer(arg.name)
    if offer is None:
        if arg.has_default:
            return ""
        given = tuple(o.name for o in slot.offers)
        return f"the signature takes `{arg.name}`, which the slot does not give.{nearest(arg.name, given)} It gives: {', '.join(given)}"
    if arg.kind != offer.kind:
        return f"`{arg.name}` is {_called(arg.kind)} in the signature, and the slot gives {_called(offer.kind)}"
    if arg.written != offer.written:
        right = "must be marked `!`: the result is left there" if offer.written else "must not be marked `!`: the model uses it afterwards"
        return f"`{arg.name}` {right}"
    return ""


def _type(offer: Offer) -> str:
    if offer.kind != "tensor":
        return offer.kind
    return "Tensor?" if offer.name == "bias" else "Tensor"


def _called(kind: str) -> str:
    return {"tensor": "a Tensor", "int": "an int"}.get(kind, f"a {kind}")


def _count(number: int) -> str:
    return {0: "nothing new", 1: "one new tensor"}.get(number, f"{number} new tensors")
