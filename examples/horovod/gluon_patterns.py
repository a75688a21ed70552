# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""A script of Horovod for MXNet Gluon: a small network that learns ten patterns of 8 by 8 pixels
under noise, with an accuracy over all workers.

It has nothing of Basin: basin-run --horovod -np 2 examples/horovod/gluon_patterns.py
The data are made here, because MXNet needs an old NumPy, which packages with data do not have.
"""

import hashlib

import horovod.mxnet as hvd
import mxnet as mx
import numpy as np
from mxnet import autograd, gluon

ROWS, BATCH, EPOCHS = 2000, 50, 5

hvd.init()
random = np.random.default_rng(7)
patterns = random.normal(size=(10, 64))
labels = random.integers(10, size=ROWS)
pixels = patterns[labels] + 1.5 * random.normal(size=(ROWS, 64))
train, test = slice(hvd.rank(), 1500, hvd.size()), slice(1500 + hvd.rank(), None, hvd.size())
training = gluon.data.ArrayDataset(pixels[train].astype("float32"), labels[train].astype("float32"))
loader = gluon.data.DataLoader(training, BATCH, shuffle=True, last_batch="discard")

mx.random.seed(hvd.rank())  # The parameters of rank 0 count.
net = gluon.nn.HybridSequential()
with net.name_scope():
    net.add(gluon.nn.Dense(32, activation="relu"), gluon.nn.Dense(10))
net.initialize(mx.init.Xavier())
net.hybridize()
# The sizes of the inputs are not known yet: the first forward brings the values of rank 0.
hvd.broadcast_parameters(net.collect_params(), root_rank=0)
trainer = hvd.DistributedTrainer(
    net.collect_params(), "sgd", {"learning_rate": 0.02 * hvd.size(), "momentum": 0.9}
)
loss_of = gluon.loss.SoftmaxCrossEntropyLoss()

for epoch in range(EPOCHS):
    for x, y in loader:
        with autograd.record():
            loss = loss_of(net(x), y)
        loss.backward()
        trainer.step(BATCH)
    guesses = net(mx.nd.array(pixels[test])).argmax(axis=1)
    right = (guesses == mx.nd.array(labels[test])).mean()
    accuracy = hvd.allreduce(right, name="accuracy").asscalar()
    if hvd.rank() == 0:
        print(f"epoch {epoch}: {100 * accuracy:.1f} % right", flush=True)

digest = hashlib.sha256(
    b"".join(each.data().asnumpy().tobytes() for each in net.collect_params().values())
)
print(f"parameters {digest.hexdigest()[:16]}", flush=True)
