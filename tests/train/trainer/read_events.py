# SPDX-License-Identifier: Apache-2.0
"""read_events.py FOLDER: what TensorBoard's own reader finds there, as lines "tag step value"."""
import sys

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

events = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0})
events.Reload()
for tag in sorted(events.Tags()["scalars"]):
    for scalar in events.Scalars(tag):
        assert 1.6e9 < scalar.wall_time < 1e10, scalar
        print(tag, scalar.step, float(scalar.value).hex())
