#pragma once
// From what the user named to a token store. LibTorch-free.
#include <filesystem>
#include <optional>

#include "atoll/base/clock.h"
#include "atoll/run/config.h"

namespace atl::run {

/// The store to train on: data.path when it is one or a mixture; else a tokenizer is trained (or
/// `tokenizer_file` taken, if not empty) and data.path, or the default corpus, packed into
/// `folder`/data. A validation part of less than one row makes the share larger, as far as need be.
/// What is there from an earlier start is used again: always if the run was started (then other
/// text is refused), else if it was made in the same way of the same text, which has not changed
/// since (or is gone). Throws InputError.
std::filesystem::path prepare_store(const RunConfig& config, const std::filesystem::path& folder,
                                    const std::filesystem::path& tokenizer_file,
                                    const Clock& clock);

/// The store that prepare_store() would take as it is; nothing where it would pack. Throws as it.
std::optional<std::filesystem::path> find_store(const RunConfig& config,
                                                const std::filesystem::path& folder,
                                                const std::filesystem::path& tokenizer_file);

}  // namespace atl::run
