"""A small training with MXNet on the CPU: the losses, and what Genesis says if it is there."""

import ctypes
import os

import mxnet
from mxnet import autograd, gluon


class Gauge(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("current", "peak", "total")]


class Stats(ctypes.Structure):
    """The first members of genesis_stats."""

    _fields_ = (
        [("struct_size", ctypes.c_size_t)]
        + [(name, Gauge) for name in ("requested", "allocated", "reserved", "active", "inactive")]
        + [(name, ctypes.c_uint64) for name in ("allocations", "frees", "hits")]
    )


def train() -> None:
    # 2.x has NumPy's interface in the place of its own.
    numpy = mxnet.np if mxnet.__version__.startswith("2") else mxnet.nd
    mxnet.random.seed(1)
    network = gluon.nn.Sequential()
    network.add(gluon.nn.Dense(64, activation="relu"), gluon.nn.Dense(10))
    network.initialize(mxnet.init.Xavier(), ctx=mxnet.cpu())
    trainer = gluon.Trainer(network.collect_params(), "sgd", {"learning_rate": 0.1})
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    rows = numpy.arange(256 * 100).reshape((256, 100))
    inputs = numpy.sin(rows)
    labels = numpy.floor(numpy.abs(inputs[:, 0]) * 10)
    for _ in range(100):
        with autograd.record():
            loss = loss_of(network(inputs), labels)
        loss.backward()
        trainer.step(256)
    print(f"loss {float(loss.mean().asnumpy()):.6f}")
    mxnet.nd.waitall()


train()
try:
    genesis = ctypes.CDLL("libgenesis.so", mode=os.RTLD_NOLOAD | os.RTLD_NOW)
except OSError:
    genesis = None
if genesis is not None:
    stats = Stats(struct_size=ctypes.sizeof(Stats))
    assert genesis.genesis_host_stats_get(0, ctypes.byref(stats)) == 0
    print(f"genesis: {stats.allocations} allocations {stats.frees} frees {stats.hits} hits")
