"""Programs that drive CUDA graph trees, with plain functions as compiled models.

Each returns what does not depend on the allocator: when models ran, and what the manager counts.
The trees check their pool themselves before and after each recording: exactly the tensors they know
of are live in it.
"""

from __future__ import annotations

import gc
import random
from collections.abc import Sequence
from typing import Any, Callable

import pytest
import torch

MIB = 1 << 20

Program = Callable[[], Any]


class Function:
    """A model of which the trees make graphs."""

    def __init__(self, model: Callable[..., Sequence[Any]], outputs: int, **more: Any) -> None:
        self.model = model
        self.outputs = outputs
        self.more = more
        self.runs = 0
        self.fast: Any = None

    def __call__(self, *inputs: Any) -> Any:
        """What a compiled function does: the trees decide whether the model runs."""
        if self.fast is not None:
            return self.fast(list(inputs))
        from torch._inductor.cudagraph_trees import cudagraphify

        settings = {"device_index": 0, "is_backward": False, "is_inference": True, **self.more}
        settings["stack_traces"] = [None] * self.outputs
        self.fast, outputs = cudagraphify(self.run, list(inputs), **settings)
        return outputs

    def run(self, inputs: list[Any]) -> Sequence[Any]:
        self.runs += 1
        arguments = list(inputs)
        inputs.clear()
        outputs = self.model(arguments)
        assert arguments == [], "a model drops its inputs as soon as it can"
        return outputs


def step() -> None:
    torch.compiler.cudagraph_mark_step_begin()


def counts(*functions: Function) -> list[Any]:
    """What happened so far, as numbers that do not depend on the allocator."""
    from torch._inductor.cudagraph_trees import get_manager

    manager = get_manager(0, create_if_none_exists=False)
    assert manager is not None
    return [
        *(function.runs for function in functions),
        manager.debug_checkpointing_counter,
        manager.debug_fail_counter,
        manager.path_state.name,
        sum(1 + root.num_descendants() for root in manager.get_roots()),
    ]


def end(*functions: Function) -> None:
    """Drops all graphs, as `torch._dynamo.reset()` does."""
    from torch._inductor.cudagraph_trees import reset_cudagraph_trees

    for function in functions:
        function.fast = None
    reset_cudagraph_trees()
    gc.collect()


def zeros(size: int) -> torch.Tensor:
    return torch.zeros(size, dtype=torch.uint8, device="cuda")


def ranges(tensors: Sequence[torch.Tensor]) -> list[tuple[int, int]]:
    return sorted((t.data_ptr(), t.data_ptr() + t.untyped_storage().nbytes()) for t in tensors)


def check_apart(tensors: Sequence[torch.Tensor]) -> None:
    """Live tensors do not overlap."""
    found = ranges(tensors)
    assert all(one[1] <= other[0] for one, other in zip(found, found[1:])), found


def doubled(arguments: list[Any]) -> Sequence[Any]:
    (x,) = arguments
    arguments.clear()
    scratch = x + 1
    first = scratch * 2
    del scratch
    return [first, first + 3]


def joined(arguments: list[Any]) -> Sequence[Any]:
    a, b = arguments
    arguments.clear()
    return [a + b]


def warm_ups_recordings_and_replays() -> Any:
    function = Function(doubled, 2)
    trace, addresses = [], []
    for _ in range(5):
        step()
        first, second = function(zeros(3 * MIB))
        check_apart([first, second])
        addresses.append([first.data_ptr(), second.data_ptr()])
        del first, second
        trace.append(counts(function))
    assert addresses[1] == addresses[2] == addresses[4], "a graph writes where it did"
    end(function)
    return trace


def results_of_one_graph_are_the_inputs_of_the_next() -> Any:
    one, two = Function(doubled, 2), Function(joined, 1)
    trace = []
    for _ in range(5):
        step()
        first, second = one(zeros(MIB))
        (third,) = two(first, second)
        check_apart([first, second, third])
        del first
        trace.append(counts(one, two))
        del second, third
    end(one, two)
    return trace


def branches_are_recorded_from_the_state_before_them() -> Any:
    """After a replay, another function follows than the one recorded: what the replayed graph left
    live must be live for the recording."""
    trunk = Function(doubled, 2)
    branches = [Function(joined, 1) for _ in range(3)]
    trace = []
    for index in (0, 0, 0, 1, 1, 1, 0, 2, 2, 2, 1, 0):
        step()
        first, second = trunk(zeros(5 * MIB))
        (third,) = branches[index](first, second)
        check_apart([first, second, third])
        del first, second, third
        trace.append(counts(trunk, *branches))
    end(trunk, *branches)
    return trace


