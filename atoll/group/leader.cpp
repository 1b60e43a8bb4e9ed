#include "atoll/group/leader.h"

#include "atoll/base/check.h"

namespace atl::group {

class Leader::WholeLearner final : public train::Learner {
 public:
  explicit WholeLearner(Leader& leader) : leader_(leader) {}

  const model::Parameters& parameters() const override {
    return leader_.parts_.learner->parameters();
  }
  void begin_unit(int64_t unit) override { leader_.begin_unit(unit); }
  double add_gradients(std::span<const train::Batch> batches, double scale) override {
    ATOLL_CHECK(scale == 1);
    const Share::Sums sums = leader_.share_.add_gradients(batches);
    leader_.norm_ = sums.norm;
    return sums.loss;
  }
  double cross_entropy(const train::Batch& batch) override {
    return leader_.parts_.learner->cross_entropy(batch);
  }

 private:
  Leader& leader_;
};

class Leader::WholeOptimizer final : public train::InnerOptimizer {
 public:
  explicit WholeOptimizer(Leader& leader)
      : InnerOptimizer(train::target_of(leader.parts_.learner->parameters())), leader_(leader) {}

  void skip() override { leader_.share_.clear_gradients(); }
  std::vector<std::pair<std::string, at::Tensor>> state() override { return leader_.moments(); }

 private:
  bool update(const train::StepOptions& options) override {
    leader_.update(num_updates(), options);
    return true;
  }

  Leader& leader_;
};

Leader::Leader(LeaderParts parts)
    : parts_(std::move(parts)),
      share_(parts_.processes, *parts_.learner, parts_.options, parts_.changes_gradient) {
  Command begin = parts_.begin;
  begin.kind = Command::Kind::kBegin;
  begin.changes_gradient = parts_.changes_gradient;
  parts_.processes.tell(to_text(begin));
  parts_.processes.wait_until_ready();
}

std::unique_ptr<train::Learner> Leader::learner() { return std::make_unique<WholeLearner>(*this); }

std::unique_ptr<train::InnerOptimizer> Leader::optimizer() {
  return std::make_unique<WholeOptimizer>(*this);
}

void Leader::begin_unit(int64_t unit) {
  if (has_new_values_) {
    parts_.processes.tell(to_text({.kind = Command::Kind::kValues}));
    share_.take_values();
    has_new_values_ = false;
  }
  parts_.processes.tell(to_text({.kind = Command::Kind::kGradient, .unit = unit}));
}

double Leader::gradient_norm() const {
  return share_.owner_sums() ? norm_
                             : train::gradient_norm(parts_.learner->parameters().gradients_P());
}

void Leader::update(int64_t number, const train::StepOptions& options) {
  given_moments_.clear();
  parts_.processes.tell(to_text({.kind = Command::Kind::kUpdate,
                                 .lr = options.lr,
                                 .weight_decay = options.weight_decay,
                                 .factor = options.gradient_scale,
                                 .number = number}));
  share_.update(number, options);
}

std::vector<std::pair<std::string, at::Tensor>> Leader::moments() {
  if (!share_.is_sharded()) return share_.moments();
  if (share_.moments().empty()) return {};
  if (!given_moments_.empty()) return given_moments_;
  parts_.processes.tell(to_text({.kind = Command::Kind::kGather}));
  given_moments_ = share_.gather_moments(parts_.spill_folder);
  return given_moments_;
}

void Leader::moments_changed() {
  parts_.processes.tell(to_text({.kind = Command::Kind::kScatter}));
  share_.take_moments(given_moments_);
  given_moments_.clear();
}

}  // namespace atl::group
