// SPDX-License-Identifier: Apache-2.0
#include "hone/text/token_stream.h"

#include <gtest/gtest.h>

#include "hone/core/error.h"

namespace hone::text {
namespace {

using Ranges = std::vector<TokenRange>;

TEST(CutWindows, cover_every_token_of_every_document_once) {
  EXPECT_EQ(cut_windows(std::vector<Index>{5}, 2, false), (Ranges{{0, 2}, {2, 4}, {4, 5}}));
  EXPECT_EQ(cut_windows(std::vector<Index>{3, 7, 8}, 3, false),
            (Ranges{{0, 3}, {3, 6}, {6, 7}, {7, 8}}));
}

TEST(CutWindows, lead_with_the_token_that_ends_the_document_before) {
  EXPECT_EQ(cut_windows(std::vector<Index>{3, 7, 8}, 4, true),
            (Ranges{{0, 3}, {2, 6}, {6, 7}, {6, 8}}));
}

TEST(CutWindows, skip_empty_documents_and_refuse_empty_windows) {
  EXPECT_EQ(cut_windows(std::vector<Index>{0, 2, 2, 2, 4}, 9, true), (Ranges{{0, 2}, {1, 4}}));
  EXPECT_TRUE(cut_windows({}, 9, true).empty());
  EXPECT_THROW(cut_windows(std::vector<Index>{2}, 0, true), Error);
}

TEST(TokenStream, is_cut_inside_a_document) {
  TokenStream stream;
  stream.add_document(std::vector<TokenId>{1, 2, 3});
  stream.add_document(std::vector<TokenId>{4, 5});
  stream.cut(4);
  EXPECT_EQ(stream.ids, (std::vector<TokenId>{1, 2, 3, 4}));
  EXPECT_EQ(stream.ends, (std::vector<Index>{3, 4}));
  stream.cut(2);
  EXPECT_EQ(stream.ends, (std::vector<Index>{2, 2}));
}

}  // namespace
}  // namespace hone::text