def what_died_before_a_branch_is_not_live_in_it() -> Any:
    trunk, branch, other = Function(doubled, 2), Function(doubled, 2), Function(doubled, 2)
    trace = []
    for index in range(9):
        step()
        first, second = trunk(zeros(2 * MIB))
        if index % 3 == 1:
            del first
            third = (branch if index < 4 else other)(second)
            check_apart([second, *third])
        else:
            del second
            third = (branch if index < 4 else other)(first)
            check_apart([first, *third])
        first = second = None
        del third
        trace.append(counts(trunk, branch, other))
    end(trunk, branch, other)
    return trace


def results_outlive_the_function() -> Any:
    """A result kept into the next generation: the graph's memory is taken from under it, and using
    it is an error that says so."""
    function = Function(doubled, 2)
    said = []
    kept = []
    for _ in range(4):
        step()
        kept.append(function(zeros(MIB)))
    for first, _ in kept[:-1]:
        try:
            first + 1
        except RuntimeError as error:
            said.append("overwritten by a subsequent run" in str(error))
        else:
            said.append(None)
    trace = [said, counts(function)]
    kept.clear()
    del first, _
    end(function)
    return trace


def results_that_are_kept_hold_a_tree_together() -> Any:
    """Within one generation nothing is taken away: each call comes behind what is still live."""
    function = Function(doubled, 2)
    trace = []
    for _ in range(3):
        step()
        kept: list[torch.Tensor] = []
        for _ in range(3):
            kept += function(zeros(MIB))
        check_apart(kept)
        trace.append(counts(function))
    kept.clear()
    end(function)
    return trace


def several_shapes() -> Any:
    from torch._inductor.cudagraph_trees import cudagraphify_impl

    runs = []

    def model(inputs: list[Any]) -> Sequence[Any]:
        x, size = inputs
        inputs.clear()
        runs.append(size)
        return [x + 1, size]

    fast: Any = cudagraphify_impl(
        model,
        [zeros(MIB), 1],
        (),
        device_index=0,
        is_backward=False,
        is_inference=True,
        stack_traces=[None, None],
    )
    for size in (1, 2, 3, 1, 2, 3, 3, 2, 1, 1):
        step()
        result, number = fast([zeros(size * MIB), size])
        assert number == size
        assert result.shape == (size * MIB,)
        del result
    trace = [list(runs), counts()]
    fast = None
    end()
    return trace


def static_inputs_that_move_record_again() -> Any:
    function = Function(joined, 1, static_input_idxs=(0,))
    weights = [zeros(MIB), zeros(MIB)]
    trace = []
    with torch._inductor.config.patch({"triton.cudagraph_support_input_mutation": True}):
        for index in (0, 0, 0, 1, 1, 0, 1):
            step()
            (result,) = function(weights[index], zeros(MIB))
            del result
            trace.append(counts(function))
    end(function)
    return trace


