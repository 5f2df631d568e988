// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace hone {

// "hone 0.1.0 (commit 1a2b3c4, RelWithDebInfo, torch 2.13.0, no cuda, avx2 avx512)"
std::string version_text();
// "0.1.0"
std::string version_number();
// The LibTorch version of this build ("2.13.0"); empty in a build without LibTorch.
std::string torch_version();

}  // namespace hone
