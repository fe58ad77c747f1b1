// Matrix products of the CPU backend beside OpenBLAS, in the same run on the same number of threads. The two
// take turns and the best of the repeats counts: other work on the machine slows both alike.
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <random>
#include <vector>

#include "backend/cpu/gemm.h"

namespace {

using namespace weft;

using Sgemm = void (*)(int order, int transpose_a, int transpose_b, int m, int n, int k, float alpha,
                       const float* a, int lda, const float* b, int ldb, float beta, float* c, int ldc);

Sgemm load_openblas(int threads) {
  void* library = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
  if (!library) return nullptr;
  if (auto set_threads = reinterpret_cast<void (*)(int)>(dlsym(library, "openblas_set_num_threads")))
    set_threads(threads);
  return reinterpret_cast<Sgemm>(dlsym(library, "cblas_sgemm"));
}

double seconds(const std::function<void()>& step) {
  const auto begin = std::chrono::steady_clock::now();
  step();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

struct Row {
  int64_t m, n, k;
  bool b_transposed;  // b is stored as (n, k): the weights of a linear layer
};

constexpr Row kRows[] = {
    {64, 64, 64, false},       {256, 256, 256, false},   {512, 512, 512, false}, {1024, 1024, 1024, false},
    {2048, 2048, 2048, false}, {1024, 1024, 1024, true}, {1, 4096, 4096, false}, {1, 4096, 4096, true},
    {4, 4096, 4096, true},     {16, 4096, 4096, true},   {4096, 1, 4096, false}, {4096, 64, 64, false},
    {3, 7, 5, false},
};

void measure(ThreadPool& pool, Sgemm sgemm, const Row& row) {
  std::mt19937 random(1);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> a(static_cast<size_t>(row.m * row.k)), b(static_cast<size_t>(row.k * row.n));
  for (float& x : a) x = uniform(random);
  for (float& x : b) x = uniform(random);
  std::vector<float> c(static_cast<size_t>(row.m * row.n)), peer_c = c;
  const int m = static_cast<int>(row.m), n = static_cast<int>(row.n), k = static_cast<int>(row.k);
  const cpu::GemmOperand left{reinterpret_cast<const std::byte*>(a.data()), DType::f32, row.k, 1};
  const cpu::GemmOperand right{reinterpret_cast<const std::byte*>(b.data()), DType::f32,
                               row.b_transposed ? 1 : row.n, row.b_transposed ? row.k : 1};
  const double flops =
      2.0 * static_cast<double>(row.m) * static_cast<double>(row.n) * static_cast<double>(row.k);
  const int calls = std::clamp(static_cast<int>(2e7 / flops), 1, 10'000);  // small ones: several in a row
  const auto ours = [&] {
    for (int i = 0; i < calls; ++i) cpu::gemm(pool, row.m, row.n, row.k, left, right, c.data(), row.n);
  };
  const auto peer = [&] {
    constexpr int kRowMajor = 101, kPlain = 111, kTransposed = 112;
    for (int i = 0; i < calls; ++i)
      sgemm(kRowMajor, kPlain, row.b_transposed ? kTransposed : kPlain, m, n, k, 1, a.data(), k, b.data(),
            row.b_transposed ? k : n, 0, peer_c.data(), n);
  };
  double best = 1e9, peer_best = 1e9, spent = 0;
  for (int repeat = 0; repeat < 5 || (repeat < 2000 && spent < 1.5); ++repeat) {
    const double here = seconds(ours), there = sgemm ? seconds(peer) : 0;
    best = std::min(best, here);
    peer_best = std::min(peer_best, there);
    spent += here + there;
  }
  const double speed = flops * calls / best * 1e-9;
  const double read = static_cast<double>(b.size() + a.size()) * sizeof(float) * calls / best * 1e-9;
  fmt::print("{:<18} {:>8.1f} GFLOP/s {:>6.1f} GB/s",
             fmt::format("{}x{}x{}{}", m, n, k, row.b_transposed ? " b^T" : ""), speed, read);
  if (sgemm)
    fmt::print("   OpenBLAS {:>8.1f}   ratio {:.2f}", flops * calls / peer_best * 1e-9, peer_best / best);
  fmt::print("\n");
  std::fflush(stdout);
}

}  // namespace

int main() {
  ThreadPool pool;
  const Sgemm sgemm = load_openblas(pool.threads());
  fmt::print("m x n x k, f32, {} threads{}\n", pool.threads(), sgemm ? "" : ", no OpenBLAS");
  for (const Row& row : kRows) measure(pool, sgemm, row);
}
