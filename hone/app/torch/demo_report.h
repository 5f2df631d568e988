// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hone/app/torch/demo.h"

namespace hone::app {

// Writes report.html, report.json and machine.json into `folder`.
void write_demo_report(const DemoResult& result, const std::filesystem::path& folder);

}  // namespace hone::app
