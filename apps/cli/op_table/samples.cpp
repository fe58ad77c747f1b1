#include "op_table/samples.h"

#include <map>

#include "array/element.h"
#include "weft/ops.h"
#include "weft/random.h"

namespace weft::op_table {
namespace {

using Ints = std::vector<int64_t>;

Slot value(Shape shape) {
  return {Slot::Kind::value, std::move(shape)};
}
Slot index(Shape shape) {
  return {Slot::Kind::index, std::move(shape)};
}

using Samples = std::map<std::string, Sample, std::less<>>;

/// Calls of ops that need more than inputs of one shape.
Samples make_samples() {
  Samples all;
  const Slot x{}, truth{Slot::Kind::truth}, key{Slot::Kind::key, {2}}, real{Slot::Kind::real};
  const Slot blocks{Slot::Kind::blocks, {2, 8}};
  const Slot line = value({4}), square = value({3, 3}), image = value({1, 2, 4, 4}), row = value({1, 2, 5});
  const Slot heads = value({1, 2, 3, 4});
  const auto dim = [](int64_t d) { return Attrs{{"dim", d}}; };
  const auto shape = [](Ints sizes) { return Attrs{{"shape", std::move(sizes)}}; };
  all["arange"] = {{}, {{"stop", 3.0}}};
  all["eye"] = {{}, {{"n", 3}}};
  all["full"] = {{}, {{"shape", Ints{2}}, {"value", 1.0}}};
  all["linspace"] = {{}, {{"start", 0.0}, {"stop", 1.0}, {"num", 3}}};
  all["sinusoidal_encoding"] = {{}, {{"length", 2}, {"dim", 4}}};

  all["where"] = {{truth, x, x}};
  all["masked_fill"] = {{x, truth}, {{"value", 1.0}}};
  all["pow_scalar"] = {{x}, {{"exponent", 3.0}}};
  all["to_dtype"] = {{x}, {{"dtype", "f32"}}};
  all["div"] = {{x, x}};

  all["cumsum"] = {{x}, dim(1)};
  all["cumprod"] = {{x}, dim(1)};
  all["cummax"] = {{x}, dim(1)};
  all["cummin"] = {{x}, dim(1)};
  all["logcumsumexp"] = {{x}, dim(1)};

  all["reshape"] = {{x}, shape({6})};
  all["expand"] = {{x}, shape({2, 2, 3})};
  all["permute"] = {{x}, {{"dims", Ints{1, 0}}}};
  all["transpose"] = {{x}, {{"dim0", 0}, {"dim1", 1}}};
  all["slice"] = {{x}, {{"starts", Ints{0}}, {"stops", Ints{1}}}};
  all["squeeze"] = {{value({1, 3})}, dim(0)};
  all["unsqueeze"] = {{x}, dim(0)};
  all["pad"] = {{x}, {{"pads", Ints{1, 0, 0, 1}}}};
  all["cat"] = {{x, x}, dim(0)};
  all["stack"] = {{x, x}, dim(0)};
  all["split"] = {{x}, {{"sizes", Ints{1, 1}}}};
  all["flip"] = {{x}, {{"dims", Ints{0}}}};
  all["roll"] = {{x}, {{"shifts", Ints{1}}, {"dims", Ints{1}}}};
  all["tril"] = {{square}};
  all["triu"] = {{square}};
  all["repeat"] = {{x}, {{"repeats", Ints{2, 1}}}};
  all["repeat_interleave"] = {{x}, {{"repeats", 2}, {"dim", 0}}};
  all["unfold"] = {{x}, {{"dim", 1}, {"size", 2}, {"step", 1}}};
  all["diagonal"] = {{square}};
  all["stop_gradient"] = {{x}};

  all["index_select"] = {{x, index({2})}, dim(0)};
  all["gather"] = {{x, index({2, 1})}, dim(1)};
  all["scatter"] = {{x, index({2, 1}), x}, dim(1)};
  all["scatter_add"] = {{x, index({2, 1}), x}, dim(1)};
  all["index_add"] = {{x, index({1}), value({1, 3})}, dim(0)};
  all["embedding"] = {{x, index({2})}};
  all["one_hot"] = {{index({2})}, {{"num_classes", 3}}};
  all["topk"] = {{x}, {{"k", 2}}};
  all["searchsorted"] = {{line, x}};

  all["matmul"] = {{x, value({3, 2})}};
  all["linear"] = {{x, value({2, 3}), value({2})}};
  all["outer"] = {{line, line}};
  all["einsum"] = {{x, value({3, 2})}, {{"equation", "ij,jk->ik"}}};

  all["conv1d"] = {{row, value({2, 2, 3}), value({2})}};
  all["conv2d"] = {{image, value({2, 2, 3, 3}), value({2})}};
  all["conv3d"] = {{value({1, 2, 3, 3, 3}), value({2, 2, 2, 2, 2}), value({2})}};
  all["conv_transpose1d"] = {{row, value({2, 2, 3}), value({2})}};
  all["conv_transpose2d"] = {{image, value({2, 2, 3, 3}), value({2})}};
  all["max_pool1d"] = {{row}, {{"kernel", Ints{2}}}};
  all["max_pool2d"] = {{image}, {{"kernel", Ints{2, 2}}}};
  all["avg_pool1d"] = {{row}, {{"kernel", Ints{2}}}};
  all["avg_pool2d"] = {{image}, {{"kernel", Ints{2, 2}}}};
  all["adaptive_avg_pool2d"] = {{image}, {{"output_size", Ints{2, 2}}}};
  all["upsample_nearest1d"] = {{row}, {{"size", Ints{7}}}};
  all["upsample_nearest2d"] = {{image}, {{"size", Ints{6, 6}}}};
  all["upsample_bilinear2d"] = {{image}, {{"size", Ints{6, 6}}}};

  all["softmax"] = {{x}, dim(1)};
  all["log_softmax"] = {{x}, dim(1)};
  all["layer_norm"] = {{x, value({3}), value({3})}};
  all["rms_norm"] = {{x, value({3})}};
  all["group_norm"] = {{row, value({2}), value({2})}, {{"num_groups", 2}}};
  all["batch_norm"] = {{row, value({2}), value({2}), value({2}), value({2})}};
  all["sdpa"] = {{heads, heads, heads}};
  all["rope"] = {{heads}};

  all["cross_entropy"] = {{x, index({2})}};
  all["nll_loss"] = {{x, index({2})}};
  all["bce_with_logits"] = {{x, x, value({3})}};
  all["optim"] = {{x, x}, {{"kind", "sgd"}, {"steps", 1}, {"n_params", 1}, {"lr", 0.1}}};

  all["dequantize"] = {{blocks}, {{"type", "f16"}, {"shape", Ints{2, 4}}}};
  all["qembedding"] = {{blocks, index({2})}, {{"type", "f16"}}};
  all["qmatmul"] = {{{Slot::Kind::real, {3, 4}}, blocks}, {{"type", "f16"}, {"n", 2}, {"k", 4}}};

  all["random_bits"] = {{key}, shape({4})};
  all["uniform"] = {{key}, shape({4})};
  all["normal"] = {{key}, shape({4})};
  all["gumbel"] = {{key}, shape({4})};
  all["randint"] = {{key}, {{"shape", Ints{4}}, {"low", 0}, {"high", 5}}};
  all["bernoulli"] = {{key, real}};
  all["dropout"] = {{x, key}};
  all["categorical"] = {{x, key}};
  all["permutation"] = {{key}, {{"n", 4}}};
  return all;
}

Array input_of(const Slot& slot, DType dtype, const Device& device) {
  if (slot.kind == Slot::Kind::key) return random_key(1, device);
  const auto count = static_cast<size_t>(element_count(slot.shape));
  const DType own = slot.kind == Slot::Kind::value   ? dtype
                    : slot.kind == Slot::Kind::real  ? DType::f32
                    : slot.kind == Slot::Kind::index ? DType::i32
                    : slot.kind == Slot::Kind::truth ? DType::boolean
                                                     : DType::u8;
  HostTensor host{own, slot.shape, std::vector<std::byte>(count * size_of(own))};
  const bool zeros = slot.kind == Slot::Kind::index || slot.kind == Slot::Kind::blocks;
  for (size_t i = 0; i < count && !zeros; ++i)
    set_number(own, host.bytes.data(), i,
               is_float(own) ? static_cast<double>(i % 4) / 4 : static_cast<double>(i % 4));
  return Array::from_host(host, device);
}

}  // namespace

std::optional<Sample> sample_of(const Op& op) {
  static const Samples samples = make_samples();
  if (const auto found = samples.find(op.name); found != samples.end()) return found->second;
  const bool called_by_name = op.kind == OpKind::composed || op.kind == OpKind::elementwise;
  if (!called_by_name || op.min_inputs == 0) return std::nullopt;
  return Sample{std::vector<Slot>(static_cast<size_t>(op.min_inputs))};
}

std::vector<Array> inputs_of(const Sample& sample, DType dtype, const Device& device) {
  std::vector<Array> inputs;
  for (const Slot& slot : sample.inputs) inputs.push_back(input_of(slot, dtype, device));
  return inputs;
}

std::vector<Array> call_sample(const Op& op, const Sample& sample, DType dtype, const Device& device) {
  return apply(op, inputs_of(sample, dtype, device), sample.attrs, device);
}

}  // namespace weft::op_table
