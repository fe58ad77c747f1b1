#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "array/attrs.h"
#include "array/host_tensor.h"
#include "weft/array.h"

/// Random programs of ops whose results every device must agree on. The same seed makes the same program.
namespace weft::test {

struct ProgramNode {
  std::string op;              ///< empty: a leaf
  std::vector<size_t> inputs;  ///< earlier nodes
  Attrs attrs;
  HostTensor leaf;
  // What is known beforehand about the values, to choose ops that keep them finite and well-conditioned.
  double bound = 0;   ///< no value is larger, in magnitude
  double error = 0;   ///< how far two right implementations may differ; 0 = bits are the same
  bool held = false;  ///< somebody keeps it, and reads it when the results have been evaluated
};

struct Program {
  uint64_t seed = 0;
  std::vector<ProgramNode> nodes;

  std::vector<size_t> results() const;  ///< nodes that no other uses
  /// The results, then nodes that are held: what is compared.
  std::vector<size_t> compared() const;
};

/// 5 to 25 ops over leaves of rank 0 to 4.
Program random_program(uint64_t seed);

/// One line per node.
std::string to_string(const Program& program);

/// All results together, or recorded with what is held, or every node on its own, as soon as it is made, so
/// that nothing fuses.
enum class Running { together, recorded, apart };

/// The values of compared().
std::vector<HostTensor> run_program(const Program& program, const Device& device,
                                    Running how = Running::together);

/// Where two runs of a program differ: "" or a line that says which node, where and by how much.
std::string difference(const Program& program, const std::vector<HostTensor>& got,
                       const std::vector<HostTensor>& want);

/// A way to run a program and say what is wrong with it: "" = nothing.
using Verdict = std::string (*)(const Program&, const Device&);

/// The smallest part of a failing program that still fails: without trailing nodes, and without those that
/// the failing result does not need.
Program minimal(Program program, const Device& device, Verdict verdict);

}  // namespace weft::test
