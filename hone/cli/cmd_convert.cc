// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <memory>

#include "hone/app/convert.h"
#include "hone/app/loaded_weights.h"
#include "hone/cli/command.h"
#include "hone/core/check.h"
#include "hone/core/names.h"
#include "hone/core/text_format.h"

namespace hone::cli {
namespace {

void print_result(const Json& document, bool verbose) {
  std::string text =
      concat(escape_controls(document["out"].get<std::string>()), ": ",
             document["out_format"].get<std::string>(), ", ", document["tensors"].get<Index>(),
             " tensors, ", format_bytes(document["bytes"].get<Index>()), "\n");
  if (const Json& decoded = document["decoded"]; !decoded.is_null())
    text += concat("  ", decoded["matrices"].get<Index>(), " quantized matrices are written as ",
                   decoded["dtype"].get<std::string>(), "\n");
  for (const std::string& line : app::describe_kept(
           document["kept"], {.one = "is written as", .several = "are written as"}, verbose)) {
    text += concat("  ", line, "\n");
  }
  std::fputs(text.c_str(), stdout);
}

}  // namespace

void add_convert(CLI::App& program, Context& context) {
  CLI::App* verb = program.add_subcommand(
      "convert",
      "Convert a model to another format: Hugging Face folder, hone's artifact, GGUF, llama2.c");
  auto options = std::make_shared<app::ConvertOptions>();
  verb->add_option("in", options->in,
                   "Model folder, *.gguf (any part of a split model) or llama2.c *.bin")
      ->required();
  verb->add_option("out", options->out, "*.gguf, *.bin, or a folder")->required();
  verb->add_option("--dtype", options->dtype,
                   "Type of the weights: f32, f16, bf16, q8_0 or q4_0 (default: keep the type of "
                   "each tensor; a Hugging Face folder stores quantized tensors as f16 or bf16)");
  verb->add_option("--to", options->to,
                   "Output format: hf, hone (hone's artifact, a folder with quantized codes), gguf "
                   "or llama2c (default: according to the name of the output; a folder is hf, or "
                   "hone if --dtype is quantized)");
  verb->add_option("--tokenizer", options->tokenizer,
                   "Tokenizer to use instead of the model's own, if any");
  verb->callback([&context, options] {
    const Json document = app::convert_model(*options);
    context.finish(document, [&] { print_result(document, context.common.verbose > 0); });
  });
}

}  // namespace hone::cli
