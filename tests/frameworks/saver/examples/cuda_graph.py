"""A graph is replayed after its inputs, and where it can its own memory, were paused."""

from .common import is_equal, saver, torch, used, values


def run(hook_mode: str) -> None:
    memory = saver(hook_mode)
    with memory.region(tag="inputs", enable_cpu_backup=True):
        given = values(1, 5_000_000).cuda()
    graph, side = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    captured = memory.cuda_graph(graph, stream=side, tag="graph", enable_cpu_backup=True)
    with torch.cuda.stream(side), captured:
        result = torch.empty_like(given)
        result.copy_(given)
    result.copy_(values(7, 5_000_000))
    before = used()
    for _ in range(2):
        memory.pause()
        assert used() <= before - 2 * given.nbytes
        memory.resume()
        is_equal(given, values(1, 5_000_000))
        is_equal(result, values(7, 5_000_000))
        graph.replay()
        torch.cuda.synchronize()
        result.copy_(values(7, 5_000_000))
