#include "gpu/adapter.h"

#include <algorithm>
#include <chrono>
#include <tuple>

#include "base/error.h"
#include "base/quiet.h"
#include "gpu/callback.h"

namespace weft::gpu {
namespace {

using namespace std::chrono_literals;

std::string backend_name(uint32_t backend) {
  switch (backend) {
    case abi::kBackendVulkan:
      return "Vulkan";
    case abi::kBackendMetal:
      return "Metal";
    case abi::kBackendD3D12:
      return "D3D12";
    case abi::kBackendD3D11:
      return "D3D11";
    default:
      return fmt::format("backend {}", backend);
  }
}

std::shared_ptr<abi::AdapterImpl> owned(const std::shared_ptr<Library::State>& library, abi::Adapter handle) {
  return {handle, [library](abi::Adapter a) {
            if (!Library::process_exiting()) library->api.AdapterRelease(a);
          }};
}

}  // namespace

abi::Adapter Adapter::request(const Library::State& library, const Request& request) {
  // f16 on NVIDIA and the Vulkan memory model (subgroup matrices need it) are off by default in Dawn.
  const char* const enabled[] = {"allow_unsafe_apis", "vulkan_enable_f16_on_nvidia",
                                 "use_vulkan_memory_model"};
  abi::DawnToggles toggles{};
  toggles.chain.type = abi::kSTypeDawnToggles;
  toggles.enabled_count = std::size(enabled);
  toggles.enabled = enabled;
  abi::AdapterOptions options{};
  if (library.api.implementation == abi::Implementation::dawn) options.next = &toggles.chain;
  options.feature_level = abi::kFeatureLevelCore;
  options.power = request.power;
  options.force_fallback = request.fallback;
  options.backend = request.backend;

  // Dawn tells the world on standard error about every limit it lowers.
  const QuietStandardError quiet;
  auto answer = std::make_shared<Answer<abi::Adapter>>();
  const abi::Future future = library.api.InstanceRequestAdapter(library.instance, &options,
                                                                {.next = nullptr,
                                                                 .mode = abi::kModeProcessEvents,
                                                                 .callback = answer_with_handle<abi::Adapter>,
                                                                 .user1 = hand_over(answer),
                                                                 .user2 = nullptr});
  if (!wait_for(library, nullptr, future, *answer, 20s))
    fail(ErrorKind::timeout, "[webgpu] {} did not answer a request for an adapter within 20 s",
         library.path.string());
  return answer->status == abi::kSuccess ? answer->value : nullptr;
}

Adapter::Adapter(Library library, abi::Adapter handle, Request request)
    : library_(std::move(library)), request_(request) {
  const std::shared_ptr<Library::State> state = library_.state();
  handle_ = owned(state, handle);

  auto limits = std::make_shared<abi::Limits>();
  state->api.AdapterGetLimits(handle, limits.get());
  limits->next = nullptr;
  if (state->api.abi == abi::Class::a) limits->max_immediates = 0;  // padding there

  abi::AdapterInfo info{};
  state->api.AdapterGetInfo(handle, &info);
  auto report = std::make_shared<AdapterReport>();
  report->name = text_of(info.device);
  if (report->name.empty()) report->name = text_of(info.description);
  // wgpu-native: vendor = driver name, description = its version. Dawn: description holds both.
  report->driver = text_of(info.description);
  if (state->api.is_wgpu()) report->driver = fmt::format("{} {}", text_of(info.vendor), report->driver);
  report->backend = backend_name(info.backend);
  report->type =
      info.type >= 1 && info.type <= 4 ? static_cast<AdapterType>(info.type) : AdapterType::unknown;
  for (const char* software :
       {"llvmpipe", "SwiftShader", "Microsoft Basic Render"})  // some call themselves unknown
    if (report->name.find(software) != std::string::npos) report->type = AdapterType::cpu;
  report->vendor_id = info.vendor_id;
  report->device_id = info.device_id;
  if (state->api.is_dawn()) {  // wgpu-native 29 has the fields, and leaves 0 in them
    report->features.subgroup_min = info.subgroup_min;
    report->features.subgroup_max = info.subgroup_max;
  }
  state->api.AdapterInfoFreeMembers(info);
  report->limits = {
      .max_buffer_size = limits->max_buffer_size,
      .max_binding_size = limits->max_storage_binding_size,
      .max_storage_buffers = limits->max_storage_buffers,
      .max_workgroup_memory = limits->max_workgroup_memory,
      .max_workgroup_threads = limits->max_workgroup_threads,
      .max_workgroups = limits->max_workgroups,
      .storage_alignment = limits->storage_alignment,
      .uniform_alignment = limits->uniform_alignment,
      .max_immediates = limits->max_immediates,
  };
  info_ = std::move(report);
  raw_limits_ = std::move(limits);
}

std::shared_ptr<abi::AdapterImpl> Adapter::handle_for_device() const {
  const std::shared_ptr<Library::State> state = library_.state();
  if (state->api.InstanceEnumerateAdapters) return handle_;
  const abi::Adapter fresh = request(*state, request_);
  if (!fresh) fail(ErrorKind::lost, "[gpu] {} is not there any more", info().name);
  return owned(state, fresh);
}

bool Adapter::claims(uint32_t feature) const {
  return library_.state()->api.AdapterHasFeature(handle_.get(), feature) != 0;
}

std::vector<uint32_t> Adapter::claimed_features() const {
  const abi::Api& api = library_.state()->api;
  abi::SupportedFeatures supported{};
  api.AdapterGetFeatures(handle_.get(), &supported);
  std::vector<uint32_t> features(supported.features, supported.features + supported.count);
  api.SupportedFeaturesFreeMembers(supported);
  return features;
}

std::vector<Adapter> Library::adapters() const {
  std::vector<Adapter> adapters;
  if (state_->api.InstanceEnumerateAdapters) {
    const abi::WgpuEnumerateOptions options{.next = nullptr, .backends = abi::kWgpuBackendsNative};
    std::vector<abi::Adapter> handles(
        state_->api.InstanceEnumerateAdapters(state_->instance, &options, nullptr));
    handles.resize(state_->api.InstanceEnumerateAdapters(state_->instance, &options, handles.data()));
    for (abi::Adapter handle : handles) adapters.push_back(Adapter(*this, handle, {}));
  } else {
    // Dawn's C API cannot enumerate: ask in every way that may lead to another adapter, and keep the distinct
    // ones.
    const auto key = [](const Adapter& a) {
      return std::tie(a.info().vendor_id, a.info().device_id, a.info().name, a.info().backend);
    };
    for (uint32_t backend : {abi::kBackendVulkan, abi::kBackendMetal, abi::kBackendD3D12})
      for (uint32_t power : {abi::kPowerHigh, abi::kPowerLow})
        for (bool fallback : {false, true}) {
          const Adapter::Request request{backend, power, fallback};
          const abi::Adapter handle = Adapter::request(*state_, request);
          if (!handle) continue;
          Adapter adapter(*this, handle, request);
          const bool known =
              std::ranges::any_of(adapters, [&](const Adapter& a) { return key(a) == key(adapter); });
          if (!known) adapters.push_back(std::move(adapter));
        }
  }
  std::ranges::stable_sort(adapters, {}, [](const Adapter& a) { return a.info().type; });
  return adapters;
}

}  // namespace weft::gpu
