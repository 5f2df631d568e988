// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hone/text/tokenizer.h"

// The tokens around the turns of a conversation.
namespace hone::text {

// Puts BOS in front of the ids of a prompt if the tokenizer adds it and they do not begin with it.
std::vector<TokenId> with_bos(const Tokenizer& tokenizer, std::vector<TokenId> ids);

// The tokens after which a model has nothing to say, in ascending order: EOS, and control tokens
// that end the answers of known model families by their spelling, because files often name EOS
// alone. In vocabularies that have both <|return|> and <|call|>, <|end|> ends only a part of an
// answer.
std::vector<TokenId> end_of_turn_ids(const Tokenizer& tokenizer);

// The control token that is spelled so; nullopt if none is.
std::optional<TokenId> control_id(const Tokenizer& tokenizer, std::string_view spelled);

// The names of special tokens that chat templates use, with their spelling: bos_token, eos_token,
// unk_token, pad_token.
std::map<std::string, std::string> special_token_names(const Tokenizer& tokenizer);

}  // namespace hone::text
