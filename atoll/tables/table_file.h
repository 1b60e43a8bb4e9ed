#pragma once
// Arrow and Parquet files as lines of JSON. Another program reads them, `atoll-tables`: Arrow's
// libraries bring a protobuf and an abseil of their own, whose names meet ours in one process,
// and files of strangers are read outside of ours. The caller's thread.
#include <filesystem>
#include <string>

namespace atl::tables {

/// An object of JSON for each row, with all columns, each on a line. `program` is atoll-tables.
/// Throws InputError: the program is not there (how to get it), what it says of the file, more than
/// `max_bytes`.
std::string read_lines(const std::filesystem::path& file, const std::filesystem::path& program,
                       size_t max_bytes);

/// The atoll-tables that was built or installed with this program.
std::filesystem::path table_program();

}  // namespace atl::tables
