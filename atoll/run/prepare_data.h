#pragma once
// From what the user named to a token store. LibTorch-free.
#include <filesystem>

#include "atoll/base/clock.h"
#include "atoll/run/config.h"

namespace atl::run {

/// The store to train on: data.path when it is one; else a tokenizer is trained (or
/// `tokenizer_file` taken, if not empty) and data.path, or the default corpus, packed into
/// `folder`/data; what is there from an earlier start is used again. Throws InputError.
std::filesystem::path prepare_store(const DataOptions& options, const std::filesystem::path& folder,
                                    const std::filesystem::path& tokenizer_file,
                                    const Clock& clock);

}  // namespace atl::run
