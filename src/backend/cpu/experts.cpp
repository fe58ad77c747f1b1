// Products with the matrices of a stack that ids name. Rows of one matrix are multiplied together, so that it
// is read once.
#include <algorithm>
#include <cstring>

#include "backend/cpu/gemm.h"
#include "backend/cpu/primitives.h"
#include "backend/cpu/qmatmul.h"
#include "base/error.h"

namespace weft::cpu {
namespace {

/// The rows of the result that have chosen a matrix.
struct Chosen {
  int64_t expert;
  std::vector<int64_t> rows;
};

std::vector<Chosen> by_expert(std::span<const int32_t> ids, int64_t experts) {
  std::vector<Chosen> all(static_cast<size_t>(experts));
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= experts)
      fail(ErrorKind::invalid, "[expert_matmul] expert {} is not one of {}", ids[i], experts);
    all[static_cast<size_t>(ids[i])].rows.push_back(static_cast<int64_t>(i));
  }
  for (int64_t e = 0; e < experts; ++e) all[static_cast<size_t>(e)].expert = e;
  std::erase_if(all, [](const Chosen& chosen) { return chosen.rows.empty(); });
  return all;
}

/// x and y of those who chose a matrix, without gaps: in place where it is one row.
struct Rows {
  const std::byte* x = nullptr;
  float* y = nullptr;
  std::vector<std::byte> copied;
  std::vector<float> sums;
};

class ExpertProduct {
 public:
  ExpertProduct(ThreadPool& pool, std::span<const Tensor> inputs, const Tensor& out, const Attrs& attrs)
      : pool_(pool),
        w_(inputs[1]),
        attrs_(attrs),
        n_(attrs.integer("n")),
        k_(attrs.integer("k")),
        share_(inputs[2].layout.shape[0] / inputs[0].layout.shape[0]),
        row_bytes_(static_cast<size_t>(inputs[0].layout.shape[1]) * 4),
        x_(reinterpret_cast<const std::byte*>(without_gaps(pool, inputs[0], copied_))),
        y_(out.as<float>()) {
    std::vector<int32_t> ids_copied;
    const int32_t* ids = without_gaps(pool, inputs[2], ids_copied);
    chosen_ = by_expert({ids, static_cast<size_t>(inputs[2].layout.shape[0])}, attrs.integer("experts"));
  }

  void run() {
    std::vector<Rows> rows;
    for (const Chosen& chosen : chosen_) rows.push_back(gathered(chosen));
    attrs_.text("type").empty() ? multiply_floats(rows) : multiply_packed(rows);
    for (size_t i = 0; i < rows.size(); ++i)
      for (size_t r = 0; !rows[i].sums.empty() && r < chosen_[i].rows.size(); ++r)
        std::copy_n(rows[i].sums.data() + static_cast<int64_t>(r) * n_, n_, y_ + chosen_[i].rows[r] * n_);
  }

 private:
  const std::byte* x_of(int64_t row) const { return x_ + static_cast<size_t>(row / share_) * row_bytes_; }

  Rows gathered(const Chosen& chosen) const {
    if (chosen.rows.size() == 1) return {x_of(chosen.rows[0]), y_ + chosen.rows[0] * n_, {}, {}};
    Rows rows{.copied = std::vector<std::byte>(chosen.rows.size() * row_bytes_),
              .sums = std::vector<float>(chosen.rows.size() * static_cast<size_t>(n_))};
    for (size_t r = 0; r < chosen.rows.size(); ++r)
      std::memcpy(rows.copied.data() + r * row_bytes_, x_of(chosen.rows[r]), row_bytes_);
    rows.x = rows.copied.data();
    rows.y = rows.sums.data();
    return rows;
  }

  void multiply_packed(const std::vector<Rows>& rows) const {
    const int64_t each = quant::whole_panels(n_);
    const quant::Packing stack(quant::type_from_name(attrs_.text("type")), attrs_.integer("experts") * each,
                               k_, quant::kPackedRows);
    const uint32_t* words = w_.as<uint32_t>() + w_.layout.offset;
    const int64_t bits = attrs_.integer("bits");
    std::vector<QuantProduct> products;
    for (size_t i = 0; i < rows.size(); ++i)
      products.push_back({stack.part(chosen_[i].expert * each, n_), words,
                          bits > 0 ? nullptr : reinterpret_cast<const float*>(rows[i].x),
                          bits > 0 ? reinterpret_cast<const uint32_t*>(rows[i].x) : nullptr,
                          std::ssize(chosen_[i].rows), rows[i].y});
    multiply(pool_, products, bits);
  }

  void multiply_floats(const std::vector<Rows>& rows) const {
    for (size_t i = 0; i < rows.size(); ++i) {
      const int64_t m = std::ssize(chosen_[i].rows);
      const std::vector<int64_t>& strides = w_.layout.strides;
      const Tensor factors[] = {
          {const_cast<std::byte*>(rows[i].x), DType::f32, Layout::contiguous({m, k_})},
          {w_.data, w_.dtype,
           Layout{{k_, n_}, {strides[2], strides[1]}, w_.layout.offset + chosen_[i].expert * strides[0]}}};
      const Tensor out{reinterpret_cast<std::byte*>(rows[i].y), DType::f32, Layout::contiguous({m, n_})};
      matmul(pool_, factors, std::span(&out, 1), {});
    }
  }

  ThreadPool& pool_;
  const Tensor& w_;
  const Attrs& attrs_;
  const int64_t n_, k_;
  const int64_t share_;  ///< rows of the result that a row of x serves
  const size_t row_bytes_;
  std::vector<uint32_t> copied_;
  const std::byte* x_;
  float* y_;
  std::vector<Chosen> chosen_;
};

}  // namespace

void expert_matmul(ThreadPool& pool, std::span<const Tensor> inputs, std::span<const Tensor> outputs,
                   const Attrs& attrs) {
  if (inputs[2].layout.shape[0] > 0) ExpertProduct(pool, inputs, outputs[0], attrs).run();
}

}  // namespace weft::cpu