def results_that_are_views_of_each_other_and_of_inputs() -> Any:
    def model(arguments: list[Any]) -> Sequence[Any]:
        x, weight = arguments
        arguments.clear()
        whole = x + 1
        return [whole, whole[: MIB // 2], weight, None, 7, whole.view(2, -1)]

    function, user = Function(model, 6, static_input_idxs=(1,)), Function(doubled, 2)
    weight = zeros(512)
    trace = []
    for index in range(6):
        step()
        whole, half, same, nothing, seven, rows = function(zeros(MIB), weight)
        assert (nothing, seven) == (None, 7)
        assert same.data_ptr() == weight.data_ptr()
        assert whole.data_ptr() == half.data_ptr() == rows.data_ptr()
        if index % 2:
            del whole
        result = user(rows)
        check_apart([half, *result])
        whole = half = same = rows = result = None
        trace.append(counts(function, user))
    end(function, user)
    return trace


def forwards_and_backwards() -> Any:
    def backward(arguments: list[Any]) -> Sequence[Any]:
        saved, gradient = arguments
        arguments.clear()
        product = saved * gradient
        del saved
        return [product + gradient]

    forwards = [Function(doubled, 2, is_inference=False) for _ in range(3)]
    backwards = [Function(backward, 1, is_inference=False, is_backward=True) for _ in range(3)]
    trace = []
    for _ in range(5):
        step()
        x = zeros(3 * MIB)
        saved = []
        for function in forwards:
            x, one = function(x)
            saved.append(one)
        gradient = x
        for function in backwards:
            (gradient,) = function(saved.pop(), gradient)
        del x, one, gradient
        trace.append(counts(*forwards, *backwards))
    end(*forwards, *backwards)
    return trace


def any_order() -> Any:
    """Functions of any size in any order, with any of the results kept for a while."""
    source = random.Random(11)
    functions = []
    for size in (700, 40_000, MIB, 3 * MIB, 11 * MIB):

        def model(arguments: list[Any], size: int = size) -> Sequence[Any]:
            (x,) = arguments
            arguments.clear()
            scratch = [x.new_zeros(size), x.new_zeros(2 * size)]
            del x
            result = scratch[1] + 1
            del scratch[1]
            return [result, scratch[0] + result[:size]]

        functions.append(Function(model, 2))
    trace = []
    for _ in range(12):
        step()
        kept: list[torch.Tensor] = []
        for _ in range(source.randrange(1, 5)):
            given = source.choice(kept) if kept and source.random() < 0.6 else zeros(MIB)
            kept += source.choice(functions)(given)
            del given
            check_apart(kept)
            source.shuffle(kept)
            del kept[source.randrange(0, 3) :]
        trace.append(counts(*functions))
        # Nobody else gets the pool's memory.
        check_apart([*kept, zeros(MIB), zeros(700)])
    kept.clear()
    end(*functions)
    return trace


def states_by_hand() -> Any:
    """The functions below the trees, without any graph."""
    pool = torch.cuda.MemPool()
    handle, device = pool.id, 0

    def in_pool(size: int) -> torch.Tensor:
        with torch.cuda.use_mem_pool(pool):
            return zeros(size)

    def is_live(*tensors: torch.Tensor) -> bool:
        addresses = {tensor.data_ptr() for tensor in tensors}
        return bool(torch._C._cuda_checkPoolLiveAllocations(device, handle, addresses))

    def borrowed(tensor: torch.Tensor) -> Any:
        storage = tensor.untyped_storage()
        return torch._C._construct_storage_from_data_pointer(
            storage.data_ptr(), storage.device, storage.nbytes()
        )

    empty = torch._C._cuda_getCheckpointState(device, handle)
    a, b = in_pool(3 * MIB), in_pool(700)
    state = torch._C._cuda_getCheckpointState(device, handle)
    trace = [is_live(a, b), is_live(a), is_live(), b.untyped_storage().nbytes()]
    owner = borrowed(b)
    address = b.data_ptr()
    del b
    # What became live since must go, with the deleters of its storages; `b` must come back.
    c = in_pool(40 * MIB)
    trace += [is_live(a, c), torch._C._has_Standard_Deleter(owner._cdata)]
    stale = [a.untyped_storage()._cdata, c.untyped_storage()._cdata]
    owners = [borrowed(a), owner]
    cdata = [storage._cdata for storage in owners]
    torch._C._cuda_setCheckpointPoolState(device, state, stale, cdata)
    trace += [torch._C._has_Standard_Deleter(one) for one in (*stale, *cdata)]
    first = torch.empty(0, dtype=torch.uint8, device="cuda").set_(owners[0])
    second = torch.empty(0, dtype=torch.uint8, device="cuda").set_(owners[1])
    assert second.data_ptr() == address
    trace.append(is_live(first, second))
    del a, c
    trace.append(is_live(first, second))
    del owners, owner, first
    trace.append(is_live(second))
    # The emptiest state of all.
    torch._C._cuda_setCheckpointPoolState(device, empty, [second.untyped_storage()._cdata], [])
    trace += [is_live(), torch._C._has_Standard_Deleter(second.untyped_storage()._cdata)]
    for unknown in ((0, 987), (5, 0)):
        for ask in (
            lambda: torch._C._cuda_getCheckpointState(device, unknown),  # noqa: B023
            lambda: torch._C._cuda_checkPoolLiveAllocations(device, unknown, set()),  # noqa: B023
        ):
            with pytest.raises(RuntimeError):
                ask()
    return trace


def trees_of_two_devices() -> Any:
    from torch._inductor.cudagraph_trees import get_manager

    functions = [Function(doubled, 2, device_index=device) for device in (0, 1)]
    trace = []
    for _ in range(4):
        step()
        for device, function in enumerate(functions):
            x = torch.zeros(MIB, dtype=torch.uint8, device=f"cuda:{device}")
            first, second = function(x)
            assert first.device.index == device
            check_apart([first, second, x])
            del first, second, x
            manager = get_manager(device, create_if_none_exists=False)
            assert manager is not None
            trace.append([function.runs, manager.debug_checkpointing_counter])
            del manager
    end(*functions)
    return trace


PROGRAMS = [
    warm_ups_recordings_and_replays,
    results_of_one_graph_are_the_inputs_of_the_next,
    branches_are_recorded_from_the_state_before_them,
    what_died_before_a_branch_is_not_live_in_it,
    results_outlive_the_function,
    results_that_are_kept_hold_a_tree_together,
    several_shapes,
    static_inputs_that_move_record_again,
    results_that_are_views_of_each_other_and_of_inputs,
    forwards_and_backwards,
    any_order,
    states_by_hand,
    trees_of_two_devices,
]
