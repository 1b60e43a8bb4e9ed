#include "atoll/plan/plan_shape.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "atoll/laws/table.h"
#include "atoll/weights/presets.h"

namespace atl::plan {
namespace {

constexpr int64_t kNarrowest = 16;
constexpr int64_t kWidest = 16'384;
constexpr double kStep = 1.1;  // From one of the ladder to the next.
/// What an e-fold of depth beside the rule's counts, where one of size counts 1.
constexpr double kDepthWeight = 0.1;

/// Scaling Laws for DiLoCo, table 3: 6 layers of 512 to 48 of 4,096.
int64_t usual_layers(int64_t hidden) { return std::max<int64_t>(1, (3 * hidden + 128) / 256); }

/// Narrow models differ much by a head of 64: their widths are closer.
int64_t next_width(int64_t hidden) { return hidden + (hidden < 64 ? 8 : hidden < 256 ? 16 : 64); }

}  // namespace

Shapes::Shapes(int64_t vocab_size, bool papers) : vocab_size_(vocab_size), papers_(papers) {
  for (int64_t hidden = kNarrowest; hidden <= kWidest; hidden = next_width(hidden)) {
    const auto one =
        static_cast<double>(weights::num_parameters(weights::chinchilla(1, hidden, vocab_size)));
    const auto two =
        static_cast<double>(weights::num_parameters(weights::chinchilla(2, hidden, vocab_size)));
    const auto h = static_cast<double>(hidden);
    const auto vocab = static_cast<double>(vocab_size);
    const double embedding = laws::papers_params(0, h, 4 * h, vocab);
    widths_.push_back({.hidden = hidden,
                       .papers_base = embedding,
                       .papers_per_layer = laws::papers_params(1, h, 4 * h, vocab) - embedding,
                       .atoll_base = 2 * one - two,
                       .atoll_per_layer = two - one});
  }
}

PlannedShape Shapes::shape_of(const Width& width, int64_t layers) const {
  const auto depth = static_cast<double>(layers);
  const double papers = width.papers_base + depth * width.papers_per_layer;
  const double atoll = width.atoll_base + depth * width.atoll_per_layer;
  return {.layers = layers,
          .hidden = width.hidden,
          .law_params = papers_ ? papers : atoll,
          .atoll_params = atoll};
}

PlannedShape Shapes::near(double law_params) const {
  PlannedShape best;
  double least = std::numeric_limits<double>::infinity();
  for (const Width& width : widths_) {
    const auto usual = static_cast<double>(usual_layers(width.hidden));
    const double base = papers_ ? width.papers_base : width.atoll_base;
    const double per_layer = papers_ ? width.papers_per_layer : width.atoll_per_layer;
    const double exact =
        std::clamp((law_params - base) / per_layer, 0.7 * usual, std::max(1.4 * usual, usual + 1));
    const int64_t layers = std::max<int64_t>(1, std::llround(exact));
    const PlannedShape shape = shape_of(width, layers);
    const double depth = static_cast<double>(layers) / usual;
    const double cost = std::abs(std::log(shape.law_params / law_params)) +
                        kDepthWeight * std::abs(std::log(depth));
    if (cost < least) {
      least = cost;
      best = shape;
    }
  }
  return best;
}

std::vector<PlannedShape> Shapes::ladder() const {
  std::vector<PlannedShape> shapes = {shape_of(widths_.front(), 1)};
  const double largest = shape_of(widths_.back(), usual_layers(kWidest)).law_params;
  for (double target = shapes[0].law_params * kStep; target <= largest; target *= kStep) {
    const PlannedShape shape = near(target);
    if (shape.law_params > shapes.back().law_params) shapes.push_back(shape);
  }
  return shapes;
}

weights::ModelConfig Shapes::config(const PlannedShape& shape, int64_t sequence_length) const {
  weights::ModelConfig config = weights::chinchilla(shape.layers, shape.hidden, vocab_size_);
  config.max_positions = sequence_length;
  return config;
}

}  // namespace atl::plan
