#pragma once
// What process 0 of an island tells the others to do.
#include <cstdint>
#include <string>

namespace atl::group {

struct Command {
  enum class Kind {
    kAsked,     // Process 0 was started with these settings; so were you.
    kBegin,     // A training run of these settings. Its values and moments come later.
    kValues,    // Take process 0's values.
    kGradient,  // Of your share of the unit.
    kUpdate,    // The inner optimiser's.
    kGather,    // Your part of the moments goes to process 0, or
    kScatter,   // comes from there.
  };
  Kind kind = Kind::kBegin;
  std::string settings;           // kAsked, kBegin: as TOML.
  std::string data;               // kBegin: the digest of the store;
  int64_t num_units = 1;          // and into how many a global batch is cut.
  bool changes_gradient = false;  // kBegin: process 0 does so, between its sum and its use.
  int64_t unit = 0;               // kGradient.
  double lr = 0;                  // kUpdate: as InnerOptimizer::step() takes them;
  double weight_decay = 0;
  double factor = 1;   // what the gradient is multiplied by before;
  int64_t number = 0;  // and which update it is, from 1.

  void visit(auto&& field) {
    field("kind", kind), field("settings", settings), field("data", data);
    field("num_units", num_units), field("changes_gradient", changes_gradient), field("unit", unit);
    field("lr", lr), field("weight_decay", weight_decay), field("factor", factor);
    field("number", number);
  }
};

std::string to_text(Command command);
/// Throws InputError.
Command command_in(const std::string& text);

}  // namespace atl::group
