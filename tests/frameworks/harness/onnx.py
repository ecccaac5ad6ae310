"""A small model in ONNX's format, written without the package onnx: only the fields of its protocol
buffers that a chain of sums needs."""

from __future__ import annotations

from typing import Union

_FLOAT = 1
_INPUT, _OUTPUT = "x", "y"


def chain_of_sums(steps: int, extent: int) -> bytes:
    """A model of ``y``, the last of ``steps`` sums of ``x`` and the one before, all of
    ``extent`` × ``extent`` floats, with activations between."""
    nodes, last = [], _INPUT
    for step in range(steps):
        result = _OUTPUT if step == steps - 1 else f"sum{step}"
        nodes.append(_node("Add", [last, _INPUT], f"added{step}"))
        nodes.append(_node("Relu", [f"added{step}"], result))
        last = result
    graph = b"".join(_field(1, node) for node in nodes) + _field(2, "sums")
    graph += _field(11, _value(_INPUT, extent)) + _field(12, _value(_OUTPUT, extent))
    return _field(1, 8) + _field(7, graph) + _field(8, _field(1, "") + _field(2, 13))


def _node(operation: str, inputs: list[str], output: str) -> bytes:
    fields = b"".join(_field(1, name) for name in inputs)
    return fields + _field(2, output) + _field(4, operation)


def _value(name: str, extent: int) -> bytes:
    shape = _field(1, _field(1, extent)) * 2
    return _field(1, name) + _field(2, _field(1, _field(1, _FLOAT) + _field(2, shape)))


def _field(number: int, value: Union[int, str, bytes]) -> bytes:
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    data = value.encode() if isinstance(value, str) else value
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _varint(number: int) -> bytes:
    low, rest = number & 127, number >> 7
    return bytes([low]) if rest == 0 else bytes([low | 128]) + _varint(rest)
