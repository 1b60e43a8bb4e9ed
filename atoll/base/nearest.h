#pragma once
// What a misspelled word was probably meant to be.
#include <string>
#include <string_view>
#include <vector>

namespace atl {

/// The candidate with the smallest edit distance to `word`; empty when nothing is near.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace atl
