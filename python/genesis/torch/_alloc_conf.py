"""PyTorch's own settings of its allocator: the variables ``PYTORCH_ALLOC_CONF`` and
``PYTORCH_CUDA_ALLOC_CONF``, and ``torch.cuda.memory._set_allocator_settings``.

| key | in direct mode |
|---|---|
| ``per_process_memory_fraction`` | the option ``memory_fraction`` |
| ``garbage_collection_threshold`` | ``gc_threshold`` |
| ``max_split_size_mb`` | ``max_split_size``, of the strategy Caching |
| ``roundup_power2_divisions`` | the same, of Caching; one number for all sizes |
| ``expandable_segments`` | true: ``pool_type`` Elastic, the default; false: Caching |
| ``release_lock_on_cudamalloc`` | always so |
| ``pinned_…`` | PyTorch's, which keeps its allocator of pinned memory |
| all others | named once in a warning |

An option that the program or the environment has set for Genesis itself wins.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Any, Callable, Optional, Union

from .. import _library, _statistics, options as _options
from . import _say

#: The variables, the first that is set counts.
VARIABLES = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
_MIB = 1 << 20
#: Stands for the fraction 0, which the option does not take.
_NEXT_TO_NOTHING = 2.0**-60

_Value = Union[str, list[str]]


def memory_fraction(device: int) -> float:
    """``torch._C._cuda_getMemoryFraction``."""
    fraction = _statistics.memory_fraction(device)
    return 0.0 if fraction == _NEXT_TO_NOTHING else fraction


@dataclass
class _InForce:
    """PyTorch's settings as they were last made."""

    text: str = ""
    values: Optional[dict[str, _Value]] = None


_in_force = _InForce()


def apply_environment(explicit: frozenset[str]) -> None:
    """Follows the environment, except for the options in ``explicit``.

    Raises ``ValueError`` for a text that PyTorch does not understand either.
    """
    for variable in VARIABLES:
        text = os.environ.get(variable, "")
        if text:
            try:
                values = parse(text)
            except ValueError as error:
                raise ValueError(f"{variable}={text}: {error}") from None
            _apply(values, explicit | set_in_environment())
            _in_force.text, _in_force.values = text, values
            return


def setter(original: Callable[[str], None]) -> Callable[[str], None]:
    """``torch._C._accelerator_setAllocatorSettings``: PyTorch's own checks the text, and applies it
    to pinned memory."""

    def set_allocator_settings(text: str) -> None:
        original(text)
        values = parse(text)
        _apply(values, frozenset())
        _in_force.text = text
        _in_force.values = {**(_in_force.values or {}), **values}

    return set_allocator_settings


def parse(text: str) -> dict[str, _Value]:
    """The keys and values of ``"key:value,key:[value,value]"``."""
    values: dict[str, _Value] = {}
    rest = "".join(text.split())
    while rest:
        key, colon, rest = rest.partition(":")
        if not key or not colon:
            raise ValueError(f"expected key:value, not {key!r}")
        if rest.startswith("["):
            inside, bracket, rest = rest[1:].partition("]")
            if not bracket:
                raise ValueError(f"{key}: a bracket is missing")
            values[key] = [one for one in inside.split(",") if one]
        else:
            value, comma, rest = rest.partition(",")
            if not value:
                raise ValueError(f"{key}: the value is missing")
            values[key] = value
            rest = comma + rest
        if rest and not rest.startswith(","):
            raise ValueError(f"expected a comma before {rest!r}")
        rest = rest[1:]
    return values


def described() -> dict[str, Any]:
    """The settings as a snapshot shows them."""
    values = _in_force.values or {}
    threshold, pool_type = _options.get("gc_threshold"), _options.get("pool_type")
    threads = values.get("pinned_num_register_threads", "1")
    flags = (
        "release_lock_on_cudamalloc",
        "pinned_use_cuda_host_register",
        "graph_capture_record_stream_reuse",
    )
    return {
        "PYTORCH_CUDA_ALLOC_CONF": _in_force.text,
        "max_split_size": max_split_bytes(),
        "garbage_collection_threshold": 0.0 if threshold == "never" else float(threshold),
        "expandable_segments": pool_type == "Elastic",
        "pinned_num_register_threads": int(threads) if isinstance(threads, str) else 1,
        **{flag: values.get(flag) == "True" for flag in flags},
        "roundup_power2_divisions": _divisions(),
    }


def max_split_bytes() -> int:
    """The option as PyTorch writes it: −1 for no limit."""
    size = re.fullmatch(r"(\d+) ?(?:([KMGT])iB)?", _options.get("max_split_size"))
    if size is None:
        return -1
    return int(size[1]) << (10 * " KMGT".index(size[2] or " "))


