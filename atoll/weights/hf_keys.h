#pragma once
// The keys of a Hugging Face config.json. A family lists its own once (Family::keys): the same list
// reads a file into a ModelConfig and writes one from it. What a file says otherwise than can be
// computed is an InputError that names the file and the key. Lives as long as one call.
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "atoll/weights/config.h"

namespace atl::weights {

/// Typed access to a config.json.
class HfReader {
 public:
  /// Both must outlive it.
  HfReader(const nlohmann::json& json, const std::string& file) : json_(json), file_(file) {}

  [[noreturn]] void fail(const std::string& message) const;
  /// Null when the key is absent or null: transformers writes null for "not used".
  const nlohmann::json* find(const char* key) const;
  bool has(const char* key) const;  // Null or not.
  int64_t integer(const char* key) const;
  int64_t integer(const char* key, int64_t usual) const;
  /// `usual` where the key is absent; nothing where it is null.
  std::optional<int64_t> integer_or_null(const char* key, int64_t usual) const;
  std::string text(const char* key, const std::string& usual) const;
  double real(const char* key, double usual) const;
  bool flag(const char* key, bool usual) const;
  /// Refuses a value other than `expected` (or absent).
  void require(const char* key, const nlohmann::json& expected) const;

 private:
  const nlohmann::json& json_;
  const std::string& file_;
};

class HfKeys {
 public:
  explicit HfKeys(const HfReader& reader) : reader_(&reader) {}
  explicit HfKeys(nlohmann::ordered_json& out) : out_(&out) {}
  bool writes() const { return out_ != nullptr; }

  /// The file must have it.
  void integer(const char* key, int64_t& value);
  /// Some files have another key for it.
  void integer_by(const char* key, const char* other_key, int64_t& value);
  /// `usual`, here and below: what a file without the key means.
  void integer(const char* key, int64_t& value, int64_t usual);
  /// A file may also say null, which means `none`.
  void integer(const char* key, int64_t& value, int64_t usual, int64_t none);
  void real(const char* key, double& value, double usual);
  /// 0 is null in a file, and null 0.
  void real_or_none(const char* key, double& value, double usual);
  void flag(const char* key, bool& value, bool usual);
  /// Nothing else is supported.
  template <typename T>  // bool, int64_t, double or const char*.
  void only(const char* key, T value);
  /// A list without elements, or null.
  void no_list(const char* key);
  /// A share of dropout, which must be 0.
  void no_dropout(const char* key);
  /// One that is passed over: only training has it, and ours does not. Written as 0.
  void ignored_dropout(const char* key);
  /// ModelConfig::activation. `tanh_name`: what its approximation by tanh is written as.
  void activation(const char* key, std::string& value, const char* usual, const char* tanh_name);

  /// ModelConfig::router_aux_loss: transformers trains with it only where a file asks for it.
  void router_loss(double& weight, double usual);

  /// ModelConfig::layer_pattern of layers that turn, a list of 1 and 0; where a file has none, one
  /// in `interval_key` layers does not.
  void turning_layers(const char* key, const char* interval_key, ModelConfig& config);

  /// Rotary positions, as transformers 4 and 5 spell them. `share` is that of each head that turns;
  /// it is written where `writes_share`.
  struct Rotary {
    const char* base = "rope_theta";
    double usual_base = 10'000;
    double usual_local_base = 0;      // In layers with a window; 0: that of the others.
    bool differs_in_windows = false;  // These have positions of their own, not stretched.
    const char* share = "partial_rotary_factor";
    double usual_share = 1;
    bool writes_share = false;
  };
  void rotary(ModelConfig& config, const Rotary& names);

 private:
  template <typename T, typename Read>
  void field(const char* key, T& value, const Read& read);

  const HfReader* reader_ = nullptr;
  nlohmann::ordered_json* out_ = nullptr;
};

}  // namespace atl::weights
