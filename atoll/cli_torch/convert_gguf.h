#pragma once
// atoll convert MODEL OUT.gguf: a model as one file, a tensor at a time.
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "atoll/model/model.h"
#include "atoll/weights/config.h"

namespace atl::cli {

struct GgufArguments {
  std::filesystem::path source;
  std::filesystem::path target;  // Not there yet.
  std::string name;              // The model's, in the file.
  std::string type = "auto";     // Of matrices: one of gguf_type_names(), or auto.
  bool verify = false;
  bool strict = false;  // Weights that are not finite are refused.
};

struct GgufReport {
  weights::ModelConfig config;
  std::string type;
  int64_t num_narrow = 0;  // Matrices that are F16, as their rows are no whole blocks.
  std::optional<double> difference =
      {};  // Of log-probabilities, the largest; where it was verified.
};

/// "auto" and what it stands for.
std::vector<std::string> gguf_type_names();

/// Throws InputError (files; what such a file cannot say).
GgufReport convert_to_gguf(const GgufArguments& arguments);

/// The largest difference of the log-probabilities that both give to some tokens. Throws InputError
/// where `written` gives none and `source` does.
double largest_difference(const model::Model& source, const model::Model& written);

}  // namespace atl::cli
