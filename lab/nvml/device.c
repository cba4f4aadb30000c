/* NVML's calls about one device's hardware: identity on the bus, memory, heat, power, clocks, links, processes. */
#include "entry.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#define MIB (1024ULL * 1024ULL)

/* A call that gives one value of the device, or says that the hardware has none. */
#define GETTER(function, type, supported, expression)                                                                            \
    EXPORT nvmlReturn_t function(nvmlDevice_t handle, type *value)                                                               \
    {                                                                                                                            \
        struct device *d;                                                                                                        \
        nvmlReturn_t result = enter_device(handle, &d);                                                                          \
        if (result != NVML_SUCCESS) {                                                                                            \
            return result;                                                                                                       \
        }                                                                                                                        \
        if (!(supported)) {                                                                                                      \
            return leave(NVML_ERROR_NOT_SUPPORTED);                                                                              \
        }                                                                                                                        \
        *value = (type)(expression);                                                                                             \
        return leave(NVML_SUCCESS);                                                                                              \
    }

/* A call that gives one value for a selector, such as a sensor or a clock. */
#define SELECTOR_GETTER(function, type, expression)                                                                              \
    EXPORT nvmlReturn_t function(nvmlDevice_t handle, unsigned selector, type *value)                                            \
    {                                                                                                                            \
        struct device *d;                                                                                                        \
        nvmlReturn_t result = enter_device(handle, &d);                                                                          \
        if (result != NVML_SUCCESS) {                                                                                            \
            return result;                                                                                                       \
        }                                                                                                                        \
        return leave(expression);                                                                                                \
    }

GETTER(nvmlDeviceGetMinorNumber, unsigned, true, d->minor)
GETTER(nvmlDeviceGetArchitecture, unsigned, true, d->architecture)
GETTER(nvmlDeviceGetNumaNodeId, unsigned, true, d->numa_node)
GETTER(nvmlDeviceGetPowerUsage, unsigned, true, d->power_mw)
GETTER(nvmlDeviceGetPowerManagementLimit, unsigned, true, d->power_limit_mw)
GETTER(nvmlDeviceGetEnforcedPowerLimit, unsigned, true, d->power_limit_mw)
GETTER(nvmlDeviceGetPersistenceMode, int, true, d->persistence)
GETTER(nvmlDeviceGetPerformanceState, int, true, 0)
GETTER(nvmlDeviceGetCurrentClocksEventReasons, unsigned long long, true, d->throttle)
GETTER(nvmlDeviceGetCurrentClocksThrottleReasons, unsigned long long, true, d->throttle)
GETTER(nvmlDeviceGetCurrPcieLinkGeneration, unsigned, true, d->pcie_gen)
GETTER(nvmlDeviceGetMaxPcieLinkGeneration, unsigned, true, d->pcie_gen_max)
GETTER(nvmlDeviceGetCurrPcieLinkWidth, unsigned, true, d->pcie_width)
GETTER(nvmlDeviceGetMaxPcieLinkWidth, unsigned, true, d->pcie_width_max)
GETTER(nvmlDeviceGetPcieReplayCounter, unsigned, true, d->pcie_replays)

/* The driver takes a GPU back when its holder ends, so a holder counts only while it lives. */
static bool lives(const struct process *process)
{
    return kill((pid_t)process->pid, 0) == 0 || errno == EPERM;
}

static unsigned long long used_bytes(const struct device *d)
{
    unsigned long long mib = d->memory_used_mib;
    for (unsigned i = 0; i < d->processes; i++) {
        mib += lives(&d->process[i]) ? d->process[i].memory_mib : 0;
    }
    return mib * MIB;
}

static nvmlReturn_t put(unsigned *value, bool supported, unsigned answer)
{
    if (!supported) {
        return NVML_ERROR_NOT_SUPPORTED;
    }
    *value = answer;
    return NVML_SUCCESS;
}

static nvmlReturn_t threshold(const struct device *d, unsigned which, unsigned *value)
{
    switch (which) {
    case 0: return put(value, true, (unsigned)d->shutdown_temperature);
    case 1: return put(value, true, (unsigned)d->slowdown_temperature);
    case 3: return put(value, true, (unsigned)d->slowdown_temperature - 2);
    default: return NVML_ERROR_NOT_SUPPORTED;
    }
}

SELECTOR_GETTER(nvmlDeviceGetTemperature, unsigned, put(value, selector == 0, (unsigned)d->temperature))
SELECTOR_GETTER(nvmlDeviceGetTemperatureThreshold, unsigned, threshold(d, selector, value))
SELECTOR_GETTER(nvmlDeviceGetClockInfo, unsigned, put(value, selector < 2, d->clock_mhz))
SELECTOR_GETTER(nvmlDeviceGetMaxClockInfo, unsigned, put(value, selector < 2, d->clock_max_mhz))
SELECTOR_GETTER(nvmlDeviceGetNvLinkState, unsigned, selector < d->links ? put(value, true, d->link_active[selector]) : NVML_ERROR_INVALID_ARGUMENT)
SELECTOR_GETTER(nvmlDeviceGetNvLinkVersion, unsigned, put(value, selector < d->links, d->architecture >= 10 ? 7 : 6))

