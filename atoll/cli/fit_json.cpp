#include "atoll/cli/fit_json.h"

#include <array>
#include <map>
#include <utility>

namespace atl::cli {
namespace {

using Json = nlohmann::ordered_json;
using laws::FitReport;
using laws::Intervals;

Json whole(double value) { return static_cast<int64_t>(value); }

Json pair_json(const std::pair<double, double>& interval) {
  return {interval.first, interval.second};
}

/// A law's coefficients with their intervals, which may be missing.
Json law_json(const laws::PowerLaw& law, const Intervals& intervals) {
  Json json = {{"A", law.A()}, {"alpha", law.alpha()}};
  if (law.joint()) json["beta"] = law.beta();
  const std::array<const char*, 3> names = {"A_interval", "alpha_interval", "beta_interval"};
  for (size_t i = 0; i < intervals.size(); ++i) json[names[i]] = pair_json(intervals[i]);
  return json;
}

Json laws_json(const laws::PowerLaws& laws, const laws::LawIntervals& intervals) {
  Json independent = Json::array();
  for (const auto& [replicas, law] : laws.independent) {
    Json json = {{"replicas", whole(replicas)}};
    json.update(law_json(law, intervals.of(replicas)));
    independent.push_back(std::move(json));
  }
  return {{"independent", std::move(independent)},
          {"joint", laws.joint ? law_json(*laws.joint, intervals.joint) : Json()}};
}

Json residuals_json(const std::map<double, double>& residuals) {
  Json json = Json::array();
  for (const auto& [replicas, residual] : residuals) {
    json.push_back({{"replicas", whole(replicas)}, {"residual", residual}});
  }
  return json;
}

Json forms_json(const std::vector<laws::HeldOutForm>& forms) {
  Json json = Json::array();
  for (const laws::HeldOutForm& form : forms) {
    Json coefficients;
    Json intervals = Json::object();
    const std::vector<std::string> names = form.fit.names();
    for (size_t i = 0; i < names.size(); ++i) {
      coefficients[names[i]] = form.fit.coefficients()[i];
      if (i < form.intervals.size()) intervals[names[i]] = pair_json(form.intervals[i]);
    }
    json.push_back({{"form", form.fit.form().name},
                    {"residual", form.residual},
                    {"coefficients", std::move(coefficients)},
                    {"intervals", std::move(intervals)}});
  }
  return json;
}

Json optima_json(const char* unit, const laws::Optima& optima, const laws::PowerLaws& laws) {
  Json json = {{"unit", unit}, {"optima", Json::array()}};
  for (const laws::Point& point : optima.points) {
    json["optima"].push_back(
        {{"params", point.params}, {"replicas", whole(point.replicas)}, {"value", point.value}});
  }
  json.update(laws_json(laws, {}));
  return json;
}

Json said(double value) { return value > 0 ? Json(value) : Json(); }

}  // namespace

void add_comparable_json(Json& json, const laws::Comparable& compared) {
  const laws::RunKind& kind = compared.kind;
  json["runs_have"] = {{"tokens_per_param", said(kind.tokens)},
                       {"sync_every", said(kind.sync_every)},
                       {"method", kind.method.empty() ? Json() : Json(kind.method)}};
  json["left_out"] = Json::array();
  for (const laws::LeftOut& one : compared.left_out) {
    json["left_out"].push_back({{"lines", one.lines}, {"reason", one.reason}});
  }
}

Json fit_json(const FitReport& report, const laws::FitOptions& options, const std::string& count,
              const std::vector<laws::Run>& runs) {
  Json json = laws_json(report.loss, report.loss_intervals);
  json["leave_one_out"] = {{"params", report.leave_one_out.params},
                           {"independent", residuals_json(report.leave_one_out.independent)},
                           {"joint", residuals_json(report.leave_one_out.joint)},
                           {"data_parallel", nullptr}};
  if (const auto& one = report.leave_one_out.data_parallel) {
    json["leave_one_out"]["data_parallel"] = {{"params", one->params}, {"residual", one->value}};
  }
  json["parametric"] = forms_json(report.parametric);
  json["batch"] = optima_json("tokens of all replicas", report.batch_optima, report.batch);
  json["inner_lr"] = optima_json("peak", report.lr_optima, report.lr);
  json["outer_lr"] = Json::array();
  for (const auto& [replicas, rate] : report.outer_lr) {
    json["outer_lr"].push_back({{"replicas", whole(replicas)},
                                {"mean", rate.mean},
                                {"smallest", rate.low},
                                {"largest", rate.high}});
  }
  json["compute"] = {{"unit", "nats per ln(flops)"}, {"independent", Json::array()}};
  for (const auto& [replicas, line] : report.compute) {
    json["compute"]["independent"].push_back(
        {{"replicas", whole(replicas)}, {"intercept", line.intercept}, {"slope", line.slope}});
  }
  json["fitted_params"] = {report.smallest, report.largest};
  json["units"] = {{"loss", "nats per token"}, {"batch", "tokens"}, {"params", count}};
  json["confidence"] = options.confidence;
  json["bootstrap"] = options.bootstrap;
  json["refused"] = Json::array();
  for (const laws::Refusal& refusal : report.refused) {
    json["refused"].push_back({{"what", refusal.what}, {"reason", refusal.reason}});
  }
  json["warnings"] = laws::growth_warnings(report.loss);
  json["table"] = laws::table_text(runs);
  return json;
}

}  // namespace atl::cli
