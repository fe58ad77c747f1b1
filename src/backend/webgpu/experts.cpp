// Products with the matrices of a stack that ids name.
#include "backend/webgpu/experts.h"

#include <fmt/format.h>

#include <algorithm>

#include "backend/webgpu/interleaved.h"
#include "backend/webgpu/webgpu_backend.h"

namespace weft::embedded {
std::string_view webgpu_kernels(std::string_view file);
}

namespace weft::webgpu {
namespace {

/// Element by element, where rows are not whole vectors.
void declare_elements(Builder& builder, const Operand& x, const Operand& w, int64_t k) {
  const auto element = [&](const Operand& from) {
    return builder.load(from,
                        fmt::format("(row * blocks() + block + {})", builder.number(from.layout.offset)));
  };
  builder.code += fmt::format(
      "alias Bytes = f32;\nfn blocks() -> u32 {{ return {}; }}\n"
      "fn levels(row: u32, block: u32) -> f32 {{ return {}; }}\n"
      "fn scales(row: u32, block: u32) -> vec4<f32> {{ return vec4<f32>(); }}\n"
      "fn load_x(row: u32, block: u32) -> f32 {{ return {}; }}\n"
      "fn dot_x(x: f32, w: f32, s: vec4<f32>) -> f32 {{ return x * w; }}\n",
      builder.number(k), element(w), element(x));
}

class ExpertProduct {
 public:
  ExpertProduct(Context& context, const Step& step)
      : context_(context),
        step_(step),
        type_(step.attrs->text("type")),
        experts_(step.attrs->integer("experts")),
        n_(step.attrs->integer("n")),
        k_(step.attrs->integer("k")),
        bits_(step.attrs->integer("bits")),
        x_(without_gaps(context, step.inputs[0], 4)),
        ids_(without_gaps(context, step.inputs[2], 1)),
        results_(ids_.layout.shape[0]) {}

  void record(const QuantForm& form) const {
    const gpu::Buffer places = form.tiles ? sorted() : gpu::Buffer();
    Builder builder(step_.kernel);
    builder.settings = constants_of(form);
    number(builder, "size_m", x_.layout.shape[0]);
    number(builder, "size_n", n_);
    number(builder, "share", results_ / x_.layout.shape[0]);
    const std::string body = declare_factors(builder, form);
    builder.code += fmt::format("fn store(at: u32, x: f32) {{ {}[at] = bitcast<u32>(x); }}\n",
                                builder.write(buffer_of(step_.outputs[0])));
    const auto pieces = [&](int64_t piece) { return (n_ + piece - 1) / piece; };
    const int threads = static_cast<int>(form.threads);
    if (form.tiles) {
      number(builder, "tiles", tiles());
      builder.code += fmt::format("fn places(i: u32) -> u32 {{ return {}[i]; }}\n", builder.read(places));
      builder.code += embedded::webgpu_kernels("expert_tiles");
      builder.code += embedded::webgpu_kernels(bits_ > 0 ? "qmatmul_tiles_codes" : "qmatmul_tiles");
      builder.groups(context_, tiles() * pieces(bits_ > 0 ? 128 : 64), threads,
                     body + "  multiply_tile(index, thread);\n");
    } else {
      number(builder, "results", results_);
      declare_choice(builder);
      builder.code +=
          "fn row_of_x(place: u32) -> u32 { return place / share(); }\n"
          "fn weights_of(place: u32) -> u32 { return expert(place) * matrix_rows(); }\n";
      builder.code += vectors_text(form);
      builder.groups(context_, results_ * pieces(form.threads / form.lanes * form.rows), threads,
                     body + "  multiply_vectors(index, thread);\n");
    }
  }

 private:
  static void number(Builder& builder, std::string_view name, int64_t value) {
    builder.code += fmt::format("fn {}() -> u32 {{ return {}; }}\n", name, builder.number(value));
  }

  /// Returns what main does first.
  std::string declare_factors(Builder& builder, const QuantForm& form) const {
    if (!type_.empty()) {
      const int64_t rows = experts_ * quant::whole_panels(n_);
      const quant::Packing packing(quant::type_from_name(type_), rows, k_, packed_together(rows));
      return declare_product(context_, builder, x_, step_.inputs[1], packing, bits_, form);
    }
    const Operand w = without_gaps(context_, step_.inputs[1], 8);
    if (k_ % 8 != 0) {
      declare_elements(builder, x_, w, k_);
      return "";
    }
    declare_product(context_, builder, x_, w, k_);
    if (form.tiles) {
      number(builder, "sixteens", k_ / 16);
      builder.code += embedded::webgpu_kernels("expert_floats");
    }
    return "";
  }

  /// The most that there can be.
  int64_t tiles() const { return results_ / 64 + std::min(experts_, results_); }

  /// expert(row) of a result, and the rows of a matrix.
  void declare_choice(Builder& builder) const {
    number(builder, "matrix_rows", type_.empty() ? n_ : quant::whole_panels(n_));
    builder.code +=
        fmt::format("fn expert(row: u32) -> u32 {{ return min(u32({}), {} - 1u); }}\n",
                    builder.load(ids_, fmt::format("(row + {})", builder.number(ids_.layout.offset))),
                    builder.number(experts_));
  }

  /// What expert_places.wgsl leaves.
  gpu::Buffer sorted() const {
    const gpu::Buffer places = context_.scratch(3 * tiles() + results_, "places");
    Builder builder("expert_places");
    builder.settings.push_back({"EXPERTS", static_cast<uint32_t>(experts_)});
    number(builder, "tiles", tiles());
    number(builder, "results", results_);
    declare_choice(builder);
    builder.code += fmt::format("fn put(at: u32, x: u32) {{ {}[at] = x; }}\n", builder.write(places));
    builder.code += embedded::webgpu_kernels("expert_places");
    builder.groups(context_, 1, 256, "  sort_rows(thread);\n");
    return places;
  }

  Context& context_;
  const Step& step_;
  const std::string& type_;
  const int64_t experts_, n_, k_, bits_;
  const Operand x_, ids_;
  const int64_t results_;
};

}  // namespace

void multiply_experts(Context& context, const Step& step, const QuantForm& form) {
  ExpertProduct(context, step).record(form);
}

void expert_matmul(Context& context, const Step& step) {
  if (element_count(step.outputs[0].layout.shape) == 0) return;
  const int64_t n = step.attrs->integer("n"), k = step.attrs->integer("k"),
                rows = element_count(step.inputs[2].layout.shape) / step.attrs->integer("experts");
  // A tile reads a matrix once, but computes 64 rows, however few there are.
  const bool tiles = rows >= 16 && !context.software && k % 16 == 0,
             packed = !step.attrs->text("type").empty(), interleaved = context.software && packed;
  multiply_experts(context, step,
                   interleaved ? lanes_form(context.device.features(), n, 1)
                   : packed    ? packed_form(context.device, tiles ? 64 : 1, k / 32)
                               : floats_form(context.device, tiles ? 64 : 1, n, k / 32));
}

}  // namespace weft::webgpu
