#pragma once
// `atoll bench peak`: what a device can do without a model around it, products of matrices and a
// large copy. `atoll bench` asks it, in a process of its own.
namespace CLI {
class App;
}

namespace atl::cli {
void add_bench_peak(CLI::App& bench);
}
