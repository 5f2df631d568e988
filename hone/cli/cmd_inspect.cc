// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <memory>

#include "hone/app/inspect.h"
#include "hone/app/inspect_table.h"
#include "hone/cli/command.h"

namespace hone::cli {

void add_inspect(CLI::App& program, Context& context) {
  CLI::App* verb =
      program.add_subcommand("inspect", "Describe a model file; -v lists every tensor");
  auto options = std::make_shared<app::InspectOptions>();
  verb->add_option(
          "file", options->file,
          "Folder of a language model or classifier, *.gguf, llama2.c *.bin or *.safetensors")
      ->required();
  verb->add_option("--tokenizer", options->tokenizer,
                   "Tokenizer to use instead of the model's own, if any");
  verb->add_flag("--stats", options->stats,
                 "Read every weight and report min, max, NaN count and inf count");
  verb->callback([&context, options] {
    const Json document = app::inspect_file(*options);
    context.finish(document, [&] {
      const bool each = context.common.verbose > 0;
      std::fputs(app::describe_inspection(document, each).c_str(), stdout);
    });
  });
}

}  // namespace hone::cli
