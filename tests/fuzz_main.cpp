// Runs a libFuzzer target without libFuzzer: a fixed set of random inputs, so that the target
// builds and its obvious failures show in every test run. Real fuzzing: the `fuzz` preset (clang).
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

int main() {
  std::mt19937_64 random(1);
  for (int run = 0; run < 2000; ++run) {
    std::vector<uint8_t> input(random() % 512);
    for (uint8_t& byte : input) byte = static_cast<uint8_t>(random());
    LLVMFuzzerTestOneInput(input.data(), input.size());
  }
  return 0;
}
