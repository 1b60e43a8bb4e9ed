#pragma once
// What a misspelled word was probably meant to be.
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace atl {

/// The candidate with the smallest edit distance to `word`; empty when nothing is near: not even
/// within `most`, where that is given.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates,
                    std::optional<size_t> most = {});

}  // namespace atl
