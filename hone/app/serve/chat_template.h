// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <memory>
#include <string_view>

#include "hone/text/chat_template/chat_template.h"

namespace hone::app {

// The chat template of a model, `source`, or of a file instead; null if there is none. A template
// of the model that cannot be read is none, with a warning; one of a file throws.
std::shared_ptr<const text::ChatTemplate> open_chat_template(std::string_view source,
                                                             const text::Tokenizer& tokenizer,
                                                             const std::filesystem::path& file);

}  // namespace hone::app
