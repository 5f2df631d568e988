// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hone/app/torch/memory_run.h"
#include "hone/train/task/vision/vision_config.h"

namespace hone::app {

using MemoryVisionJob = MemoryJob<task::VisionConfig>;

// Measures the memory of a training step of this configuration with real steps. Trains and writes
// nothing. Throws Error{Unsupported} for a device whose memory DeviceMeter does not count.
MemoryMeasurement memory_vision(const MemoryVisionJob& job);

}  // namespace hone::app