def _divisions() -> dict[str, int]:
    divisions = int(_options.get("roundup_power2_divisions"))
    return {str(1 << power): divisions for power in range(16)}


def set_in_environment() -> frozenset[str]:
    """The options that the environment has set for Genesis itself."""
    prefix = "GENESIS_"
    return frozenset(
        name[len(prefix) :].lower()
        for name, value in os.environ.items()
        if name.startswith(prefix) and value.strip()
    )


def _apply(values: dict[str, _Value], explicit: frozenset[str]) -> None:
    for key, value in values.items():
        follow = _FOLLOWED.get(key)
        if follow is not None:
            follow(_Setting(key, value, explicit | _options.explicit()))
        elif not key.startswith("pinned_") and key != "release_lock_on_cudamalloc":
            _say.once(_UNFOLLOWED.get(key, f"{key}: this key of PyTorch's is not known to Genesis"))


@dataclass(frozen=True)
class _Setting:
    """A key with its value, and the options that are not to be changed."""

    key: str
    value: _Value
    explicit: frozenset[str]

    def follow(self, option: str, value: Union[str, int, float, None]) -> None:
        """Sets Genesis's option of this meaning."""
        if option in self.explicit:
            return
        try:
            _options.put(option, value)
        except _library.InvalidArgumentError as error:
            if "cannot be changed once" not in str(error):
                raise ValueError(f"{self.key}:{self.value}: {error}") from None
            _say.once(
                f"{self.key}:{self.value} came too late: {option} cannot be changed once CUDA is "
                f"in use; set PYTORCH_ALLOC_CONF, or call "
                f"genesis.torch.enable({option}={value!r})"
            )

    def number(self) -> float:
        if isinstance(self.value, list):
            raise ValueError(f"{self.key}: expected one number, not {self.value}")
        return float(self.value)

    def needs_caching(self, purpose: str) -> None:
        """Warns unless the strategy is the one that has such an option."""
        pool_type = _options.get("pool_type")
        if pool_type != "Caching":
            _say.once(
                f"{self.key}:{self.value} has no effect under the strategy {pool_type}, {purpose}; "
                "pool_type=Caching follows it"
            )


def _fraction(setting: _Setting) -> None:
    fraction = setting.number()
    if not 0 <= fraction <= 1:
        text = f"{setting.key}:{setting.value}"
        raise ValueError(f"{setting.key} is invalid, it must be from 0 to 1: {text}")
    setting.follow("memory_fraction", fraction or _NEXT_TO_NOTHING)


def _gc_threshold(setting: _Setting) -> None:
    setting.follow("gc_threshold", setting.number() or "never")


def _max_split(setting: _Setting) -> None:
    setting.follow("max_split_size", int(setting.number()) * _MIB)
    setting.needs_caching("which moves memory in place of keeping large blocks whole")


def _roundup(setting: _Setting) -> None:
    value = setting.value
    divisions = {value} if isinstance(value, str) else {one.rpartition(":")[2] for one in value}
    if len(divisions) != 1:
        _say.once(
            "roundup_power2_divisions: the option has one number for all sizes, not one for each; "
            "genesis.torch.enable(roundup_power2_divisions=…) sets it"
        )
        return
    (number,) = divisions
    setting.follow("roundup_power2_divisions", 0 if number == "1" else int(number))
    setting.needs_caching("whose small blocks have eight sizes between two powers of two")


def _expandable(setting: _Setting) -> None:
    wanted = "Elastic" if setting.value == "True" else "Caching"
    chosen = _options.get("pool_type")
    if chosen == wanted:
        return
    if "pool_type" in setting.explicit:
        _say.once(f"{setting.key}:{setting.value} is not followed: pool_type={chosen} was chosen")
        return
    setting.follow("pool_type", wanted)


def _backend(setting: _Setting) -> None:
    if setting.value != "native":
        _say.once(f"{setting.key}:{setting.value} is not in force: Genesis is the allocator")


_FOLLOWED: dict[str, Callable[[_Setting], None]] = {
    "per_process_memory_fraction": _fraction,
    "garbage_collection_threshold": _gc_threshold,
    "max_split_size_mb": _max_split,
    "roundup_power2_divisions": _roundup,
    "expandable_segments": _expandable,
    "backend": _backend,
}
_UNFOLLOWED = {
    "large_segment_size_mb": "large_segment_size_mb: segments have PyTorch's usual sizes, and "
    "Elastic's extents those of elastic_policy; there is no option for other sizes",
    "max_non_split_rounding_mb": "max_non_split_rounding_mb: a block that is not cut may be up to "
    "20 MiB larger than the request; there is no option for it",
    "graph_capture_record_stream_reuse": "graph_capture_record_stream_reuse: blocks recorded for "
    "other streams during a capture become free when it has ended",
}
