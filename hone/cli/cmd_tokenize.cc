// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <memory>

#include "hone/app/tokenize.h"
#include "hone/cli/command.h"
#include "hone/core/check.h"
#include "hone/core/file/file_io.h"
#include "hone/core/names.h"

namespace hone::cli {
namespace {

struct TokenizeOptions {
  std::string model, prompt, file;
  bool no_bos = false, decode = false, parse_special = false;
};

void print_tokens(const Json& document) {
  for (std::size_t i = 0; i < document["tokens"].size(); ++i) {
    const std::string piece =
        escape_controls(document["pieces"][i].dump(-1, ' ', false, Json::error_handler_t::replace));
    std::printf("%8lld  %s\n", document["tokens"][i].get<long long>(), piece.c_str());
  }
}

void run_tokenize(const TokenizeOptions& options, Context& context) {
  const std::string input = options.file.empty() ? options.prompt : read_text_file(options.file);
  if (options.decode) {
    const std::vector<text::TokenId> ids = app::parse_token_ids(input);
    const auto tokenizer = app::open_any_tokenizer(options.model);
    const Json document = app::detokenize(*tokenizer, ids, options.parse_special);
    context.finish(document, [&] {
      const auto& text = document["text"].get_ref<const std::string&>();
      std::fwrite(text.data(), 1, text.size(), stdout);  // it may have NULs
      std::putchar('\n');
    });
    return;
  }
  const auto tokenizer = app::open_any_tokenizer(options.model);
  const Json document = app::tokenize(
      *tokenizer, input, {.add_bos = !options.no_bos, .parse_special = options.parse_special});
  context.finish(document, [&] { print_tokens(document); });
}

}  // namespace

void add_tokenize(CLI::App& program, Context& context) {
  CLI::App* verb =
      program.add_subcommand("tokenize", "Convert text to token ids and pieces, or back");
  auto options = std::make_shared<TokenizeOptions>();
  verb->add_option("MODEL", options->model, "Model, vocabulary GGUF or tokenizer file")->required();
  CLI::Option_group* input = verb->add_option_group("input");
  input->add_option("-p,--prompt", options->prompt, "The text, or token ids with --decode");
  input->add_option("-f,--file", options->file, "File with the text or the ids");
  input->require_option(1);
  verb->add_flag("--no-bos", options->no_bos, "Do not add BOS and EOS, even if the model does");
  verb->add_flag("--decode", options->decode, "Convert ids to text");
  verb->add_flag("--parse-special", options->parse_special,
                 "Convert special tokens in the text to their ids; with --decode, print them");
  verb->callback([options, &context] { run_tokenize(*options, context); });
}

}  // namespace hone::cli