EXPORT nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t handle, nvmlTemperature_t *temperature)
{
    struct device *d;
    nvmlReturn_t result = enter_device(handle, &d);
    if (result != NVML_SUCCESS) {
        return result;
    }
    temperature->temperature = d->temperature;
    return leave(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetMarginTemperature(nvmlDevice_t handle, nvmlMarginTemperature_t *margin)
{
    struct device *d;
    nvmlReturn_t result = enter_device(handle, &d);
    if (result != NVML_SUCCESS) {
        return result;
    }
    margin->margin = d->margin;
    return leave(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t handle, nvmlPciInfo_t *pci)
{
    struct device *d;
    nvmlReturn_t result = enter_device(handle, &d);
    if (result != NVML_SUCCESS) {
        return result;
    }
    memset(pci, 0, sizeof *pci);
    pci->domain = d->domain;
    pci->bus = d->bus;
    pci->device = d->slot;
    pci->pci_device_id = d->pci_id;
    pci->pci_subsystem_id = d->subsystem_id;
    snprintf(pci->bus_id_legacy, sizeof pci->bus_id_legacy, "%04X:%02X:%02X.0", d->domain & 0xffffU, d->bus & 0xffU, d->slot & 0xffU);
    snprintf(pci->bus_id, sizeof pci->bus_id, "%08X:%02X:%02X.0", d->domain, d->bus, d->slot);
    return leave(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t handle, int *major, int *minor)
{
    struct device *d;
    nvmlReturn_t result = enter_device(handle, &d);
    if (result != NVML_SUCCESS) {
        return result;
    }
    *major = (int)d->cc_major;
    *minor = (int)d->cc_minor;
    return leave(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t handle, nvmlMemory_t *memory)
{
    struct device *d;
    nvmlReturn_t result = enter_device(handle, &d);
    if (result != NVML_SUCCESS) {
        return result;
    }
    memory->total = d->memory_total_mib * MIB;
    memory->used = used_bytes(d);
    memory->free = memory->total - memory->used;
    return leave(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t handle, nvmlMemory_v2_t *memory)
{
    struct device *d;
    nvmlReturn_t result = enter_device(handle, &d);
    if (result != NVML_SUCCESS) {
        return result;
    }
    if (memory->version != 0x02000028U) {
        return leave(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    }
    memory->total = d->memory_total_mib * MIB;
    memory->reserved = 0;
    memory->used = used_bytes(d);
    memory->free = memory->total - memory->used;
    return leave(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t handle, nvmlUtilization_t *rates)
{
    struct device *d;
    nvmlReturn_t result = enter_device(handle, &d);
    if (result != NVML_SUCCESS) {
        return result;
    }
    rates->gpu = d->utilization;
    rates->memory = d->utilization / 2;
    return leave(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t handle, unsigned *now, unsigned *pending)
{
    struct device *d;
    nvmlReturn_t result = enter_device(handle, &d);
    if (result != NVML_SUCCESS) {
        return result;
    }
    if (d->mig < 0) {
        return leave(NVML_ERROR_NOT_SUPPORTED);
    }
    *now = *pending = (unsigned)d->mig;
    return leave(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetNvLinkErrorCounter(nvmlDevice_t handle, unsigned link, unsigned counter, unsigned long long *value)
{
    struct device *d;
    nvmlReturn_t result = enter_device(handle, &d);
    if (result != NVML_SUCCESS) {
        return result;
    }
    if (link >= d->links || counter >= LINK_ERRORS) {
        return leave(NVML_ERROR_INVALID_ARGUMENT);
    }
    *value = d->link_errors[link][counter];
    return leave(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuFabricInfo(nvmlDevice_t handle, nvmlGpuFabricInfo_t *fabric)
{
    struct device *d;
    nvmlReturn_t result = enter_device(handle, &d);
    if (result != NVML_SUCCESS) {
        return result;
    }
    memset(fabric, 0, sizeof *fabric);
    fabric->state = (unsigned char)d->fabric_state;
    return leave(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t handle, nvmlGpuFabricInfoV_t *fabric)
{
    struct device *d;
    nvmlReturn_t result = enter_device(handle, &d);
    if (result != NVML_SUCCESS) {
        return result;
    }
    if (fabric->version != 0x02000024U && fabric->version != 0x03000028U) {
        return leave(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    }
    memset(fabric->cluster_uuid, 0, sizeof fabric->cluster_uuid);
    fabric->status = NVML_SUCCESS;
    fabric->clique_id = 0;
    fabric->state = (unsigned char)d->fabric_state;
    fabric->health_mask = d->fabric_health;
    if (fabric->version == 0x03000028U) {
        fabric->health_summary = d->fabric_health == 0 ? 0 : (d->fabric_health & 0x55U) != 0 ? 2 : 1;
    }
    return leave(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t handle, unsigned *count, nvmlProcessInfo_t *infos)
{
    struct device *d;
    nvmlReturn_t result = enter_device(handle, &d);
    if (result != NVML_SUCCESS) {
        return result;
    }
    unsigned room = *count;
    unsigned found = 0;
    for (unsigned i = 0; i < d->processes; i++) {
        if (!lives(&d->process[i])) {
            continue;
        }
        if (found < room) {
            infos[found] = (nvmlProcessInfo_t){.pid = d->process[i].pid,
                                               .used_gpu_memory = d->process[i].memory_mib * MIB,
                                               .gpu_instance_id = 0xffffffffU,
                                               .compute_instance_id = 0xffffffffU};
        }
        found++;
    }
    *count = found;
    return leave(found > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS);
}
