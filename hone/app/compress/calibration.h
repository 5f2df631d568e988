// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "hone/compress/recipe.h"
#include "hone/core/file/json_io.h"
#include "hone/core/thread/executor.h"
#include "hone/model_io/model_file.h"

namespace hone::app {

// A text whose activations tell a pass which weights matter.
struct CalibrationText {
  std::vector<std::vector<text::TokenId>> texts;
  Json about;                         // {source, tokens, texts, sha256 of the ids}, for the card
  std::vector<std::string> held_out;  // of the same file, for the card
};

// Reads at most recipe.calib_tokens of the file recipe.calib_data, in texts of recipe.calib_window
// tokens, or of the model's context if that is less, that are spread over it. Throws
// Error{InvalidArgument} if more than 1 % of its runs of 32 tokens also occur in `evaluation`,
// because a card must be measured on other text; and Error{CorruptFile} for a text that is too
// short.
CalibrationText read_calibration(const compress::Recipe& recipe, const model_io::ModelFile& model,
                                 std::span<const std::string> evaluation);

// Lets the model write the text: recipe.calib_tokens sampled at temperature 1 in a batch, from the
// seed.
CalibrationText write_calibration(const std::filesystem::path& model,
                                  const std::filesystem::path& tokenizer,
                                  const compress::Recipe& recipe, Executor& executor,
                                  std::stop_token stop);

}  // namespace hone::app
