// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <memory>

#include "hone/app/doctor.h"
#include "hone/cli/command.h"
#include "hone/measure/measure.h"

namespace hone::cli {

void add_doctor(CLI::App& program, Context& context) {
  CLI::App* verb = program.add_subcommand("doctor", "Describe what this machine can do");
  auto measure = std::make_shared<bool>(false);
  verb->add_flag("--measure", *measure,
                 "Measure memory bandwidth and peak arithmetic throughput (takes seconds)");
  verb->callback([&context, measure] {
    const auto measurer = measure::make_measurer();
    const Json diagnosis = app::diagnose(context.executor(), *measurer, *measure);
    context.finish(diagnosis,
                   [&] { std::fputs(app::describe_diagnosis(diagnosis).c_str(), stdout); });
  });
}

}  // namespace hone::cli
