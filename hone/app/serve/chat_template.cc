// SPDX-License-Identifier: Apache-2.0
#include "hone/app/serve/chat_template.h"

#include "hone/core/error.h"
#include "hone/core/file/file_io.h"
#include "hone/core/log.h"
#include "hone/text/turn_tokens.h"

namespace hone::app {
namespace {

constexpr Index kMostTemplateBytes = Index{1} << 20;

}  // namespace

std::shared_ptr<const text::ChatTemplate> open_chat_template(std::string_view source,
                                                             const text::Tokenizer& tokenizer,
                                                             const std::filesystem::path& file) {
  const auto make = [&](std::string_view jinja, std::string_view where) {
    return std::make_shared<const text::ChatTemplate>(jinja, text::special_token_names(tokenizer),
                                                      where);
  };
  if (!file.empty()) return make(read_text_file(file, kMostTemplateBytes), file.string());
  if (source.empty()) return nullptr;
  try {
    return make(source, "the model's chat template");
  } catch (const Error& error) {
    log_warning(error.what());
    return nullptr;
  }
}

}  // namespace hone::app
