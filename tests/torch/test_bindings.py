"""Compares Python's declarations of the C interface with include/genesis.h: structs member by
member, numbers of enumerators, and the types of functions."""

from __future__ import annotations

import ctypes
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

import genesis
from genesis import _library, _prototypes, _statistics, _structs, managed

INCLUDE = Path(__file__).resolve().parent.parent.parent / "include"
HEADER = (INCLUDE / "genesis.h").read_text()

STRUCTS = {
    "genesis_gauge": _structs.Gauge,
    "genesis_stats": _structs.CStats,
    "genesis_pool_stats": _structs.CPoolStats,
    "genesis_block_info": _structs.CBlockInfo,
    "genesis_live_block": _structs.CLiveBlock,
    "genesis_onnxruntime_functions": _structs.COnnxruntimeFunctions,
    "genesis_pool_id": _structs.CPoolId,
    "genesis_pool_source": _structs.CPoolSource,
    "genesis_pool_block": _structs.CPoolBlock,
    "genesis_pool_usage": _structs.CPoolUsage,
    "genesis_tag_usage": _structs.CTagUsage,
    "genesis_memory_use": _structs.CMemoryUse,
    "genesis_arena_options": _structs.CArenaOptions,
    "genesis_arena_position": _structs.CArenaPosition,
    "genesis_arena_stats": _structs.CArenaStats,
    "genesis_fixed_pool_options": _structs.CFixedPoolOptions,
    "genesis_fixed_pool_stats": _structs.CFixedPoolStats,
    "genesis_memory_tier": _structs.CMemoryTier,
    "genesis_memory_manager_options": _structs.CMemoryManagerOptions,
    "genesis_memory_manager_stats": _structs.CMemoryManagerStats,
    "genesis_pool_registrar": _structs.CPoolRegistrar,
    "genesis_pool_communication": _structs.CPoolCommunication,
    "genesis_neighbour": _structs.CNeighbour,
    "genesis_forecast": _structs.CForecast,
    "genesis_compaction": _structs.CCompaction,
    "genesis_optimization": _structs.COptimization,
}
#: Python's numbers, by enumerator.
NUMBERS = {
    "GENESIS_STATUS_SUCCESS": _library.SUCCESS,
    "GENESIS_STATUS_INVALID_ARGUMENT": _library.INVALID_ARGUMENT,
    "GENESIS_POOL_ALL": _statistics.POOLS["all"],
    "GENESIS_POOL_SMALL": _statistics.POOLS["small_pool"],
    "GENESIS_POOL_LARGE": _statistics.POOLS["large_pool"],
    "GENESIS_MANAGED_ADVICE_READ_MOSTLY": managed._ADVICE["read_mostly"],
    "GENESIS_MANAGED_ADVICE_NOT_READ_MOSTLY": managed._ADVICE["not_read_mostly"],
    "GENESIS_MANAGED_ADVICE_PREFERRED_LOCATION": managed._ADVICE["preferred_location"],
    "GENESIS_MANAGED_ADVICE_NO_PREFERRED_LOCATION": managed._ADVICE["no_preferred_location"],
    "GENESIS_MANAGED_ADVICE_ACCESSED_BY": managed._ADVICE["accessed_by"],
    "GENESIS_MANAGED_ADVICE_NOT_ACCESSED_BY": managed._ADVICE["not_accessed_by"],
}
#: The failures that have an exception of their own.
EXCEPTIONS = {
    "GENESIS_STATUS_INVALID_ARGUMENT": genesis.InvalidArgumentError,
    "GENESIS_STATUS_OUT_OF_MEMORY": genesis.OutOfMemoryError,
    "GENESIS_STATUS_INVALID_DEVICE": genesis.InvalidArgumentError,
    "GENESIS_STATUS_INVALID_CONFIGURATION": genesis.ConfigurationError,
    "GENESIS_STATUS_BUSY": genesis.BusyError,
    "GENESIS_STATUS_LIMIT_REACHED": genesis.LimitReachedError,
    "GENESIS_STATUS_OUT_OF_HOST_MEMORY": genesis.OutOfHostMemoryError,
}
#: Types of C without pointers.
TYPES = {
    "void": None,
    "int": ctypes.c_int,
    "size_t": ctypes.c_size_t,
    "double": ctypes.c_double,
    "int64_t": ctypes.c_int64,
    "uint8_t": ctypes.c_uint8,
    "uint16_t": ctypes.c_uint16,
    "uint32_t": ctypes.c_uint32,
    "uint64_t": ctypes.c_uint64,
    "genesis_stream": ctypes.c_void_p,
    "genesis_live_block_visitor": _prototypes.LiveBlockVisitor,
    "genesis_tag_visitor": _prototypes.TagVisitor,
    "genesis_neighbour_visitor": _prototypes.NeighbourVisitor,
    "genesis_progress_callback": _prototypes.ProgressCallback,
    "genesis_compaction_callback": _prototypes.CompactionCallback,
    "genesis_forecast_callback": _prototypes.ForecastCallback,
    # Functions that Python passes by address.
    "genesis_torch_on_block": ctypes.c_void_p,
    "genesis_torch_on_shortage": ctypes.c_void_p,
    **STRUCTS,
    **dict.fromkeys(re.findall(r"typedef enum {[^}]*} (\w+);", HEADER), ctypes.c_int),
}
#: Pointers to these types, which Python does not dereference.
POINTERS = {
    "char": ctypes.c_char_p,
    "void": ctypes.c_void_p,
    # Python passes the bytes on.
    "genesis_block_handle": ctypes.c_char_p,
    "genesis_dlpack_buffer": ctypes.c_void_p,
    "genesis_arena": ctypes.c_void_p,
    "genesis_fixed_pool": ctypes.c_void_p,
    "genesis_memory_manager": ctypes.c_void_p,
}


