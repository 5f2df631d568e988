// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace hone::test {

// GGUF files of real chat models, in HONE_MODEL_CACHE or ~/.cache/hone-models, sorted; empty where
// there are none.
std::vector<std::string> real_models();

}  // namespace hone::test
