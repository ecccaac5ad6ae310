"""Inference and training in turns: weights are kept, a cache is not, a graph's memory goes."""

from .common import is_equal, saver, torch, used, values


def run(hook_mode: str) -> None:
    memory = saver(hook_mode)
    with memory.region(tag="weights", enable_cpu_backup=True):
        weights = values(1, 5_000_000).cuda()
    with memory.region(tag="kv_cache"):
        cache = torch.empty_like(weights)
    graph, side = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with torch.cuda.stream(side), memory.cuda_graph(graph, stream=side, tag="graph"):
        cache.copy_(weights)
        scratch = torch.empty_like(weights)
        scratch.copy_(cache)
    before = used()
    for _ in range(3):
        graph.replay()
        memory.pause("kv_cache")
        memory.pause("graph")
        memory.pause("weights")
        assert used() <= before - 2 * weights.nbytes
        training = values(9, 5_000_000).cuda()
        is_equal(training, values(9, 5_000_000))
        del training
        torch.cuda.empty_cache()
        memory.resume("weights")
        memory.resume("graph")
        memory.resume("kv_cache")
        is_equal(weights, values(1, 5_000_000))
        torch.cuda.synchronize()