def without_comments(text: str) -> str:
    return re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL)


def members(struct: str) -> list[str]:
    """The names of the members of a struct of the header, in its order."""
    found = re.search(rf"typedef struct {{([^}}]*)}} {struct};", without_comments(HEADER))
    assert found is not None, struct
    return re.findall(r"(\w+)\)?(?:\([^)]*\))?;", found[1])


@pytest.fixture(scope="module")
def of_the_compiler(tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    """Sizes, offsets and numbers computed by a C compiler, by their C expressions."""
    expressions = list({*NUMBERS, *EXCEPTIONS})
    for struct in STRUCTS:
        expressions.append(f"sizeof({struct})")
        for member in members(struct):
            expressions.append(f"offsetof({struct}, {member})")
            expressions.append(f"sizeof((({struct} *)0)->{member})")
    folder = tmp_path_factory.mktemp("bindings")
    source, program = folder / "layout.c", folder / "layout"
    lines = [f'    printf("%zu %s\\n", (size_t)({one}), "{one}");' for one in expressions]
    includes = "#include <stddef.h>\n#include <stdio.h>\n#include <genesis.h>\n"
    source.write_text(f"{includes}int main(void) {{\n" + "\n".join(lines) + "\n}\n")
    # The compiler and its program run without the simulated GPU.
    own = {"PATH": "/usr/local/bin:/usr/bin:/bin"}
    subprocess.run(["cc", "-I", INCLUDE, source, "-o", program], check=True, env=own)
    printed = subprocess.run([program], check=True, env=own, capture_output=True, text=True)
    pairs = (line.split(" ", 1) for line in printed.stdout.splitlines())
    return {expression: int(value) for value, expression in pairs}


@pytest.mark.parametrize("name", STRUCTS)
def test_structs_are_laid_out_alike(name: str, of_the_compiler: dict[str, int]) -> None:
    struct = STRUCTS[name]
    assert [field[0] for field in struct._fields_] == members(name)
    assert ctypes.sizeof(struct) == of_the_compiler[f"sizeof({name})"]
    for member in members(name):
        field = getattr(struct, member)
        expected = of_the_compiler[f"offsetof({name}, {member})"]
        assert field.offset == expected, member
        assert field.size == of_the_compiler[f"sizeof((({name} *)0)->{member})"], member


def test_numbers_are_the_headers(of_the_compiler: dict[str, int]) -> None:
    for name, number in NUMBERS.items():
        assert number == of_the_compiler[name], name
    expected = {of_the_compiler[name]: exception for name, exception in EXCEPTIONS.items()}
    assert expected == _library._ERRORS
    assert ctypes.c_uint64(-1).value == _prototypes.AGE_UNKNOWN, "UINT64_MAX"


def declarations() -> dict[str, tuple[str, list[str]]]:
    """The types of the result and of the parameters of each function of the header."""
    pattern = r"^(\w[\w *]*?)(genesis_\w+)\(([^;{]*)\);"
    found = {}
    for result, name, parameters in re.findall(pattern, without_comments(HEADER), re.MULTILINE):
        types = [re.sub(r"\w+$", "", " ".join(one.split())) for one in parameters.split(",")]
        found[name] = (result, [] if parameters == "void" else types)
    return found


def in_python(c: str) -> Any:
    """Python's type for the C type ``c``."""
    c = c.removeprefix("const ").strip()
    if not c.endswith("*"):
        return TYPES[c]
    pointee = c[:-1].removeprefix("const ").strip()
    return POINTERS.get(pointee) or ctypes.POINTER(in_python(pointee))


@pytest.mark.parametrize("name", _prototypes.PROTOTYPES)
def test_functions_have_the_headers_types(name: str) -> None:
    result, parameters = declarations()[name]
    expected = (in_python(result), [in_python(parameter) for parameter in parameters])
    assert _prototypes.PROTOTYPES[name] == expected


def test_every_function_that_python_calls_is_declared() -> None:
    package = Path(_library.__file__).parent
    pattern = r"_library\.(?:call|function)\(\s*\"(\w+)\""
    texts = [path.read_text() for path in package.rglob("*.py")]
    called = {name for text in texts for name in re.findall(pattern, text)}
    known = {*_prototypes.PROTOTYPES, *_prototypes.NAMED_BY_OTHERS}
    assert len(called) > 30 and called <= known, called
